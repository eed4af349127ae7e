"""Windows that move by two elements: rows are combined as whole vectors, and no row is too short for vectors."""

from __future__ import annotations

import pytest

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import For, Lanes, Shuffle, Store, exprs_of, subexpressions, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.text import parse_kernel
from tests.kernel.triples import Triple
from tests.machines import MACHINES

WIDE = MACHINES["wide-vectors"]


def pooled(columns: int, window: int, fn: str = "max", pad: int = 0) -> Kernel:
    """Windows over planes of 8 rows."""
    size = f"f32[2,8,{columns}]"
    rows, width = (8 + 2 * pad - window) // 2 + 1, (columns + 2 * pad - window) // 2 + 1
    inside = (f"y*2+k >= {pad} and y*2+k < {8 + pad}", f"x*2+l >= {pad} and x*2+l < {columns + pad}")
    guard = f" if {' and '.join(inside)}" if pad else ""
    body = f"p0[i,y*2+k-{pad},x*2+l-{pad}]"
    reduce = {"max": "max=", "add": "+="}[fn]
    return parse_kernel(
        f"kernel({size}) -> (f32[2,{rows},{width}]) {{"
        f" y<{rows} x<{width} k<{window} l<{window}: r0[i,y,x] {reduce} {body}{guard} }}"
    )


def vectors(kernel: Kernel, machine: Machine) -> tuple[int, int]:
    """How many lines of vectors are loaded, and how many are picked from two."""
    body = scheduled(kernel, machine).program.body
    parts = list(subexpressions(e for s in walk_stmts(body) for e in exprs_of(s)))
    return sum(isinstance(e, Lanes) for e in parts), sum(isinstance(e, Shuffle) for e in parts)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("window", "pad"), [(2, 0), (3, 1)])
def test_rows_of_any_length(machine: str, window: int, pad: int) -> None:
    for columns in (14, 34):
        for fn in ("max", "add"):
            problem = Triple(pooled(columns, window, fn, pad), MACHINES[machine]).problem()
            assert not problem, (columns, fn)


def test_rows_of_a_window_are_combined_before_lanes_are_picked() -> None:
    assert vectors(pooled(32, 2), WIDE) == (4, 2)


def test_sums_in_order_are_of_elements() -> None:
    assert vectors(pooled(32, 2, "add"), Machine(64, 32, ordered=True)) == (0, 0)


def test_short_rows_have_narrow_vectors() -> None:
    stores = [s for s in walk_stmts(scheduled(pooled(14, 2), WIDE).program.body) if isinstance(s, Store)]
    assert {s.lanes for s in stores} == {4}


@pytest.mark.parametrize(("count", "again"), [("p0[j]", False), ("p0[j]*p1[0]", False), ("p1[j]", True)])
def test_the_last_vector_computes_nothing_again_that_it_may_overwrite(count: str, again: bool) -> None:
    """A result may lie where an operand of its size does."""
    size = 40 if again else 35
    kernel = parse_kernel(f"kernel(f32[35], f32[{size}]) -> (f32[35]) {{ r0[j] = exp({count}) }}")
    loops = [s for s in walk_stmts(scheduled(kernel, WIDE).program.body) if isinstance(s, For)]
    assert [s.step for s in loops] == ([16, 16] if again else [16, 1])
    assert not Triple(kernel, WIDE).problem()
