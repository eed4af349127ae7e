"""Norms in training mode: values, gradients, running statistics and updates, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.emit import program_of

from dlc import DlcError
from dlc.base.types import Array
from dlc.graph import Graph, Op
from dlc.ops.elementwise import Add
from dlc.ops.linear import Conv, MatMul
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.selected import (
    Model,
    instructions,
    listing,
    masks,
    planned,
    program,
    select,
    training,
    unshared,
)
from tests.conftest import Golden

F: Any = torch.nn.functional
RATE, MOMENTUM, DECAY = 0.25, 0.5, 0.03125
SGD = f"sgd{{lr={RATE} momentum={MOMENTUM} weight-decay={DECAY}}}"
N, SIDE, CLASSES = 4, 6, 3


def network() -> tuple[Model, Graph]:
    """conv - norm - relu, a block around two of these, mean, linear. Every norm follows its batch."""
    m = Model()
    a = m.relu(m.norm(m.conv(m.x(N, 2, SIDE, SIDE), 4)))
    inside = m.norm(m.conv(m.relu(m.norm(m.conv(a, 4))), 4))
    a = m.pool(m.relu(m.add(inside, a)), 2)
    return m, m.graph(m.linear(m.flat(a), CLASSES))


class Torch(torch.nn.Module):
    """The same network in fp64."""

    def __init__(self, weights: dict[str, Array]) -> None:
        super().__init__()
        for name, value in weights.items():
            kept = torch.tensor(value.astype(np.float64))
            if name.endswith(("mean", "var")):
                self.register_buffer(name.replace(".", "_"), kept)
            else:
                self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(kept))

    def part(self, name: str) -> Any:
        return getattr(self, name.replace(".", "_"))

    def norm(self, x: Any, number: int) -> Any:
        """By the batch. dlc moves the variance as ONNX does: biased."""
        mean, var, scale, shift = (self.part(f"norm{number}.{k}") for k in ("mean", "var", "scale", "shift"))
        with torch.no_grad():
            mean += 0.1 * (x.mean((0, 2, 3)) - mean)
            var += 0.1 * (x.var((0, 2, 3), unbiased=False) - var)
        return F.batch_norm(x, None, None, scale, shift, True, 0.0, 1e-5)

    def forward(self, x: Any, masks: list[Any] | None = None) -> Any:
        def relu(y: Any) -> Any:
            return F.relu(y) if masks is None else y * masks.pop(0)

        def conv(y: Any, number: int) -> Any:
            return F.conv2d(y, self.part(f"conv{number}.w"), padding=1)

        a = relu(self.norm(conv(x, 1), 1))
        inside = self.norm(conv(relu(self.norm(conv(a, 2), 2)), 3), 3)
        a = F.max_pool2d(relu(inside + a), 2).flatten(1)
        return F.linear(a, self.part("linear1.w"), self.part("linear1.b"))


def step() -> tuple[Model, Graph]:
    m, graph = network()
    return m, select(training(graph, SGD, "stored-norms=no"))


def test_instructions(golden: Golden) -> None:
    golden("select_step_of_batch_norms.txt", listing(step()[1]))


def test_a_norm_by_the_batch_reads_its_value_from_memory() -> None:
    forward = [i for i in instructions(step()[1]) if "bn_train" in i.flags and i.stage == "forward"]
    assert [i.opcode for i in forward] == ["eltwise"] * 3
    assert [("relu" in i.flags, "add" in i.flags) for i in forward] == [(True, False), (True, False), (True, True)]


def test_scale_and_shift_are_updated_by_one_instruction() -> None:
    updates = [i for i in instructions(step()[1]) if i.opcode == "update" and i.writes[0][2] == (2, 4)]
    assert len(updates) == 3
    for update in updates:
        # Behind two rows of 4 fp16, out of a tensor [4, 4].
        assert update.writes[0][4] == 2 * 4 * 2 and update.results[0].shape == (4, 4)


def test_gradients_are_those_of_torch() -> None:
    """After one step the velocity is the gradient plus the decay: fp32, before any rounding of weights."""
    m, graph = step()
    machine = machine_of(unshared(program(graph)), checked=True)
    x, y = halves(1, N, 2, SIDE, SIDE), np.arange(N) % CLASSES
    loss = machine.run("step", {"x": x, "y": y})["loss"]
    module = Torch(m.weights)
    decided = [torch.tensor(mask.astype(np.float64)) for mask in masks(machine)]
    expected = F.cross_entropy(module(torch.tensor(x.astype(np.float64)), decided), torch.tensor(y))
    expected.backward()
    assert float(loss.item()) == pytest.approx(float(expected.detach()), rel=2e-3)
    for name, parameter in module.named_parameters():
        if "norm" in name:
            continue
        want = parameter.grad
        assert want is not None
        velocity = machine.read(f"{name[:-2]}.{name[-1]}.momentum")
        check(velocity, want + DECAY * parameter.detach(), name)
    for k in (1, 2, 3):
        rows = [module.part(f"norm{k}.{key}") for key in ("scale", "shift")]
        want = torch.stack([p.grad + DECAY * p.detach() for p in rows])
        check(machine.read(f"norm{k}.scale.momentum"), want, f"norm{k}")
        running = torch.stack([module.part(f"norm{k}.{key}") for key in ("mean", "var")])
        check(machine.read(f"norm{k}.mean"), running, f"running{k}")


def check(found: Array, want: Any, name: str) -> None:
    """Within a few roundings of fp16, of the tensor as a whole."""
    want = want.detach().numpy()
    error = np.linalg.norm(found.reshape(want.shape) - want) / np.linalg.norm(want)
    assert error < 5e-3, f"{name}: {error:.2e}"


def test_learning_goes_on() -> None:
    """Twenty steps on one batch bring its loss down."""
    _, graph = step()
    machine = machine_of(program(graph), checked=True)
    x, y = halves(1, N, 2, SIDE, SIDE), np.arange(N) % CLASSES
    losses = [float(machine.run("step", {"x": x, "y": y})["loss"].item()) for _ in range(20)]
    assert losses[-1] < 0.2 * losses[0]


def test_a_norm_that_two_layers_share_is_refused() -> None:
    m = Model()
    a = m.conv(m.x(1, 2, 4, 4), 2)
    b: Any = m.norm(a)
    again = m.note(type(b)(m.relu(b), *b.operands[1:]), "norm")
    graph = m.graph(m.linear(m.flat(again), 3))
    with pytest.raises(DlcError) as caught:
        select(training(graph, SGD, "stored-norms=no"))
    assert all(d.code == "not-placed" for d in caught.value.diagnostics)


def test_prediction_takes_the_running_statistics() -> None:
    """Three steps, then the model at inference: the entries of one program share weights and statistics."""
    m, graph = network()
    step, predict = (
        select(training(graph, SGD, f"stored-norms=no give={function}")) for function in ("step", "predict")
    )
    machine = machine_of(program_of({"step": planned(step), "predict": planned(predict)}), checked=True)
    x, y = halves(1, N, 2, SIDE, SIDE), np.arange(N) % CLASSES
    for _ in range(3):
        machine.run("step", {"x": x, "y": y})
    got = machine.run("predict", {"x": x})["scores"]
    flags = [i.flags for i in instructions(predict) if "bn1" in [r[0] for r in i.reads]]
    assert [f[-1] for f in flags] == ["bn_forward"] * 2 + ["pool_2"]
    module = Torch({k: machine.read(k) for k in m.weights if "norm" not in k and k != "linear1.b"})

    def rows(name: str) -> Array:
        """Of the tensor [4, C] of that name: others are its rows."""
        found = [n for n, t in enumerate(machine.program.tensors) if t.name == name and t.shape[0] == 4]
        return machine.read(found[0]).astype(np.float64)

    def norm(v: Any, k: int) -> Any:
        held, running = rows(f"norm{k}.scale"), machine.read(f"norm{k}.mean").astype(np.float64)
        parts = [torch.tensor(row) for row in (running[0], running[1], held[2], held[3])]
        assert np.abs(running[0] - m.weights[f"norm{k}.mean"]).max() > 1e-3
        return F.batch_norm(v, *parts, False, 0.0, 1e-5)

    with torch.no_grad():
        a = F.relu(norm(F.conv2d(torch.tensor(x.astype(np.float64)), module.part("conv1.w"), padding=1), 1))
        b = F.relu(norm(F.conv2d(a, module.part("conv2.w"), padding=1), 2))
        a = F.relu(norm(F.conv2d(b, module.part("conv3.w"), padding=1), 3) + a)
        want = F.linear(F.max_pool2d(a, 2).flatten(1), module.part("linear1.w"), torch.tensor(rows("linear1.b")[3]))
    check(got, want, "scores")


# ---- parameters that only some layers have, or train ----
def by_batch(x: Any, p: dict[str, Any]) -> Any:
    return F.batch_norm(x, None, None, p["norm1.scale"], p["norm1.shift"], True, 0.0, 1e-5)


def of_vectors(m: Model) -> Op:
    return m.linear(m.norm(m.linear(m.x(8, 5), 6, False)), 3)


def of_data(m: Model) -> Op:
    return m.linear(m.flat(m.norm(m.x(8, 2, 4, 4))), 3)


def with_addends(m: Model) -> Op:
    """The biases of a convolution and of a matrix product as sums, as some exporters write them."""
    a = Conv(m.x(8, 2, 4, 4), m.weight("w", 3, 2, 3, 3))
    h = m.flat(Add(m.weight("b", 3, 1, 1), a))
    return Add(MatMul(h, m.weight("v", 12, 3)), m.weight("c", 1, 3))


Case = tuple[Callable[[Model], Op], str, Callable[[Any, dict[str, Any]], Any]]
CASES: dict[str, Case] = {
    "vectors": (
        of_vectors,
        "stored-norms=no",
        lambda x, p: F.linear(by_batch(F.linear(x, p["linear1.w"]), p), p["linear2.w"], p["linear2.b"]),
    ),
    "data, shift as it is": (
        of_data,
        "wrt=!norm1.shift stored-norms=no",
        lambda x, p: F.linear(by_batch(x, p).flatten(1), p["linear1.w"], p["linear1.b"]),
    ),
    "data, scale as it is": (
        of_data,
        "wrt=!norm1.scale stored-norms=no",
        lambda x, p: F.linear(by_batch(x, p).flatten(1), p["linear1.w"], p["linear1.b"]),
    ),
    "addends": (
        with_addends,
        "wrt=weights",
        lambda x, p: (F.conv2d(x, p["w"]) + p["b"]).flatten(1) @ p["v"] + p["c"],
    ),
    "addends trained": (
        with_addends,
        "wrt=w,b,v,c",
        lambda x, p: (F.conv2d(x, p["w"]) + p["b"]).flatten(1) @ p["v"] + p["c"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_parameters(name: str) -> None:
    """All that have a velocity, after one step."""
    build, trained, reference = CASES[name]
    m = Model()
    graph = select(training(m.graph(build(m)), "sgd{lr=0.25 momentum=0.5}", trained))
    machine = machine_of(unshared(program(graph)), checked=True)
    (given,) = m.inputs
    x, y = halves(1, *given.shape), np.arange(given.shape[0]) % 3
    machine.run("step", {"x": x, "y": y})
    p = {k: torch.tensor(v.astype(np.float64), requires_grad=True) for k, v in m.weights.items()}
    F.cross_entropy(reference(torch.tensor(x.astype(np.float64)), p), torch.tensor(y)).backward()
    names = [t.name for t in machine.program.tensors if t.name.endswith(".momentum")]
    assert names
    for name in names:
        weight, found = name.removesuffix(".momentum"), machine.read(name)
        want = p[weight].grad
        assert want is not None
        if found.size == 2 * want.numel():
            shift = p[weight.replace("scale", "shift")].grad
            assert shift is not None
            want = torch.stack([want, shift])
        if weight == "v":
            found = found.T  # the device holds it transposed
        check(found, want, weight)
