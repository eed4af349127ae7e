"""Training steps against PyTorch, with the same weights and data; what is frozen, clipped and accumulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dlc import DlcError, Report
from dlc.base.types import DTYPES, Type, f16, f32, i64
from dlc.graph import Constant, Graph, Input, Tensor, make_graph, parse_graph, print_graph
from dlc.graph.verify import verify
from dlc.ops.elementwise import Add, Cast, Exp, Mul
from dlc.ops.linear import Gemm
from dlc.ops.normalize import BatchNorm
from dlc.ops.reduce import ReduceMean
from dlc.passes.autodiff import Autodiff
from dlc.spec import Spec
from dlc.training.step.step import initial_values
from tests.graph.random_graphs import OPS
from tests.training.nets import NETS, Training, module_of, relative_error, step_of, torch_step

Kind = type[torch.optim.Optimizer]
OPTIMIZERS: dict[str, tuple[Kind, dict[str, Any]]] = {
    "sgd{lr=0.05 momentum=0.9 nesterov=yes weight-decay=0.01}": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam{lr=0.01}": (torch.optim.Adam, {"lr": 0.01}),
    "rmsprop{lr=0.002}": (torch.optim.RMSprop, {"lr": 0.002}),
}


@pytest.mark.parametrize(("name", "optimizer"), [*(("mlp", o) for o in OPTIMIZERS), ("conv", "adam{lr=0.01}")])
def test_steps_are_those_of_torch(name: str, optimizer: str) -> None:
    net = NETS[name]
    module = module_of(net)
    training = Training(step_of(net.graph(module), f"optimizer={optimizer}"))
    assert verify(training.graph, "ops") == ()
    kind, settings = OPTIMIZERS[optimizer]
    other = kind(module.parameters(), **settings)
    batches = net.batches(5)
    losses: list[tuple[float, float]] = []
    for k in range(50):
        x, y = batches[k % len(batches)]
        losses.append((training(x, y), torch_step(module, other, x, y)))
        if k == 0:
            for key, value in module.named_parameters():
                assert relative_error(training.held[key], value.detach().numpy()) <= 1e-4, key
    assert all(abs(got - want) <= 0.01 * want for got, want in losses)
    assert losses[45][0] < 0.9 * losses[0][0]  # of the same batch
    assert training.held["step"] == 50


def test_the_norm_of_all_gradients_is_clipped() -> None:
    net = NETS["mlp"]
    module = module_of(net)
    training = Training(step_of(net.graph(module), "optimizer=sgd{lr=1} clip=0.05"))
    before = dict(training.held)
    (x, y), *_ = net.batches(1)
    torch_step(module, torch.optim.SGD(module.parameters(), lr=1), x, y, clip=0.05)
    training(x, y)
    moved = [training.held[k] - before[k] for k, _ in module.named_parameters()]
    assert abs(np.sqrt(sum(float((d**2).sum()) for d in moved)) - 0.05) < 1e-5
    for key, value in module.named_parameters():
        assert relative_error(training.held[key], value.detach().numpy()) <= 1e-4, key


@pytest.mark.parametrize("optimizer", ["sgd{lr=0.1 momentum=0.9}", "adam{lr=0.01}"])
def test_accumulating_equals_one_large_batch(optimizer: str) -> None:
    net = NETS["mlp"]
    module = module_of(net)
    small = Training(step_of(net.graph(module), f"optimizer={optimizer} accumulate=4"))
    large = Training(step_of(net.graph(module, 32), f"optimizer={optimizer}"))
    names = [name for name in large.held if name != "step"]
    assert set(small.held) == {*large.held, *(f"{n}.gradient" for n, _ in module.named_parameters())}
    batches = net.batches(8)
    for k in range(2):
        group = batches[4 * k : 4 * k + 4]
        before = {n: small.held[n] for n in names}
        losses: list[float] = []
        for x, y in group:
            assert all(np.array_equal(small.held[n], before[n]) for n in names)
            losses.append(small(x, y))
        whole = large(np.concatenate([x for x, _ in group]), np.concatenate([y for _, y in group]))
        assert np.mean(losses) == pytest.approx(whole, rel=1e-5)
        for name in names:
            np.testing.assert_allclose(small.held[name], large.held[name], rtol=1e-4, atol=1e-6, err_msg=name)
        assert all(not small.held[f"{n}.gradient"].any() for n, _ in module.named_parameters())


def test_a_schedule_counts_updates() -> None:
    x = Input("x", Type(f32, (2,)))
    graph = make_graph((x,), {"p": Add(x, Constant(Tensor.of([0.0, 0.0], f32), "w"))})
    options = "loss=mse{reduction=sum} accumulate=2 optimizer=sgd{lr=0.5 schedule=step{every=1 factor=0.1}}"
    training = Training(step_of(graph, options))
    ones, moves = np.ones(2, np.float32), list[float]()
    for label in (0, 0, -1, -1):
        before = training.held["w"]
        training(ones, ones * label)
        moves.append(float((training.held["w"] - before)[0]))
    np.testing.assert_allclose(moves, [0, -1, 0, -0.1], atol=1e-7)


def counted(graph: Graph) -> int:
    return sum(not isinstance(op, (Input, Constant)) for op in graph.ops)


def test_what_is_frozen_leaves_no_backward_node() -> None:
    net = NETS["conv"]
    model = net.graph(module_of(net))
    frozen = step_of(model, "wrt=6.* optimizer=adam{}")
    assert [i.name for i in frozen.inputs if i.role == "weight"] == ["6.weight", "6.bias"]
    assert {op.name for op in frozen.ops if isinstance(op, Constant) and op.name} == {
        f"{layer}.{part}" for layer in "03" for part in ("weight", "bias")
    }
    # The step of the last layer alone, and the forward pass in front of it.
    (gemm,) = (op for op in model.ops if isinstance(op, Gemm))
    body = make_graph(model.inputs, {"h": gemm.operands[0]})
    h = Input("h", gemm.operands[0].type)
    head = step_of(make_graph((h,), {"scores": gemm.with_operands([h, *gemm.operands[1:]])}), "optimizer=adam{}")
    assert counted(frozen) == counted(head) + counted(body)
    assert counted(step_of(model, "optimizer=adam{}")) > counted(frozen) + 5


def test_patterns_choose_and_freeze() -> None:
    net = NETS["mlp"]
    model = net.graph(module_of(net))

    def trained(wrt: str) -> list[str]:
        return [i.name for i in step_of(model, f"wrt={wrt}").inputs if i.role == "weight"]

    everything = ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"]
    assert trained("weights") == trained("*") == everything
    assert trained("!*.bias") == trained("*.weight") == everything[::2]
    assert trained("[02].*,!*.bias,2.bias") == ["0.weight", "2.weight", "2.bias"]


def test_statistics_and_scalars_are_not_trained_unless_they_are_named() -> None:
    x = Input("x", Type(f32, (2, 3, 4)))
    starts = {"g": 2.0, "b": 0.0, "m": 0.5, "v": 4.0}
    vector = {n: Constant(Tensor.of(np.full(3, v), f32), n) for n, v in starts.items()}
    scale = Constant(Tensor.of(np.float32(2)), "scale")
    unused = Constant(Tensor.of([7], i64), "n")
    y = Mul(BatchNorm(x, vector["g"], vector["b"], vector["m"], vector["v"]), scale)
    graph = make_graph((x,), {"y": y, "other": unused})
    report = Report()
    step = Autodiff.from_spec(Spec.parse("autodiff{loss=mse}")).run(graph, report)
    assert [i.name for i in step.inputs if i.role == "weight"] == ["g", "b"]
    assert report.notes == ["batch normalisations: 1 use the statistics of the batch, 0 keep the stored ones"]
    assert [i.name for i in step.inputs if i.role == "state"] == ["m", "v", "step"]
    report = Report()
    Autodiff.from_spec(Spec.parse("autodiff{loss=mse stored-norms=yes}")).run(graph, report)
    assert report.notes == ["batch normalisations: 0 use the statistics of the batch, 1 keep the stored ones"]
    named = step_of(graph, "loss=mse wrt=m,scale")
    assert [i.name for i in named.inputs if i.role == "weight"] == ["m", "scale"]


def test_parameters_of_equal_values_are_trained_apart() -> None:
    x = Input("x", Type(f32, (4,)))
    zeros = [Constant(Tensor.of(np.zeros(4), f32), n) for n in "ab"]
    graph = make_graph((x,), {"p": ReduceMean(Mul(Exp(Add(x, zeros[0])), Add(x, zeros[1])), axes=(0,))})
    training = Training(step_of(graph, "loss=mse optimizer=sgd{lr=1}"))
    training(np.arange(4, dtype=np.float32), np.zeros((), np.float32))
    assert not np.array_equal(training.held["a"], training.held["b"])


def test_the_convention() -> None:
    net = NETS["mlp"]
    model = net.graph(module_of(net))
    step = step_of(model, "optimizer=adam{} outputs=yes wrt=4.* label=target")
    assert [(i.name, i.role) for i in step.inputs[:2]] == [("x", "data"), ("target", "label")]
    assert step.inputs[1].type == Type(i64, (8,))
    changed = [i.name for i in step.inputs[2:]]
    assert changed[:2] == ["4.weight", "4.bias"] and changed[-1] == "step"
    assert step.names == ("loss", "scores", *changed)
    assert [(step.names[i], step.inputs[j].name) for i, j in step.aliases] == [(n, n) for n in changed]
    tensors = {t.digest: t for t in step.tensors}
    assert parse_graph(print_graph(step), OPS, lambda of, digest: tensors[digest]) == step
    first = initial_values(step)
    (bias,) = (op for op in model.ops if isinstance(op, Constant) and op.name == "4.bias")
    np.testing.assert_array_equal(first["4.bias"], bias.tensor.array())
    assert all(not first[n].any() for n in changed[2:])


@pytest.mark.parametrize("name", ["bf16", "f8e5m2", "f4e2m1"])
def test_weights_of_types_for_storage_are_refused(name: str) -> None:
    stored = DTYPES[name]
    x = Input("x", Type(f32, (4,)))
    w = Constant(Tensor.of(np.ones(4, stored.numpy), stored), "w")
    with pytest.raises(DlcError, match=name):
        step_of(make_graph((x,), {"p": Mul(x, Cast(w, to=f32))}), "loss=mse")
    with pytest.raises(DlcError, match=name):
        step_of(make_graph((x,), {"p": Cast(Mul(x, Constant(Tensor.of(np.ones(4), f32), "w")), to=stored)}), "loss=mse")


def test_weights_in_half_precision_have_states_in_single() -> None:
    x = Input("x", Type(f16, (4,)))
    graph = make_graph((x,), {"p": Mul(x, Constant(Tensor.of(np.ones(4), f16), "w"))})
    step = step_of(graph, "loss=mse optimizer=sgd{momentum=0.9} accumulate=2")
    kinds = {i.name: str(i.type) for i in step.inputs}
    assert kinds["w"] == "f16[4]" and kinds["w.momentum"] == kinds["w.gradient"] == "f32[4]"
