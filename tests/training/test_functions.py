"""The functions of a training program: gradients, then update, are a step; predict and evaluate are inference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dlc import DlcError
from dlc.base.types import Array, Type, f16, f32, i64
from dlc.graph import Constant, Graph, Input, Tensor, make_graph
from dlc.graph.evaluate import evaluate
from dlc.graph.verify import verify
from dlc.ops.elementwise import Add, Mul, Relu
from dlc.ops.linear import Gemm
from dlc.ops.normalize import BatchNorm
from dlc.ops.random import Dropout
from dlc.training.step.step import initial_values
from tests.graph.opaque import Opaque
from tests.training.nets import NETS, module_of, step_of

BATCH, CLASSES = 6, 4
OPTIMIZERS = (
    *("sgd{lr=0.1}", "sgd{lr=0.05 momentum=0.9 nesterov=yes weight-decay=0.01}", "adam{lr=0.01}", "adamw{lr=0.01}"),
    *("adagrad{lr=0.05}", "rmsprop{lr=0.01}", "lamb{lr=0.01}", "adam{lr=0.01 schedule=step{every=1 factor=0.5}}"),
)
rng = np.random.default_rng(5)


def parameter(name: str, *shape: int, dtype: Any = f32) -> Constant:
    values = 1 + rng.random(shape) if "var" in name else rng.standard_normal(shape)
    return Constant(Tensor.of(values.astype(dtype.numpy), dtype), name)


def model(dtype: Any = f32) -> Graph:
    """Two layers with a batch normalisation and a dropout between them."""
    x = Input("x", Type(dtype, (BATCH, 5)))
    hidden = Gemm(x, parameter("w1", 5, 7, dtype=dtype), parameter("b1", 7, dtype=dtype))
    scale, bias, mean, var = (parameter(f"bn.{k}", 7, dtype=dtype) for k in ("scale", "bias", "mean", "var"))
    normed = BatchNorm(hidden, scale, bias, mean, var)
    dropped = Dropout(Relu(normed), Constant(Tensor.of(np.int64(7), i64)), ratio=0.25)
    scores = Gemm(dropped, parameter("w2", 7, CLASSES, dtype=dtype), parameter("b2", CLASSES, dtype=dtype))
    return make_graph((x,), {"scores": scores, "hidden": hidden})


class Program:
    """What a program of functions keeps between calls, run by the reference interpreter."""

    def __init__(self, graph: Graph, options: str, dtype: Any = f32) -> None:
        self.dtype = dtype.numpy
        self.functions = {name: step_of(graph, f"{options} give={name}") for name in ("gradients", "update", "step")}
        for function in self.functions.values():
            assert verify(function, "ops") == ()
        self.held = {n: v for f in ("gradients", "update") for n, v in initial_values(self.functions[f]).items()}
        self.stepped = initial_values(self.functions["step"])

    def call(self, name: str, held: dict[str, Array], feeds: dict[str, Array]) -> dict[str, Array]:
        """Run a function in place."""
        graph = self.functions[name]
        found = evaluate(graph, {i.name: {**held, **feeds}[i.name] for i in graph.inputs})
        held |= {n: v for n, v in found.items() if n in held or n.endswith(".gradient")}
        return found


def batch(k: int, dtype: Any = f32) -> dict[str, Array]:
    local = np.random.default_rng(k)
    return {"x": local.standard_normal((BATCH, 5)).astype(dtype.numpy), "y": local.integers(0, CLASSES, BATCH)}


@pytest.mark.parametrize(
    ("optimizer", "more"),
    [
        *((optimizer, "accumulate=2 clip=0.1") for optimizer in OPTIMIZERS),
        *((OPTIMIZERS[2], more) for more in ("", "clip=0.5", "accumulate=3", "stored-norms=yes")),
    ],
)
def test_gradients_and_then_update_are_a_step(optimizer: str, more: str) -> None:
    """Bit by bit: it is the same arithmetic."""
    program = Program(model(), f"optimizer={optimizer} {more}")
    every = int(more.partition("accumulate=")[2][:1] or 1)
    for k in range(every + 2):
        feeds = batch(k)
        got = program.call("gradients", program.held, feeds)
        if got["step"] % every == 0:
            program.call("update", program.held, feeds)
        want = program.call("step", program.stepped, feeds)
        assert got["loss"].tobytes() == want["loss"].tobytes(), k
        for name, value in program.stepped.items():
            if not name.endswith(".gradient"):
                assert program.held[name].tobytes() == value.tobytes(), (k, name)
    assert program.held["step"] == every + 2


def test_small_floats_are_summed_in_wide_ones() -> None:
    options = "loss=mse optimizer=adam{lr=0.01} accumulate=2"
    x = Input("x", Type(f16, (3,)))
    graph = make_graph((x,), {"p": Mul(x, parameter("w", 3, dtype=f16))})
    program = Program(graph, options, f16)
    assert {i.name: i.dtype for i in program.functions["update"].inputs}["w.gradient"] == f32
    for k in range(4):
        feeds = {"x": np.full(3, k + 0.5, np.float16), "y": np.ones(3, np.float16)}
        got = program.call("gradients", program.held, feeds)
        if got["step"] % 2 == 0:
            program.call("update", program.held, feeds)
        program.call("step", program.stepped, feeds)
    for name, value in program.stepped.items():
        if not name.endswith(".gradient"):
            assert program.held[name].tobytes() == value.tobytes(), name


def test_a_group_of_steps_begins_anew_whatever_lies_there() -> None:
    program = Program(model(), "accumulate=2")
    program.held |= {n: np.full_like(v, np.nan) for n, v in program.held.items() if n.endswith(".gradient")}
    program.call("gradients", program.held, batch(0))
    assert all(np.isfinite(v).all() for v in program.held.values())


def test_gradients_are_those_of_torch() -> None:
    net = NETS["conv"]
    module = module_of(net)
    graph = step_of(net.graph(module), "give=gradients")
    (x, y), *_ = net.batches(1)
    got = evaluate(graph, {**initial_values(graph), "x": x, "y": y})
    torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()  # pyright: ignore
    for name, value in module.named_parameters():
        assert value.grad is not None
        np.testing.assert_allclose(got[f"{name}.gradient"], value.grad.numpy(), rtol=1e-4, atol=1e-6, err_msg=name)
    assert got["step"] == 1


def test_predict_and_evaluate_are_inference() -> None:
    graph = model()
    feeds = batch(1)
    predict, assess = (step_of(graph, f"give={name}") for name in ("predict", "evaluate"))
    held = initial_values(predict)
    assert verify(predict, "ops") == verify(assess, "ops") == ()
    assert [(i.name, i.role) for i in predict.inputs[1:]] == [
        *((n, "weight") for n in ("w1", "b1", "bn.scale", "bn.bias", "w2", "b2")),
        *((n, "state") for n in ("bn.mean", "bn.var")),
    ]
    assert assess.inputs == (predict.inputs[0], assess.inputs[1], *predict.inputs[1:])
    assert assess.names == ("loss", *predict.names)
    got = evaluate(predict, {"x": feeds["x"], **held})
    module = torch.nn.Sequential(
        *(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(7, 4))
    ).eval()
    names = {"0.weight": "w1", "0.bias": "b1", "1.weight": "bn.scale", "1.bias": "bn.bias", "4.weight": "w2"}
    names |= {"4.bias": "b2", "1.running_mean": "bn.mean", "1.running_var": "bn.var"}
    state = {n: torch.from_numpy(held[o].T.copy()) for n, o in names.items()}  # pyright: ignore
    module.load_state_dict(state, strict=False)
    scores = module(torch.from_numpy(feeds["x"]))  # pyright: ignore
    np.testing.assert_allclose(got["scores"], scores.detach().numpy(), rtol=1e-4, atol=1e-5)
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(feeds["y"]))  # pyright: ignore
    text = evaluate(assess, {**feeds, **held})
    assert float(text["loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert all(text[name].tobytes() == value.tobytes() for name, value in got.items())


@pytest.mark.parametrize("give", ["step", "gradients"])
def test_all_ops_without_a_gradient_are_reported(give: str) -> None:
    x = Input("x", Type(f32, (2, 3)))
    first, beside = Opaque(Mul(x, parameter("w", 3))), Opaque(x)
    second = Opaque(Relu(Add(first, beside)))
    graph = replace(
        make_graph((x,), {"p": second}),
        origins={first.digest: ("first",), second.digest: ("second",), beside.digest: ("beside",)},
    )
    with pytest.raises(DlcError) as refused:
        step_of(graph, f"loss=mse give={give}")
    (text,) = refused.value.diagnostics
    assert text.message.startswith("opaque, 2 nodes: ")
    assert sorted(text.notes[0].removeprefix("nodes: ").split(", ")) == ["first", "second"]
    assert set(step_of(graph, "give=predict").names) == {"p"}
