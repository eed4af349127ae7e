"""What selected instructions compute: exactly what the graph of ops computes, where fp16 holds every number.

Data, weights and gradients are small integers, norms scale by powers of two: sums of fp16 are exact then, in any order,
and so are all decisions of relu and pool. dlc's interpreter evaluates the same graph in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dlc.base.types import Array
from dlc.graph import Constant, Graph, Op, evaluate
from dlc.ops.elementwise import Add, Div, Mul, Sub
from dlc.ops.normalize import BatchNorm
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Reshape
from tests.backend_s2train.selected import Model, backward, fed, instructions, select, simulated

EXACT = 2048.0
"""fp16 holds every integer up to this."""


class Whole(Model):
    """A model of small integers."""

    def weight(self, name: str, *shape: int, scale: float = 0.5) -> Constant:
        """About two taps of each output are 1 or -1."""
        rng = np.random.default_rng([self.seed, len(self.weights)])
        inner = int(np.prod(shape[1:]))
        chosen = rng.random(shape) < 2.5 / max(inner, 2)
        return self.constant(name, np.where(chosen, rng.choice([-1.0, 1.0], shape), 0.0))

    def norm(self, x: Op) -> Op:
        """Mean and shift are integers, 1/std and scale powers of two."""
        name, c = self.name("norm"), x.shape[1]
        rng = np.random.default_rng([self.seed, 7, len(self.weights)])
        values = (
            rng.choice([1.0, 2.0, -1.0], c),
            rng.integers(-2, 3, c),
            rng.integers(-2, 3, c),
            rng.choice([0.25, 1], c),
        )
        named = zip(("scale", "shift", "mean", "var"), values, strict=True)
        scale, shift, mean, var = [self.constant(f"{name}.{key}", value) for key, value in named]
        return self.note(BatchNorm(x, scale, shift, mean, var, epsilon=0.0), "norm")


@dataclass
class Drawn:
    """A network drawn by hypothesis: maps in reach, from which the next layer takes one or two."""

    draw: Any
    model: Whole
    maps: list[Op] = field(default_factory=list[Op])

    def step(self) -> None:
        m, x = self.model, self.draw(st.sampled_from(self.maps))
        alike = [y for y in self.maps if y.shape == x.shape]
        kinds = ["conv", "relu", "norm", "add", "overlapping", *(["pool"] if not x.shape[2] % 2 else [])]
        match self.draw(st.sampled_from(kinds)):
            case "conv":
                kernel, stride = self.draw(st.sampled_from([(1, 1), (3, 1), (3, 2), (1, 2)]))
                y = m.conv(x, self.draw(st.sampled_from([2, 3])), kernel, stride, self.draw(st.booleans()))
            case "relu":
                y = m.relu(x)
            case "norm":
                y = m.norm(x)
            case "add":
                y = m.add(x, self.draw(st.sampled_from(alike)))
            case "overlapping":
                y = MaxPool(x, (3, 3), (2, 2), (1, 1, 1, 1))
            case _:
                y = m.pool(x, 4 if not x.shape[2] % 4 and self.draw(st.booleans()) else 2)
        self.maps.append(y)


class Case:
    """A graph and its data, shown as the ops it has."""

    def __init__(self, graph: Graph, data: dict[str, Array]) -> None:
        self.graph, self.data = graph, data

    def __repr__(self) -> str:
        number = {op: k for k, op in enumerate(self.graph.ops)}
        lines = [
            f"%{k} = {op.text_name}({', '.join(f'%{number[x]}' for x in op.operands)}): {op.type}"
            for op, k in number.items()
        ]
        return "\n".join([*lines, f"return {[number[o] for o in self.graph.outputs]}"])


@st.composite
def networks(draw: Any) -> Case:
    """A network whose last maps go into a linear layer or out, and data."""
    m = Whole(seed=draw(st.integers(0, 1000)))
    side = draw(st.sampled_from([4, 8]))
    drawn = Drawn(draw, m)
    drawn.maps.append(m.x(draw(st.integers(1, 2)), 2, side, side))
    for _ in range(draw(st.integers(1, 7))):
        drawn.step()
    last = drawn.maps[-1]
    if draw(st.booleans()):
        last = m.linear(m.flat(last), 3, draw(st.booleans()))
    outputs = list(dict.fromkeys([last, *draw(st.lists(st.sampled_from(drawn.maps[1:]), max_size=2))]))
    rng = np.random.default_rng(m.seed)
    data = {i.name: rng.integers(-2, 3, i.shape).astype(np.float32) for i in m.inputs}
    return Case(m.graph(*outputs, names=[f"y{k}" for k in range(len(outputs))]), data)


def assert_equal(graph: Graph, values: dict[str, Array]) -> None:
    """The simulated program of a graph gives what the interpreter gives."""
    expected = evaluate(graph, values)
    largest = max((float(np.abs(v).max()) for v in expected.values() if v.size), default=0.0)
    assume(largest <= EXACT / 4)
    given = {i.name: values[i.name] for i in graph.inputs if i.role == "data"}
    got = simulated(select(graph), given)
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name].reshape(value.shape), value, err_msg=name)


@given(networks())
@settings(max_examples=60)
def test_forward_is_what_the_interpreter_computes(case: Case) -> None:
    assert_equal(case.graph, fed(case.graph, case.data))


@given(networks())
@settings(max_examples=60)
def test_gradients_are_what_the_interpreter_computes(case: Case) -> None:
    both = backward(case.graph)
    assert_equal(both, fed(both, case.data, 3))


@given(networks())
@settings(max_examples=30)
def test_what_is_absorbed_changes_no_value(case: Case) -> None:
    """Without fusion there are as many instructions as ops, and exactly the same values."""
    both = backward(case.graph)
    values = fed(both, case.data, 3)
    given = {i.name: values[i.name] for i in both.inputs if i.role == "data"}
    fused, alone = select(both), select(both, fuse=False)
    assert len(instructions(fused)) <= len(instructions(alone))
    one, other = simulated(fused, given), simulated(alone, given)
    largest = max((float(np.abs(v).max()) for v in other.values() if v.size), default=0.0)
    assume(largest <= EXACT / 4)
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


AFFINE: dict[str, Callable[[Whole, Op], Op]] = {
    "factor": lambda m, x: Mul(x, m.constant("c", 2.0)),
    "of channels": lambda m, x: Mul(m.constant("c", [[[2.0]], [[-1.0]], [[0.5]]]), x),
    "quotient": lambda m, x: Div(x, m.constant("c", 4.0)),
    "sum": lambda m, x: Add(x, m.constant("c", [[[1.0]], [[-2.0]], [[3.0]]])),
    "difference": lambda m, x: Sub(x, m.constant("c", 3.0)),
    "from a constant": lambda m, x: Sub(m.constant("c", 3.0), x),
    "all of them": lambda m, x: Add(Mul(Sub(m.constant("c", 1.0), x), m.constant("d", 2.0)), m.constant("e", 1.0)),
}


@pytest.mark.parametrize("name", AFFINE)
@pytest.mark.parametrize("before", ["conv", "bias", "norm", "relu"])
def test_constant_factors_and_addends(name: str, before: str) -> None:
    """They are part of a norm, or one of their own; the interpreter multiplies and adds."""
    m = Whole()
    x = m.conv(m.x(2, 2, 4, 4), 3, bias=before == "bias")
    x = {"norm": m.norm, "relu": m.relu}.get(before, lambda x: x)(x)
    graph = m.graph(m.relu(AFFINE[name](m, x)))
    data = {"x": np.random.default_rng(0).integers(-2, 3, (2, 2, 4, 4)).astype(np.float32)}
    got = simulated(select(graph), data)["scores"]
    np.testing.assert_array_equal(got, evaluate(graph, data)["scores"])
    assert len(instructions(select(graph))) == (2 if before == "relu" else 1)


def test_a_factor_of_other_channels_is_no_part_of_the_norm_before() -> None:
    """Behind a view that has the same elements as other channels."""
    m = Whole()
    y = Reshape(m.linear(m.x(2, 4), 12), to=(2, 3, 2, 2))
    graph = m.graph(Mul(y, m.constant("c", [[[2.0]], [[-1.0]], [[0.5]]])))
    data = {"x": np.random.default_rng(0).integers(-2, 3, (2, 4)).astype(np.float32)}
    got = simulated(select(graph), data)["scores"]
    np.testing.assert_array_equal(got, evaluate(graph, data)["scores"])


def test_most_ops_share_an_instruction() -> None:
    """The networks above are no row of single ops: a fixed one has half as many instructions as ops."""
    m = Whole()
    x = m.relu(m.norm(m.conv(m.x(1, 2, 8, 8), 3)))
    y = m.pool(m.relu(m.add(m.norm(m.conv(x, 3)), x)), 2)
    graph = m.graph(y)
    assert len(instructions(select(graph))) == 2
