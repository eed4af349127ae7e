"""Gradients of weights that are applied while they are computed: the update by a stored gradient, less one rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.cost.estimate import estimate, traffic
from dlc_backend_s2train.cost.operand_traffic import touched
from dlc_backend_s2train.frames.stream import stream
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper, Program
from dlc_backend_s2train.select.s2_select import S2Select
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode, Results
from dlc_backend_s2train.v1.legalize import to_v1

from dlc.base.types import Array
from dlc.graph import Graph
from dlc.ops.elementwise import Add
from dlc.spec import Spec
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.networks import S2_NETWORKS
from tests.backend_s2train.numerics_cases import GEOMETRIES, convolution, do, halves, same_bits
from tests.backend_s2train.programs import Hand
from tests.backend_s2train.selected import Model, instructions, program, select, training
from tests.backend_s2train.torch_steps import SGD, step_of

F: Any = torch.nn.functional
MODES: tuple[Mode, ...] = ("fast", "bit-true")
PRUNED = Hyper(0.25, 0.5, scale=8.0, threshold=4.0, seed=7)


# ---- arithmetic ----
def updated(w: Array, h: Hyper, master: bool) -> Results:
    """What an update reads and writes besides its gradient."""
    found: Results = {"dst0": w}
    if master:
        found["dst1"] = halves(8, *w.shape)
    if h.momentum:
        found["aux"] = halves(9, *w.shape)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(
    ("h", "master", "flags"),
    [
        (Hyper(0.25, scale=4.0), False, Flag(0)),
        (Hyper(0.25, 0.5, 0.125, 4.0, nesterov=True), True, Flag(0)),
        (PRUNED, False, Flag.PRUNE),
    ],
    ids=["plain", "nesterov decay master", "prune"],
)
def test_it_is_gradient_then_update_in_fp32(mode: Mode, name: str, h: Hyper, master: bool, flags: Flag) -> None:
    g = GEOMETRIES[name]
    x, w, dy = convolution(g)
    opcode = Opcode.LINEAR if name == "linear" else Opcode.CONV
    given: Any = updated(w, h, master)
    dw = do(opcode, Stage.WEIGHT_GRADIENT, flags, g, h, mode=mode, run=3, src0=dy, src1=x)["dst0"]
    apart = do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=h, src0=dw, **given)
    fused = do(opcode, Stage.WEIGHT_UPDATE, flags, g, h, mode=mode, run=3, src0=dy, src1=x, **given)
    assert fused.keys() == apart.keys() == given.keys()
    assert all(same_bits(fused[slot], apart[slot]) for slot in given)


@pytest.mark.parametrize("mode", MODES)
def test_biases_are_updated_by_their_sums(mode: Mode) -> None:
    g = GEOMETRIES["3x3"]
    _, _, dy = convolution(g)
    b, h = halves(5, g.co), Hyper(0.5, scale=2.0)
    found = do(Opcode.CONV, Stage.WEIGHT_UPDATE, geometry=g, hyper=h, mode=mode, src0=dy, dst0=b)["dst0"]
    np.testing.assert_allclose(found, b - 0.25 * dy.astype(np.float64).sum(axis=(0, 2, 3)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_steps_are_those_of_torch(momentum: float, decay: float, nesterov: bool) -> None:
    """Autograd and SGD in fp64; nothing is stored in fp16."""
    g, scale = GEOMETRIES["stride-2"], 16.0
    h = Hyper(0.125, momentum, decay, scale, nesterov=nesterov)
    x, w, _ = convolution(g)
    p = torch.nn.Parameter(torch.tensor(w.astype(np.float64)))
    optimizer: Any = torch.optim.SGD([p], lr=0.125, momentum=momentum, weight_decay=decay, nesterov=nesterov)
    state: Any = {"aux": np.zeros_like(w)} if momentum else {}
    for step in range(4):
        _, _, dy = convolution(g, step + 1)
        optimizer.zero_grad()
        y = F.conv2d(torch.tensor(x.astype(np.float64)), p, stride=g.stride, padding=1)
        y.backward(torch.tensor(dy.astype(np.float64)) / scale)
        optimizer.step()
        found = do(Opcode.CONV, Stage.WEIGHT_UPDATE, geometry=g, hyper=h, src0=dy, src1=x, dst0=w, **state)
        w, state = found["dst0"], {"aux": found["aux"]} if momentum else {}
        np.testing.assert_allclose(w, p.detach().numpy(), rtol=1e-5, atol=1e-5)


# ---- programs ----
def classifier(batch: int = 4) -> Graph:
    m = Model()
    x = m.relu(m.conv(m.x(batch, 2, 8, 8), 4, kernel=5, bias=True))
    return m.graph(m.linear(m.flat(m.relu(m.conv(x, 4, stride=2))), 3))


def run(update: str, mode: Mode = "fast", steps: int = 1, **options: Any) -> Machine:
    """A machine after some steps; 5 x 5 stays whole, which the simulator executes as well."""
    machine = machine_of(program(select(training(classifier()), update=update, **options)), mode, checked=True)
    for step in range(steps):
        machine.run("step", {"x": halves(step, 4, 2, 8, 8), "y": np.arange(4) % 3})
    return machine


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("master", [False, True])
def test_a_stored_gradient_is_rounded_and_an_applied_one_is_not(mode: Mode, master: bool) -> None:
    """Velocities begin with 0, so that after one step they are the gradients, in fp32."""
    fused, apart = (run(update, mode, master=master) for update in ("fused", "apart"))
    names = [t.name for t in fused.program.tensors if t.role is Role.STATE and t.name.endswith("momentum")]
    assert len(names) == 5
    rounded = 0
    for name in names:
        one, other = fused.read(name) * 1024, apart.read(name) * 1024
        assert same_bits(one.astype(np.float16).astype(np.float32), other)
        rounded += int((one != other).sum())
    assert rounded > 100


def test_nothing_is_a_gradient_of_a_weight_any_more() -> None:
    found = program(select(training(classifier())))
    assert not any(t.role is Role.WEIGHT_GRADIENT for t in found.tensors)
    assert {i.opcode for i in found.instructions if i.updates} == {Opcode.CONV, Opcode.LINEAR}


def test_what_is_wanted_elsewhere_is_stored() -> None:
    """A weight of two layers, whose gradients add up; a norm's scale and shift; and where fusion is off."""
    m = Model()
    x = m.x(2, 6)
    first = m.linear(x, 6, bias=False)
    shared = first.with_operands([first, *first.operands[1:]])
    twice = training(m.graph(m.linear(m.note(Add(first, shared), "add"), 3, bias=False)))
    kinds = [(i.opcode, i.stage) for i in instructions(select(twice))]
    assert kinds.count(("update", "weight_update")) == 1
    assert kinds.count(("linear", "weight_gradient")) == 2
    assert kinds.count(("linear", "weight_update")) == 1
    m = Model()
    by_batch = training(m.graph(m.linear(m.flat(m.norm(m.conv(m.x(2, 2, 4, 4), 3))), 3)), more="stored-norms=no")
    assert [i.writes[0][2] for i in instructions(select(by_batch)) if i.opcode == "update"] == [(2, 3)]
    off: list[Any] = [{"update": "apart"}, {"fuse": False}]
    for options in off:
        found = instructions(select(training(classifier()), **options))
        assert {i.opcode for i in found if i.stage == "weight_update"} == {"update"}


def test_the_option_is_read_from_text() -> None:
    assert S2Select.from_spec(Spec.parse("s2-select{update=apart}", "test")).update == "apart"


def test_a_weight_that_moved_too_early_is_reported() -> None:
    """The last layer's update and the gradient of its data, which reads the weight, change places."""
    made = step_of(S2_NETWORKS["blocks"], SGD)
    steps = list(made.instructions)
    ((reader, weight),) = (
        (n, i.operands["src1"]) for n, i in enumerate(steps) if (i.opcode, i.stage) == (Opcode.LINEAR, Stage.BACKWARD)
    )
    writer = next(n for n, i in enumerate(steps) if i.updates and i.operands["dst0"] == weight)
    assert reader < writer
    steps[reader], steps[writer] = steps[writer], steps[reader]
    found = [p.message for p in verify(replace(made, instructions=tuple(steps))) if p.code == "stale-weight"]
    assert any(f"is read after instruction {reader} updated it" in message for message in found)


def pair(opcode: Opcode = Opcode.CONV, g: Geometry = GEOMETRIES["3x3"], bias: bool = False) -> Program:
    """The gradient of a weight and its update; and both at once, of another weight."""
    hand, h = Hand(), Hyper(0.5, 0.5)
    dy = hand.tensor("dy", (g.n, g.co, g.ho, g.wo), Role.INPUT)
    x = hand.tensor("x", (g.n, g.ci, g.hi, g.wi), Role.INPUT)
    shape = (g.co,) if bias else (g.co, g.ci // g.groups, g.kh, g.kw)
    dw = hand.tensor("dw", shape, Role.WEIGHT_GRADIENT)
    (w, v), (w2, v2) = (
        (hand.tensor(f"w{k}", shape, Role.WEIGHT), hand.tensor(f"v{k}", shape, Role.STATE, Element.FP32))
        for k in range(2)
    )
    read: Any = {"src0": dy} if bias else {"src0": dy, "src1": x}
    hand.do(opcode, Stage.WEIGHT_GRADIENT, geometry=g, **read, dst0=dw)
    hand.do(Opcode.UPDATE, Stage.WEIGHT_UPDATE, hyper=h, src0=dw, dst0=w, aux=v)
    hand.do(opcode, Stage.WEIGHT_UPDATE, geometry=g, hyper=h, **read, dst0=w2, aux=v2)
    hand.entry("step", [("dy", dy), ("x", x)])
    return hand.program(model="pair")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["3x3", "grouped", "linear"])
def test_the_array_does_what_it_does_for_a_gradient(name: str, bias: bool) -> None:
    """The same frames, products and cycles of the array; what moves is less by the gradient, written and read."""
    made = pair(Opcode.LINEAR if name == "linear" else Opcode.CONV, GEOMETRIES[name], bias)
    assert list(verify(made)) == []
    gradient, update, fused = made.instructions[:3]
    values = {n: halves(n, *t.shape) for n, t in enumerate(made.tensors)}
    assert stream(made, 2, values.__getitem__) == stream(made, 0, values.__getitem__) != b""
    first, _, both = estimate(made, None, 0, 3)
    assert (both.work, both.times.compute) == (first.work, first.times.compute)
    one, other = traffic(made, gradient), traffic(made, fused)
    assert (one.frames, one.spill, one.policy) == (other.frames, other.spill, other.policy)
    dw = made.tensors[update.operands["src0"]].nbytes
    assert touched(made, fused).bytes == touched(made, gradient).bytes + touched(made, update).bytes - 2 * dw


def test_no_word_of_version_1_says_it() -> None:
    assert to_v1(pair()).reasons[2] == "no word says a gradient that is applied at once"
