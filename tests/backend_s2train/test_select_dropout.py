"""Dropout of a training step: the same bits as dlc's own, kept for the backward stage; random over runs and layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Array

from dlc import DlcError
from dlc.base.types import Type, i64
from dlc.graph import Constant, Graph, Input, Op, Tensor, evaluate, evaluate_ops
from dlc.ops.linear import Gemm
from dlc.ops.random import Dropout, DropoutMask
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.selected import (
    Model,
    backward,
    fed,
    instructions,
    program,
    select,
    simulated,
    training,
    unshared,
)

RUNS = 40


def seed(value: int) -> Op:
    return Constant(Tensor.of(np.asarray(value, np.int64)))


def classifier(ratio: float = 0.5, streams: tuple[int, int] = (0, 1)) -> tuple[Model, Graph]:
    """Two hidden layers with dropout behind their relu."""
    m = Model()
    x: Op = m.x(8, 16)
    for stream in streams:
        x = m.note(Dropout(m.relu(m.linear(x, 32)), seed(11), None, ratio, stream), "dropout")
    return m, m.graph(m.linear(x, 4))


def test_linear_layers_absorb_it_both_ways() -> None:
    _, graph = classifier()
    found = [(i.opcode, i.stage, i.flags) for i in instructions(select(training(graph))) if "dropout" in i.flags]
    forward = ("linear", "forward", ("relu", "mask_write", "bn_forward", "dropout"))
    assert found == [forward, forward, *[("linear", "backward", ("mask_read", "dropout"))] * 2]


def test_a_step_without_dropout_keeps_nothing() -> None:
    """A ratio of 0 is a view."""
    _, graph = classifier(0.0)
    assert not [i for i in instructions(select(training(graph))) if "dropout" in i.flags]


def test_a_pool_stands_between_it_and_the_mask_only_forward() -> None:
    """relu - pool - dropout is one instruction; backward the pool comes first in the unit, so dropout is alone."""
    m = Model()
    x = m.pool(m.relu(m.conv(m.x(2, 2, 8, 8), 4)), 2)
    graph = backward(m.graph(m.conv(Dropout(x, seed(3), None, 0.5), 2)))
    found = [(i.opcode, i.stage, i.flags) for i in instructions(select(graph))]
    assert ("conv", "forward", ("relu", "mask_write", "pool_2", "pointer_write", "dropout")) in found
    assert ("conv", "backward", ("dropout",)) in found
    assert ("eltwise", "backward", ("mask_read", "pool_2", "pointer_read")) in found


def test_values_and_gradients_are_those_of_the_interpreter() -> None:
    """Of the first run: halves of small integers are exact in fp16."""
    m = Model()
    w = m.constant("w", np.random.default_rng(0).integers(-1, 2, (8, 6)))
    x = m.x(4, 6)
    hidden = m.relu(Gemm(x, w, trans_b=True))
    graph = backward(m.graph(Dropout(hidden, seed(5), None, 0.5)))
    values = fed(graph, {"x": np.random.default_rng(1).integers(-2, 3, (4, 6)).astype(np.float32)})
    expected = evaluate(graph, values)
    got = simulated(select(graph), {i.name: values[i.name] for i in graph.inputs if i.role == "data"})
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name].reshape(value.shape), value, err_msg=name)
    before = simulated(select(m.graph(hidden)), {"x": values["x"]})["scores"]
    assert (expected["scores"] == 0).sum() > (before == 0).sum()


def bits(machine: Machine) -> list[Array]:
    """What each layer kept in the last run."""
    kept = [i.operands["aux"] for i in machine.program.instructions if i.stage == 0 and i.flags & i.flags.DROPOUT]
    return [machine.read(n) for n in kept]


def runs(streams: tuple[int, int]) -> list[list[Array]]:
    _, graph = classifier(0.25, streams)
    machine = machine_of(unshared(program(select(training(graph)))), checked=True)
    rng = np.random.default_rng(0)
    found: list[list[Array]] = []
    for _ in range(RUNS):
        x = rng.standard_normal((8, 16)).astype(np.float32)
        machine.run("step", {"x": x, "y": np.zeros(8, np.int64)})
        found.append(bits(machine))
    return found


def test_stream_0_draws_the_bits_of_dlc() -> None:
    """Run after run: the number of the run is that of dlc's step."""
    for number, (first, _) in enumerate(runs((0, 1))[:5]):
        step = Input("step", Type(i64, ()), "state", 0)
        mask = DropoutMask(seed(11), (8, 32), step, 0.25, 0)
        (expected,) = evaluate_ops((mask,), {step: np.asarray(number)})
        np.testing.assert_array_equal(first.reshape(8, 32) > 0, expected)


def test_other_streams_are_as_random() -> None:
    """The parts kept of all elements, and of those that the other layer or the run before kept: all 3/4."""
    found = np.array([[layer > 0 for layer in run] for run in runs((3, 7))]).reshape(RUNS, 2, -1)
    one, other, before = found[1:, 0], found[1:, 1], found[:-1, 0]
    for kept in (one, other, one[other], one[before]):
        # Five standard deviations of a mean of so many coins.
        assert abs(kept.mean() - 0.75) < 5 * math.sqrt(0.25 * 0.75 / kept.size)


def test_a_seed_that_is_computed_is_refused() -> None:
    m = Model()
    graph = m.graph(Dropout(m.x(2, 3), Input("seed", Type(i64, ())), None, 0.5))
    with pytest.raises(DlcError, match="seed is computed"):
        select(graph)
