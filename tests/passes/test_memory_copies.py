"""Copies between memories: they pay by the costs that are given, values stay, and the check of plans sees faults."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import Report
from dlc.api.plan import Plan, Slot, parse_plan, plan_text, results_of
from dlc.base.diagnostics import DlcError
from dlc.graph import Constant, Copy, evaluate, parse_graph, print_graph
from dlc.passes.plan_memory import PlanMemory
from dlc.plugins.builtin import dlc_ops
from dlc.record.build import memory_of
from dlc.record.memory_roles import MOVED
from dlc.verify.plan_check import check_plan
from dlc.verify.plan_run import run_plan
from tests.passes.conftest import STRUCTURE
from tests.passes.skip_networks import NETWORKS, ordered
from tests.placement.aliased_graphs import with_copies

SLOW = ("slow", 1 << 20)


def arena(plan: Plan) -> int:
    return PlanMemory().run(plan, Report()).memory


def several(plan: Plan, fast: int, cost: float = 8.0, copies: bool = True) -> Plan:
    stage = PlanMemory(regions=(("fast", fast), SLOW), costs=(("slow", cost),), copies=copies)
    return stage.run(plan, Report())


def copied(plan: Plan) -> list[Copy]:
    return [step for step in plan.steps if isinstance(step, Copy)]


@pytest.fixture(scope="module")
def unet() -> Plan:
    plan = ordered(NETWORKS["unet"](), fused=False)
    return several(plan, arena(plan) // 5, 16.0)


def cost(plan: Plan, slow: float) -> float:
    """Counted anew: every operand and result of a step once, what it works in twice."""
    costs = {"fast": 1.0, "slow": slow}
    found = 0.0
    for step in plan.steps:
        used = [plan.slots[v.digest] for v in (*step.operands, *results_of(step)) if v.digest in plan.slots]
        found += sum(slot.size * costs[slot.region] for slot in used)
        if (slot := plan.workspaces.get(step.digest)) is not None:
            found += 2 * slot.size * costs[slot.region]
    return found


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("fused", [True, False])
def test_values_stay_what_they_are_and_accesses_cost_no_more(name: str, fused: bool) -> None:
    graph = NETWORKS[name]()
    plan = ordered(graph, fused)
    whole = arena(plan)
    x = np.random.default_rng(0).standard_normal(graph.inputs[0].shape).astype(np.float32)
    wanted = evaluate(plan.graph, {"x": x})
    counts = 0
    for part, slow in ((2, 4.0), (3, 16.0), (5, 4.0), (5, 64.0)):
        found, plain = (several(plan, whole // part, slow, copies) for copies in (True, False))
        assert check_plan(found) == []
        assert found.regions["fast"] <= whole // part
        assert not copied(plain) and "access_cost_without_copies" not in plain.facts
        assert cost(found, slow) <= cost(plain, slow)
        assert found.facts["access_cost"] == round(cost(found, slow))
        assert int(found.facts.get("access_cost_bound", 0)) <= cost(found, slow)
        if copied(found):
            assert cost(found, slow) < cost(plain, slow) == found.facts["access_cost_without_copies"]
        counts += len(copied(found))
        for output, value in run_plan(found, {"x": x}).items():
            np.testing.assert_array_equal(value, wanted[output])
    assert counts or name == "perceptron"


def test_a_plan_with_copies_is_text_and_is_drawn(unet: Plan) -> None:
    text = print_graph(unet.graph, origins=True)
    assert " copied 1" in text
    tensors = {op.tensor.digest: op.tensor for op in unet.graph.ops if isinstance(op, Constant)}
    graph = parse_graph(text, {op.text_name: op for op in dlc_ops()} | STRUCTURE, lambda _, digest: tensors.get(digest))
    assert graph.digest == unet.graph.digest
    assert parse_plan(graph, plan_text(unet)) == unet
    drawn = [value for value in memory_of(unet).values if value.role == MOVED]
    assert len(drawn) == len(copied(unet)) > 0


def test_copies_are_told_one_by_one() -> None:
    plan = ordered(NETWORKS["unet"](), fused=False)
    report = Report()
    found = PlanMemory(regions=(("fast", arena(plan) // 3), SLOW)).run(plan, report)
    (step,) = copied(found)
    bytes_ = f"{step.type.nbytes:,} B"
    assert report.counts["copies between memories"] == len(report.misses) == 1
    assert report.misses[0][1].endswith(f"{bytes_} from fast to slow")
    assert report.notes[-1].startswith(f"1 copy of {bytes_} between memories: accesses cost ")


def test_every_missing_copy(unet: Plan) -> None:
    for step in copied(unet):
        assert check_plan(replace(unet, steps=tuple(s for s in unet.steps if s is not step)))
        readers = [k for k, s in enumerate(unet.steps) if step.digest in {x.digest for x in s.operands}]
        late = [s for s in unet.steps if s is not step]
        late.insert(readers[0], step)
        assert check_plan(replace(unet, steps=tuple(late)))


def test_every_value_over_one_that_is_still_read(unet: Plan) -> None:
    """Copies and what they are of among them, in whichever memory."""
    tried = 0
    for late, (born, _) in unet.lives.items():
        for early, (begin, death) in unet.lives.items():
            if begin < born and death > born + 1:
                tried += 1
                place = unet.slots[early]
                slots = {**unet.slots, late: Slot(place.region, place.offset, unet.slots[late].size)}
                assert check_plan(replace(unet, slots=MappingProxyType(slots)))
    assert tried >= 20


def test_what_the_check_accepts_gives_the_same_outputs(unet: Plan) -> None:
    """Copies and what they are of at other places of either memory."""
    feeds = {"x": np.random.default_rng(1).standard_normal(unet.graph.inputs[0].shape).astype(np.float32)}
    wanted = run_plan(unet, feeds)["y"]
    judged = [0, 0]
    for step in copied(unet):
        for value in (step, *step.operands):
            slot = unet.slots[value.digest]
            for region, size in unet.regions.items():
                for offset in range(0, size - slot.size + 1, 1024):
                    slots = {**unet.slots, value.digest: Slot(region, offset, slot.size)}
                    other = replace(unet, slots=MappingProxyType(slots))
                    right = not check_plan(other)
                    judged[right] += 1
                    assert not right or (run_plan(other, feeds)["y"] == wanted).all()
    assert min(judged) >= 2


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_random_graphs(seed: int) -> None:
    pair = with_copies(seed)
    assert check_plan(pair.shared) == []
    draw = np.random.default_rng(seed)
    feeds = {i.name: draw.standard_normal(i.shape).astype(np.float32) for i in pair.plain.graph.inputs}
    wanted = run_plan(pair.plain, feeds)
    for name, value in run_plan(pair.shared, feeds).items():
        np.testing.assert_array_equal(value, wanted[name])


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ((("ram", 2.0),), "there is no memory ram, but fast, slow"),
        ((("fast", 2.0), ("fast", 2.0)), "fast stands there twice"),
        ((("slow", 0.0),), "0 for slow is no positive number"),
        ((("slow", float("nan")),), "nan for slow is no positive number"),
        ((("slow", 0.5),), "fast (1) costs more than slow (0.5)"),
        ((("fast", 5.0),), "fast (5) costs more than slow (4)"),
    ],
)
def test_costs_that_are_none(costs: tuple[tuple[str, float], ...], said: str) -> None:
    with pytest.raises(DlcError, match=re.escape(said)):
        PlanMemory(regions=(("fast", 64), SLOW), costs=costs)
