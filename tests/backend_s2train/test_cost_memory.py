"""The memory picture: peaks and bounds against published ones and brute force; pages that hostile names leave whole."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.cost.figures import live_bytes, memory_html, peak_and_bound, picture, planned
from dlc_backend_s2train.program import Program, Storage
from hypothesis import given
from hypothesis import strategies as st

from tests.backend_s2train.pages import HOSTILE, hostile, read
from tests.backend_s2train.programs import PROGRAMS

LIFETIMES = Path(__file__).parents[1] / "data" / "s2train" / "lifetimes.json"
BOUNDS = {
    "resnet18_b1_merge_imm": 6_952_960,
    "resnet18_b4_merge_imm": 13_656_064,
    "resnet18_b16_merge_imm": 40_468_480,
    "alexnet_b4_merge_imm": 20_881_408,
}


@pytest.mark.parametrize("name", BOUNDS)
def test_published_bounds(name: str) -> None:
    rows: list[Any] = json.loads(LIFETIMES.read_text(encoding="utf-8"))[name]
    at, storages = 0, list[Storage]()
    for kind, begin, end, size in rows:
        if kind != "WEIGHT":
            storages.append(Storage(Arena.FEATURES, at, size, begin, end))
            at += size
    assert peak_and_bound(storages) == (at, BOUNDS[name])


storage = st.builds(
    Storage, st.sampled_from(Arena), st.integers(0, 99), st.integers(0, 50), st.integers(0, 12), st.integers(0, 12)
)


@given(st.lists(storage, max_size=12))
def test_peak_and_bound_byte_by_byte(storages: list[Storage]) -> None:
    alive = [[s for s in storages if s.begin <= step < s.end] for step in range(12)]
    used = {id(s): s for held in alive for s in held}.values()
    extent = max((s.address + s.size for s in used), default=0) - min((s.address for s in used), default=0)
    assert peak_and_bound(storages) == (extent, max(sum(s.size for s in held) for held in alive))
    levels = dict(live_bytes(storages))
    level = 0
    for step in range(12):
        level = levels.get(step, level)
        assert level == sum(s.size for s in alive[step])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(1, 4)), max_size=12))
def test_no_plan_lies_below_the_bound(rectangles: list[tuple[int, int, int]]) -> None:
    """Placed by first fit, so that none clash."""
    placed: list[Storage] = []
    for size, begin, steps in rectangles:
        others = [s for s in placed if s.begin < begin + steps and begin < s.end]
        spots = [0, *(s.address + s.size for s in others)]
        free = [a for a in spots if all(a + size <= s.address or s.address + s.size <= a for s in others)]
        placed.append(Storage(Arena.FEATURES, min(free), size, begin, begin + steps))
    peak, bound = peak_and_bound(placed)
    assert peak >= bound


@pytest.mark.parametrize("name", PROGRAMS)
def test_pictures_show_what_is_placed(name: str) -> None:
    program = PROGRAMS[name]()
    numbers = planned(program)
    assert {program.storages[n].arena for n in numbers}.isdisjoint({Arena.HOST, Arena.WEIGHTS})
    drawn = picture(program)
    assert (drawn.arena, drawn.bound) == peak_and_bound([program.storages[n] for n in numbers])
    assert len(drawn.rectangles) == len(numbers)
    for r in drawn.rectangles:
        assert min(r.x, r.y, r.width, r.height) >= -1e-6
        assert r.x + r.width <= 1000.001
        assert r.y + r.height <= 420.001
    # What is live when most bytes are, is as much as the bound says.
    assert sum(size for _, size, _ in drawn.peak) == drawn.bound
    reader = read(memory_html(program, name))
    assert reader.tags.count("rect") == len(numbers)


def test_hostile_names_stay_text() -> None:
    page = memory_html(hostile(PROGRAMS["conv_step"]()), HOSTILE)
    read(page)
    assert "\x00" not in page and "\u202e" not in page
    assert "&lt;script&gt;" in page
    assert re.search(r"\\u202e", page)


def test_nothing_at_all() -> None:
    empty = Program((), (), (), (), (), ())
    assert peak_and_bound(()) == (0, 0)
    assert picture(empty).rectangles == ()
    read(memory_html(empty, "empty"))


def test_addresses_of_any_size() -> None:
    base = PROGRAMS["conv_step"]()
    storages = tuple(replace(s, address=2**64 - 1, size=2**63, end=2**31) for s in base.storages)
    read(memory_html(replace(base, storages=storages), "large"))
