"""Costs of whole programs: tables, sums, and a time line that hostile names leave whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.cost.cycles import Assumptions, Times
from dlc_backend_s2train.cost.estimate import estimate, total
from dlc_backend_s2train.cost.report import (
    HEADINGS,
    LANES,
    data,
    rows,
    spans,
    table,
    timeline_html,
)
from dlc_backend_s2train.isa.instruction_set import spelled
from dlc_backend_s2train.program import Program
from hypothesis import given
from hypothesis import strategies as st

from tests.backend_s2train.pages import HOSTILE, hostile, read
from tests.backend_s2train.programs import PROGRAMS
from tests.backend_s2train.resnet18_step import resnet18_step
from tests.conftest import Golden

ASSUMPTIONS = (
    Assumptions(),
    Assumptions(CostModel.SERIAL),
    Assumptions(density=(0.5,)),
    Assumptions(overlapped=False),
    Assumptions(partial_bytes=0),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_table_looks_like_this(name: str, golden: Golden) -> None:
    golden(f"cost_{name}.txt", table(PROGRAMS[name]()))


@pytest.mark.parametrize("assumptions", ASSUMPTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_instructions_follow_each_other(name: str, assumptions: Assumptions) -> None:
    program = PROGRAMS[name]()
    costs = estimate(program, assumptions)
    at = 0
    for number, cost in enumerate(costs):
        assert (cost.number, cost.start) == (number, at)
        assert min(cost.times.load, cost.times.compute, cost.times.store, cost.macs, cost.traffic.spill) >= 0
        assert cost.times.total >= max(cost.times.load, cost.times.compute, cost.times.store)
        # A beat is eight bytes.
        assert 0 <= 8 * cost.times.load - cost.traffic.inward < 8
        assert 0 <= 8 * cost.times.store - cost.traffic.outward < 8
        at = cost.end
    whole = total(costs, program.target)
    assert whole.cycles == at
    parts = [total(estimate(program, assumptions, e.begin, e.end)) for e in program.entries]
    for figure in ("macs", "steps", "inward", "outward", "load", "compute", "store", "cycles", "instructions"):
        assert sum(getattr(p, figure) for p in parts) == getattr(whole, figure)


def test_the_published_sums_from_a_program() -> None:
    """Forward macs and steps of an image; three times the macs for training, but for the dead gradient."""
    costs = estimate(resnet18_step(1, fused=True))
    forward = [c for c in costs if c.title.endswith("forward") and c.work]
    assert sum(c.macs for c in forward) == 555_422_720
    assert sum(c.steps for c in forward if c.title == "conv forward") == 977_952
    # The published compiler computes the gradient of the pictures, as this program does; it is the last instruction.
    dead = costs[-2]
    assert dead.title == "conv backward"
    assert sum(c.macs for c in costs) - dead.macs == 1_664_498_688


def test_assumptions_count() -> None:
    program = resnet18_step(2, fused=True)
    plain, serial, sparse, single, kept = (total(estimate(program, a)) for a in ASSUMPTIONS)
    assert serial.compute > plain.compute > sparse.compute
    assert single.cycles > plain.cycles > sparse.cycles
    assert kept.inward < plain.inward
    assert plain.load == single.load == sparse.load


def test_a_batch_makes_weights_cheap() -> None:
    """One image is bound by the link; of many, each costs less of it, as published for the weight-stationary policy."""
    one, many = (total(estimate(resnet18_step(n, fused=True))) for n in (1, 16))
    assert one.bound == "load"
    assert one.bound_in_words == "link bound, inwards"
    assert many.load < 16 * one.load
    assert many.compute <= 16 * one.compute


times = st.builds(
    Times,
    st.integers(0, 1000),
    st.integers(0, 10**5),
    st.integers(0, 10**5),
    st.integers(0, 10**5),
    st.integers(1, 50),
    st.sampled_from([0, 64]),
    st.booleans(),
)


@given(times)
def test_lanes_hold_their_work(t: Times) -> None:
    found = spans(t)
    busy = {
        "configure": t.configuration,
        "load": t.load,
        "compute": t.compute + t.latency,
        "store": t.store,
    }
    assert set(found) == {lane for lane in LANES if busy[lane]}
    for lane, (begin, end) in found.items():
        assert -1e-6 <= begin <= end <= t.total + 1e-6
        assert end - begin >= busy[lane] - 1e-6 * t.total - 1e-6
        if not t.overlapped:
            assert end - begin == pytest.approx(busy[lane], abs=1e-6 * t.total + 1e-6)
    # What an instruction needs is there first, and the last lane ends with it.
    order = [found[lane] for lane in LANES if lane in found]
    assert [b for b, _ in order] == pytest.approx(sorted(b for b, _ in order))
    assert not order or max(e for _, e in order) == pytest.approx(t.total, abs=1)


@pytest.mark.parametrize("assumptions", ASSUMPTIONS)
def test_a_page(assumptions: Assumptions) -> None:
    program = PROGRAMS["linear_step"]()
    page = timeline_html(program, "linear step", assumptions)
    reader = read(page)
    assert reader.tags.count("svg") == len(program.entries)
    costs = [estimate(program, assumptions, e.begin, e.end) for e in program.entries]
    assert reader.tags.count("rect") == sum(len(spans(c.times)) for held in costs for c in held)
    for held in costs:
        assert total(held).bound_in_words in page
        # Every instruction is listed, with its flags.
        for cost in held:
            flags = ", ".join(spelled(flag) for flag in program.instructions[cost.number].flags)
            assert f'<td class="c">{cost.title}{f" [{flags}]" if flags else ""}</td>' in page
    placed = [float(value) for name, value in reader.attributes if name == "x"]
    assert 0 <= min(placed) <= max(placed) <= 1000


def test_hostile_names_stay_text() -> None:
    program = hostile(PROGRAMS["conv_step"]())
    page = timeline_html(program, HOSTILE)
    read(page)
    assert "&lt;script&gt;" in page
    text = table(program)
    for shown in (page, text):
        assert not {"\x00", "\u202e"} & set(shown)
    # A name cannot begin a line of its own.
    assert len(text.splitlines()) == len(table(PROGRAMS["conv_step"]()).splitlines())


def test_data_is_plain() -> None:
    program = PROGRAMS["conv_step"]()
    found: list[Any] = json.loads(json.dumps(data(program)))
    assert len(found) == len(program.instructions)
    costs = estimate(program)
    assert [d["cycles"] for d in found] == [c.times.total for c in costs]
    assert [d["begin"] for d in found] == [c.start for c in costs]
    assert found[0]["policy"] == "weight-stationary"
    assert all(len(row) == len(HEADINGS) for row in rows(program, costs))


def test_a_program_without_entries() -> None:
    empty = Program((), (), (), (), (), ())
    assert table(empty).startswith("all instructions:")
    read(timeline_html(empty, "empty"))
    assert total(()).cycles == 0


def test_steps_of_a_step() -> None:
    assert total(estimate(resnet18_step(16, fused=True))).steps == 60_027_432
