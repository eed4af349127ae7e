"""Concatenations that hold their operands: smaller arenas, and a judge that sees every wrong place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from dlc_frontend_onnx.frontend import Onnx

from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.api.source import Source
from dlc.base.report import Report
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, make_graph
from dlc.graph.structure import Call
from dlc.kernel.schedules.box import Box
from dlc.ops.elementwise import Exp, Neg, Relu
from dlc.ops.reduce import ReduceSum
from dlc.passes.order import Order
from dlc.passes.parts import overlay, part_of, placed
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.rematerialise import Rematerialise
from dlc.verify.plan_check import check_plan
from dlc.verify.plan_run import run_plan
from dlc.verify.steps import feeds_of
from tests.models.zoo import darts_cell
from tests.passes.test_properties import made

SIZE, CHANNELS = 4, 8
UNIT = 4 * SIZE * SIZE * CHANNELS
"""Bytes of a value of the cell."""


@cache
def cell(parts: bool, layout: bool = True) -> Graph:
    """The kernels of the cell of DARTS, in the layout of C programs or as the model has it."""
    model = darts_cell(1, CHANNELS, SIZE).SerializeToString()
    state = Onnx().parse(Source(data=model, label="cell.onnx"), Report())
    passes = ["fold-constants", "simplify", "lower", *["layout"] * layout, *["parts{bytes=1}"] * parts, "fuse"]
    for spec in passes:
        state = made(spec).run(state, Report())
    return state


@cache
def planned(parts: bool = True, layout: bool = True) -> Plan:
    return PlanMemory(strategy="search").run(Order().run(cell(parts, layout), Report()), Report())


@pytest.mark.parametrize("layout", [True, False])
def test_a_cell_takes_less_memory(layout: bool) -> None:
    """In rows of channels, whose parts have gaps between them, as well as in planes.

    Without what kernels work in, with which a kernel that makes all parts takes 14 values: see docs/memory.md.
    """
    copies, held = planned(False, layout), planned(True, layout)
    assert copies.memory == 10 * UNIT
    assert held.memory == 9 * UNIT
    assert not check_plan(held)
    assert not check_plan(copies)
    assert not any(len(step.operands) == 4 for step in held.steps if isinstance(step, Call))


def test_the_numbers_are_the_same() -> None:
    feeds = feeds_of(cell(False), 0)
    ((name, wanted),) = run_plan(planned(False), feeds).items()
    assert (abs(run_plan(planned(), feeds)[name] - wanted) <= 1e-5 * abs(wanted).max()).all()


def test_a_plan_reads_back_with_its_parts() -> None:
    plan = planned()
    again = parse_plan(plan.graph, plan_text(plan))
    assert again == plan
    assert again.held == plan.held
    assert [len(parts) for parts in plan.held.values()] == [4]


def harmed(plan: Plan) -> Iterator[Plan]:
    """The plan with one thing wrong: a part elsewhere, a live value over the whole, a part that comes too late."""
    ((whole, parts),) = plan.held.items()
    slots = plan.slots
    for part in parts:
        moved = replace(slots[part], offset=slots[part].offset + 4)
        more = {name: size + 4 for name, size in plan.regions.items()}
        yield replace(plan, slots={**slots, part: moved}, regions=more)
    begin = min(plan.lives[p][0] for p in parts)
    end = max(plan.lives[p][1] for p in parts)
    for digest, (birth, death) in plan.lives.items():
        if digest not in plan.beside and max(begin, birth) < min(end, death) - 1:
            yield replace(plan, slots={**slots, digest: replace(slots[digest], offset=slots[whole].offset)})
    readers = [k for k, s in enumerate(plan.steps) if whole in [x.digest for x in s.operands]]
    for part in parts:
        k = plan.values[part][0]
        step = plan.steps[k]
        late = readers[0] + 1
        yield replace(plan, steps=(*plan.steps[:k], *plan.steps[k + 1 : late], step, *plan.steps[late:]))


def test_every_wrong_place_is_seen() -> None:
    wrong = list(harmed(planned()))
    assert len(wrong) > 10
    assert all(check_plan(plan) for plan in wrong)


def test_parts_whose_other_elements_are_read_are_copied() -> None:
    """They are 0, which they would not be where others lie, nor where nobody writes any."""
    x = Input("x", Type(f32, (4,)))
    whole = Type(f32, (8,))
    boxes: list[Box] = [((0, 4),), ((4, 8),)]
    parts = [placed(Exp(x), whole, boxes[0]), placed(Neg(x), whole, boxes[1])]
    less = placed(part_of(Exp(x), Type(f32, (3,)), ((1, 4),)), whole, ((1, 4),))
    small = part_of(parts[0], Type(f32, (4,)), boxes[0])
    for reader, first, held in ((small, parts[0], 1), (Relu(parts[0]), parts[0], 0), (small, less, 0)):
        parts[0] = first
        graph = make_graph((x,), {"y": ReduceSum(overlay(parts, boxes, whole), axes=(0,)), "z": Relu(reader)})
        plan = PlanMemory().run(Order().run(made("lower").run(graph, Report()), Report()), Report())
        assert len(plan.held) == held
        assert not check_plan(plan)


def test_steps_are_executed_again_beside_parts() -> None:
    ordered = Order().run(cell(True), Report())
    again = Rematerialise(budget=60).run(ordered, Report())
    assert int(again.facts["order_peak"]) <= int(ordered.facts["order_peak"])
    assert not check_plan(PlanMemory().run(again, Report()))
