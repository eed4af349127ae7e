"""Values whose offsets are given: they are there, others are around them, and what cannot be is an error in words."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import Report
from dlc.api.plan import Plan, results_of
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.extents import symbol
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, make_graph
from dlc.ops.elementwise import Exp, Neg
from dlc.ops.linear import MatMul
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.verify.plan_check import check_plan
from dlc.verify.plan_run import run_plan
from tests.placement.aliased_graphs import drawn_graph

SQUARE = Type(f32, (8, 8))
BYTES = SQUARE.nbytes


def named(graph: Graph) -> Plan:
    """The plan in order; every step came from a node of its number."""
    plan = Order().run(Lower().run(graph, Report()), Report())
    origins = {step.digest: (f"node{k}",) for k, step in enumerate(plan.steps)}
    return replace(plan, graph=replace(plan.graph, origins=origins))


def chain(count: int = 5) -> Plan:
    x = Input("x", SQUARE)
    values: list[Op] = [MatMul(x, x)]
    for _ in range(count - 1):
        values.append(MatMul(values[-1], values[-1]))
    return named(make_graph((x,), {"y": values[-1]}))


def at(plan: Plan, name: str) -> int:
    return next(plan.slots[results_of(s)[0].digest].offset for s in plan.steps if name in plan.graph.origin(s))


@pytest.mark.parametrize("strategy", ["none", "greedy", "best-fit", "search", "auto"])
def test_values_are_where_they_are_wanted(strategy: str) -> None:
    stage = PlanMemory(strategy=strategy, fixed=(("node1", 4 * BYTES), ("node2", BYTES)))  # type: ignore[arg-type]
    plan = stage.run(chain(), Report())
    assert (at(plan, "node1"), at(plan, "node2")) == (4 * BYTES, BYTES)
    assert check_plan(plan) == []
    assert plan.facts["fixed node1"] == 4 * BYTES and plan.memory >= 5 * BYTES


def test_the_check_of_plans_sees_another_offset() -> None:
    plan = PlanMemory(fixed=(("node1", 4 * BYTES),)).run(chain(), Report())
    (value,) = (s for s in plan.steps if "node1" in plan.graph.origin(s))
    slots = {**plan.slots, value.digest: replace(plan.slots[value.digest], offset=3 * BYTES)}
    assert check_plan(replace(plan, slots=slots)) == ["node1 is at 768, not at the fixed one, 1024"]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_random_graphs(seed: int) -> None:
    """Every offset is as given or refused in words; values are those of a plan without reuse."""
    draw = Random(seed)
    plan = named(drawn_graph(seed))
    names = draw.sample(range(len(plan.steps)), min(len(plan.steps), draw.randint(1, 4)))
    fixed = tuple((f"node{k}", 64 * draw.randrange(12)) for k in names)
    try:
        found = PlanMemory(fixed=fixed).run(plan, Report())
    except DlcError as problem:
        assert problem.diagnostics[0].code == "fixed-offset"
        return
    assert check_plan(found) == []
    assert all(at(found, name) == offset for name, offset in fixed)
    rng = np.random.default_rng(seed)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in plan.graph.inputs}
    wanted = run_plan(PlanMemory(strategy="none", in_place=False).run(plan, Report()), feeds)
    for name, value in run_plan(found, feeds).items():
        np.testing.assert_array_equal(value, wanted[name])


@pytest.mark.parametrize(
    ("fixed", "said"),
    [
        ("nod1:0", "the program has no value nod1"),
        ("node1:8", "node1: 8 is no multiple of 64"),
        ("x:0", "x is an input of the program"),
        ("y:0", "y is an output of the program"),
        ("node4:0", "node4 is an output of the program"),
        ("node1:0,node2:192", "node1 and node2 share the bytes [192, 256), and step 2 needs both"),
        ("node1:0,node1:256", "node1 at 0 and node1 at 256 have one place"),
    ],
)
def test_what_cannot_be(fixed: str, said: str) -> None:
    pairs = tuple((name, int(offset)) for name, offset in (each.split(":") for each in fixed.split(",")))
    with pytest.raises(DlcError, match=re.escape(said)) as found:
        PlanMemory(fixed=pairs).run(chain(), Report())
    assert found.value.exit_code == ExitCode.USAGE


def test_results_in_place_have_one_offset() -> None:
    x = Input("x", SQUARE)
    plan = named(make_graph((x,), {"y": MatMul(Neg(Exp(x)), x)}))
    assert at(PlanMemory(fixed=(("node1", 512),)).run(plan, Report()), "node0") == 512
    fixed = (("node0", 0), ("node1", 512))
    with pytest.raises(DlcError, match="have one place"):
        PlanMemory(fixed=fixed).run(plan, Report())
    apart = PlanMemory(fixed=fixed, in_place=False).run(plan, Report())
    assert (at(apart, "node0"), at(apart, "node1")) == (0, 512)


def test_beyond_the_limit() -> None:
    with pytest.raises(DlcError, match="ends at 1280, beyond the limit of 1024") as found:
        PlanMemory(fixed=(("node1", 1024),), limit=1024).run(chain(), Report())
    assert found.value.exit_code == ExitCode.LIMIT


def test_one_memory_of_known_sizes() -> None:
    with pytest.raises(DlcError, match="offsets are for one memory"):
        PlanMemory(fixed=(("node1", 0),), regions=(("a", 64), ("b", 64)))
    with pytest.raises(DlcError, match="offsets are for one memory"):
        PlanMemory(fixed=(("node1", 0),), inputs="consumed")
    with pytest.raises(DlcError, match="strategy=exact knows no fixed offsets"):
        PlanMemory(fixed=(("node1", 0),), strategy="exact").run(chain(), Report())


def test_open_sizes() -> None:
    x = Input("x", Type(f32, (symbol("rows", 1, 8), 8)))
    stage = PlanMemory(fixed=(("node0", 0),))
    with pytest.raises(DlcError, match="offsets depend on the sizes of a call: x"):
        stage.run(Plan(make_graph((x,), {"y": x}), ()), Report())
