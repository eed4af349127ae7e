"""Tensors that are in and out: whatever is computed from them, they are read before they are written."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlc import Report
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, evaluate, verify
from dlc.ops.elementwise import Add, Neg
from dlc.ops.linear import MatMul
from dlc.ops.shape import Reshape, Transpose
from dlc.passes.expand import Expand
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from tests.passes.arena import check_plan, execute

TYPE = Type(f32, (3, 3))
NAMES = ("A", "B", "C")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A few ops on three tensors; outputs may be written over inputs, also over ones that they do not depend on."""
    inputs = tuple(Input(name, TYPE) for name in NAMES)
    values: list[Op] = [*inputs]
    one = st.integers(0, 30)
    for _ in range(draw(st.integers(1, 7))):
        x, y = values[draw(one) % len(values)], values[draw(one) % len(values)]
        made = (
            Neg(x),
            Add(x, y),
            Transpose(x, (1, 0)),
            MatMul(x, y),
            Add(x, Transpose(y, (1, 0))),
            Reshape(Neg(Reshape(x, (9,))), (3, 3)),
            Reshape(MatMul(Reshape(x, (1, 3, 3)), Reshape(y, (1, 3, 3))), (3, 3)),
        )
        values.append(made[draw(st.integers(0, len(made) - 1))])
    targets = draw(st.permutations([*NAMES, "D", "E"]))[: draw(st.integers(1, 4))]
    outputs = {name: values[-1 - draw(one) % min(5, len(values))] for name in targets}
    pairs = tuple((k, NAMES.index(name)) for k, name in enumerate(outputs) if name in NAMES)
    return Graph(inputs, tuple(outputs.values()), tuple(outputs), pairs)


def planned(graph: Graph, *, fused: bool) -> Plan:
    report = Report()
    lowered = Lower().run(Expand().run(graph, report), report)
    return PlanMemory().run(Order().run(Fuse().run(lowered, report) if fused else lowered, report), report)


@given(graphs(), st.booleans())
def test_in_and_out_tensors_are_read_before_they_are_written(graph: Graph, fused: bool) -> None:
    rng = np.random.default_rng(1)
    feeds = {name: rng.integers(-3, 4, (3, 3)).astype(np.float32) for name in NAMES}
    plan = planned(graph, fused=fused)
    assert plan.graph.aliases == graph.aliases and plan.signature.aliases == graph.aliases
    check_plan(plan)
    assert parse_plan(plan.graph, plan_text(plan)) == plan
    want = evaluate(graph, feeds)
    for seed in (0, 1):
        found = execute(plan, feeds, seed)
        for name, array in want.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_tensor_is_at_most_one_output() -> None:
    a, b = Input("A", TYPE), Input("B", TYPE)
    text = verify(Graph((a, b), (Neg(a), Neg(b)), ("x", "y"), ((0, 0), (1, 0))))
    assert [d.message for d in text] == ["input 0 is aliased more than once"]
    text = verify(Graph((a, b), (Neg(a),), ("x",), ((0, 0), (0, 1))))
    assert [d.message for d in text] == ["output 0 is aliased more than once"]
