"""The exact strategy: equal to brute force, true when it refutes, the same every time; honest when it cannot say."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dlc_backend_c.packing import FLAGS, SOURCE, BranchAndBound
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.placement import Allocator, Buffer, Decision, Instance, check_placement, place
from dlc.placement.allocator import least_arena
from dlc.placement.cp_sat import CpSat
from dlc.placement.greedy import first_fit, place_in_order, problem
from dlc.plugins.entry import Entry
from dlc.verify.kit.allocators import GAPS, fits, repeats, tells_the_truth
from dlc.verify.kit.check import Wrong
from tests.placement.instances import DATA, load_buffers
from tests.tools import SANITIZING

ALLOCATORS: tuple[type[Allocator], ...] = (BranchAndBound, CpSat)


def usable(kind: type[Allocator]) -> type[Allocator]:
    if lacks := kind.lacks():
        pytest.skip(lacks)
    return kind


def gap(number: int) -> list[Buffer]:
    return [Buffer(k, size, birth, death) for k, (birth, death, size) in enumerate(GAPS[number])]


def optimum(buffers: list[Buffer]) -> int:
    """Some order of first fit gives an optimal placement, so trying all of them is brute force."""
    task = problem(buffers, 1)
    return min(place_in_order(task, order, first_fit)[1] for order in permutations(range(len(buffers))))


@st.composite
def small(draw: st.DrawFn, most: int = 6) -> list[Buffer]:
    count = draw(st.integers(0, most))
    births = [draw(st.integers(0, 6)) for _ in range(count)]
    return [Buffer(k, draw(st.integers(0, 4)), b, b + draw(st.integers(1, 4))) for k, b in enumerate(births)]


@settings(deadline=None, max_examples=60)
@given(small())
def test_exact_is_the_optimum(buffers: list[Buffer]) -> None:
    found = place(buffers, align=1, strategy="exact", allocator=BranchAndBound)
    assert (found.arena, found.proven) == (optimum(buffers), True)
    assert found.bound <= found.floor == found.arena
    assert check_placement(buffers, found.offsets, 1, found.arena) == []


@pytest.mark.parametrize("kind", ALLOCATORS)
@pytest.mark.parametrize("number", range(len(GAPS)))
def test_what_is_above_the_bound_is_proven(kind: type[Allocator], number: int) -> None:
    """Hypothesis hardly ever meets a gap: of random instances of 8 buffers one in ten thousand has one."""
    buffers = gap(number)
    found = place(buffers, align=1, strategy="exact", allocator=usable(kind))
    assert (found.bound, found.arena, found.floor, found.proven) == (6, 7, 7, True)
    assert check_placement(buffers, found.offsets, 1, 7) == []
    assert place(buffers, align=1, strategy="search", budget=100).proven is False


def test_brute_force_agrees_about_a_gap() -> None:
    assert not fits(gap(0), 6)
    assert fits(gap(0), 7)


@pytest.mark.parametrize("kind", ALLOCATORS)
@pytest.mark.parametrize("name", ["K"])
def test_hard_instances_are_solved(kind: type[Allocator], name: str) -> None:
    buffers = load_buffers(DATA / "minimalloc" / f"{name}.1048576.csv")
    found = place(buffers, strategy="exact", allocator=usable(kind))
    assert (found.arena, found.proven, found.late) == (1_048_576, True, False)
    assert found == place(buffers, strategy="exact", allocator=usable(kind))


def test_a_long_search_keeps_its_budget() -> None:
    """The optimum of D is not known: the bound, 986112, is neither met nor refuted by anybody."""
    buffers = load_buffers(DATA / "minimalloc" / "D.1048576.csv")
    found = place(buffers, align=1, strategy="exact", allocator=BranchAndBound, work=20_000_000)
    assert found.floor == found.bound == 986_112 < found.arena
    assert not found.proven and not found.late
    assert check_placement(buffers, found.offsets, 1, found.arena) == []


def test_a_deadline_ends_it_and_is_told() -> None:
    buffers = load_buffers(DATA / "minimalloc" / "D.1048576.csv")
    deadline = time.monotonic() + 0.05
    found = place(buffers, align=1, strategy="exact", allocator=BranchAndBound, work=10**12, deadline=deadline)
    assert found.late and not found.proven
    assert check_placement(buffers, found.offsets, 1, found.arena) == []


def test_an_allocator_that_lies_is_found_out() -> None:
    class Liar(Allocator):
        name = "liar"

        def decide(self, instance: Instance, capacity: int, work: int, deadline: float | None) -> Decision:
            return Decision((0,) * len(instance.sizes), refuted=False, work=1)

    with pytest.raises(ValueError, match="the allocator liar gave no placement: buffers"):
        place(gap(0), align=1, strategy="exact", allocator=Liar)


def test_questions_go_from_the_bound_upwards() -> None:
    asked: list[int] = []

    class Silent(Allocator):
        name = "silent"

        def decide(self, instance: Instance, capacity: int, work: int, deadline: float | None) -> Decision:
            asked.append(capacity)
            return Decision(None, refuted=capacity == instance.most, work=10)

    found = least_arena(Silent(), [Buffer(0, 64, 0, 2), Buffer(1, 128, 1, 3)], 64, bound=192, arena=640, work=1000)
    assert asked == [3, 7, 9]
    assert (found.offsets, found.arena, found.floor, found.late) == (None, 640, 256, False)


def test_numbers_too_large_for_an_allocator_are_not_asked_about() -> None:
    huge = [Buffer(k, 1 << 62, k, k + 2) for k in range(3)]
    assert place(huge, align=1, strategy="exact", allocator=BranchAndBound).arena == 1 << 63
    with pytest.raises(ValueError, match="needs an allocator"):
        place(gap(0), strategy="exact")


MAIN = """
#include <stdio.h>
#include "packing.c"
int main(void)
{
    const int64_t birth[] = {%s}, death[] = {%s}, size[] = {%s};
    int64_t offsets[8], work = 1000000;
    int stop = 0, k;
    printf("%%d ", dlc_pack(8, birth, death, size, 6, &work, &stop, offsets));
    work = 1000000;
    printf("%%d", dlc_pack(8, birth, death, size, 7, &work, &stop, offsets));
    for (k = 0; k < 8; ++k)
        printf(" %%d", (int)offsets[k]);
    work = 3;
    printf(" %%d", dlc_pack(8, birth, death, size, 6, &work, &stop, offsets));
    work = 1000000;
    stop = 1;
    printf(" %%d\\n", dlc_pack(8, birth, death, size, 6, &work, &stop, offsets));
    return 0;
}
"""


@pytest.mark.parametrize("cc", SANITIZING)
def test_the_search_is_clean_c99(cc: str, tmp_path: Path) -> None:
    """No warnings, and no fault that the sanitizers see, whatever the answer is."""
    columns = [", ".join(map(str, column)) for column in zip(*GAPS[1], strict=True)]
    (tmp_path / "main.c").write_text(MAIN % tuple(columns))
    flags = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-g", "-fsanitize=address,undefined")
    command = [cc, *flags, f"-I{SOURCE.parent}", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    environment = {**os.environ, "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run([tmp_path / "main"], env=environment, check=True, capture_output=True, text=True)
    refuted, packed, *offsets, spent, stopped = map(int, done.stdout.split())
    assert (refuted, packed, spent, stopped) == (0, 1, 2, 3)
    assert check_placement(gap(1), offsets, 1, 7) == []
    assert "-std=c99" in FLAGS


def asked(kind: type[Allocator]) -> str:
    subject: Any = SimpleNamespace(seed=0, rounds=1)
    entry = Entry("allocators", kind.name, "test", "tests", kind)
    return f"{tells_the_truth(subject, entry)}; {repeats(subject, entry)}"


@pytest.mark.parametrize("kind", ALLOCATORS)
def test_the_kit_finds_nothing_wrong(kind: type[Allocator]) -> None:
    usable(kind)
    assert asked(kind).startswith("42 instances, 2 refutations")


@pytest.mark.parametrize("fault", ["refutes all", "one below", "overlaps", "forgets"])
def test_the_kit_finds_faults(fault: str) -> None:
    class Faulty(BranchAndBound):
        name = "faulty"
        calls = 0

        def decide(self, instance: Instance, capacity: int, work: int, deadline: float | None) -> Decision:
            found = super().decide(instance, capacity, work, deadline)
            type(self).calls += 1
            if fault == "forgets":
                return replace(found, work=found.work + self.calls)
            if fault == "one below":
                return replace(found, offsets=found.offsets and tuple(o + 1 for o in found.offsets))
            if fault == "overlaps":
                return replace(found, offsets=found.offsets and (0,) * len(found.offsets))
            return Decision(None, refuted=True, work=1)

    said = {"refutes all": "although it fits", "one below": "beyond the arena", "overlaps": "share", "forgets": "two"}
    with pytest.raises(Wrong, match=said[fault]):
        asked(Faulty)
