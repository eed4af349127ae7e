"""The check of plans finds every fault that is put into one, and none in what the passes give."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from dlc.api.passes import run_passes
from dlc.api.plan import Plan, Slot, results_of
from dlc.base.report import Report
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, make_graph
from dlc.ops.elementwise import Add, Exp, Neg, Relu, Sub
from dlc.ops.linear import MatMul
from dlc.ops.shape import Reshape, Transpose
from dlc.verify.kit.random_graphs import random_graph
from dlc.verify.plan_check import check_plan
from tests.passes.test_properties import made

SQUARE = Type(f32, (8, 8))


def planned(graph: Graph, passes: str = "lower,order,plan-memory") -> Plan:
    return run_passes([made(text) for text in passes.split(",")], graph, Report())


def step() -> Graph:
    """A residual block, and an update of its weight that may be written over it."""
    x, w = Input("x", SQUARE), Input("w", SQUARE, role="weight")
    a = Relu(MatMul(x, w))
    b = MatMul(Transpose(a, (1, 0)), w)
    c = Exp(Add(Reshape(Reshape(b, (64,)), (8, 8)), a))
    g = MatMul(Transpose(c, (1, 0)), w)
    new = Sub(w, g)
    return replace(make_graph((x, w), {"y": MatMul(c, w), "new": new}), aliases=((1, 1),))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return planned(step())


def moved(plan: Plan, value: str, slot: Slot) -> Plan:
    return replace(plan, slots=MappingProxyType({**plan.slots, value: slot}))


@pytest.mark.parametrize("strategy", ["none", "greedy", "search"])
def test_plans_are_right(strategy: str) -> None:
    assert check_plan(planned(step(), f"lower,layout,fuse,order,plan-memory{{strategy={strategy}}}")) == []
    assert check_plan(planned(step(), "lower,order")) == []
    again = "lower,order{policy=depth-first},rematerialise{budget=50},plan-memory"
    assert check_plan(planned(step(), again)) == []


def test_every_value_over_another_that_is_still_read(plan: Plan) -> None:
    tried = 0
    for each in (plan, *(planned(random_graph(seed, 30), "lower,order,plan-memory") for seed in range(4))):
        assert check_plan(each) == []
        for late, (born, _) in each.lives.items():
            for early, (begin, death) in each.lives.items():
                if begin < born and death > born + 1 and min(each.slots[v].size for v in (early, late)):
                    tried += 1
                    place = replace(each.slots[early], size=each.slots[late].size)
                    assert check_plan(moved(each, late, place))
    assert tried >= 10


def test_every_step_behind_one_that_reads_it(plan: Plan) -> None:
    for k, step in enumerate(plan.steps):
        given = {v.digest for v in results_of(step)}
        readers = [n for n, other in enumerate(plan.steps) if given & {x.digest for x in other.operands}]
        for n in readers:
            order = [s for s in plan.steps if s is not step]
            late = replace(plan, steps=(*order[:n], step, *order[n:]))
            assert check_plan(late), (k, n)


def test_every_place_that_is_missing_or_beyond_its_memory(plan: Plan) -> None:
    for value, slot in plan.slots.items():
        slots = {other: place for other, place in plan.slots.items() if other != value}
        if value in plan.lives:
            assert check_plan(replace(plan, slots=MappingProxyType(slots)))
        assert check_plan(moved(plan, value, replace(slot, offset=slot.offset + plan.memory)))
    (name,) = plan.regions
    assert check_plan(replace(plan, regions={name: plan.memory - 1}))


def test_views_that_are_not_where_their_value_is(plan: Plan) -> None:
    views = [value for value in plan.slots if value not in plan.lives]
    assert views
    for value in views:
        slot = plan.slots[value]
        assert check_plan(moved(plan, value, replace(slot, offset=slot.offset + 4)))


def test_results_over_operands_that_are_read_elsewhere() -> None:
    x = Input("x", SQUARE)
    a = Exp(x)
    for result, legal in ((Neg(a), True), (Transpose(a, (1, 0)), False), (MatMul(a, a), False)):
        plan = planned(make_graph((x,), {"y": Exp(result)}), "lower,order,plan-memory{strategy=none}")
        first, second = (results_of(s)[0].digest for s in plan.steps[:2])
        assert (check_plan(moved(plan, second, plan.slots[first])) == []) is legal


def test_an_update_before_the_last_reader_of_its_weight(plan: Plan) -> None:
    new = next(s for s in plan.steps if s.digest == plan.graph.outputs[1].digest)
    others = [s for s in plan.steps if s is not new]
    wanted = next(k for k, s in enumerate(others) if s.digest == plan.graph.outputs[0].digest)
    faults = check_plan(replace(plan, steps=(*others[:wanted], new, *others[wanted:])))
    assert any(fault.endswith("w, f32[8,8] is not where it is read") for fault in faults)


def test_a_weight_that_is_copied_first_because_it_is_read_after_its_update() -> None:
    w = Input("w", SQUARE, role="weight")
    new = Neg(w)
    plan = planned(replace(make_graph((w,), {"new": new, "y": MatMul(new, w)}), aliases=((0, 0),)))
    (kept,) = plan.kept
    assert check_plan(plan) == []
    slots = {value: slot for value, slot in plan.slots.items() if value != kept.digest}
    assert check_plan(replace(plan, slots=MappingProxyType(slots)))


def test_memory_that_a_step_works_in(plan: Plan) -> None:
    (call, *_) = (s for s in plan.calls if s.digest in plan.lives)
    graph = replace(plan.graph, workspaces={call.body.digest: 64})
    lowered: Plan = run_passes([made("order"), made("plan-memory")], graph, Report())
    assert lowered.workspaces and check_plan(lowered) == []
    for digest in lowered.workspaces:
        assert check_plan(replace(lowered, workspaces={}))
        at = next(s for s in lowered.steps if s.digest == digest)
        used: list[Op] = [v for v in (*results_of(at), *at.operands) if v.digest in lowered.slots]
        for value in used:
            assert check_plan(replace(lowered, workspaces={digest: lowered.slots[value.digest]}))


def test_inputs_that_are_consumed_hold_values_and_weights_do_not() -> None:
    x, w = Input("x", SQUARE), Input("w", SQUARE, role="weight")
    values: list[Op] = [MatMul(x, w)]
    for _ in range(3):
        values.append(MatMul(Transpose(values[-1], (1, 0)), values[-1]))
    plan = planned(make_graph((x, w), {"y": values[-1]}), "lower,order,plan-memory{inputs=consumed}")
    assert plan.consumed == (0,) and check_plan(plan) == []
    (first, *_) = plan.steps
    early = replace(plan, slots={**plan.slots, first.digest: Slot("inputs:0", 0, SQUARE.nbytes)})
    assert check_plan(early)
    assert check_plan(replace(plan, regions={**plan.regions, "inputs:0": SQUARE.nbytes - 1}))
