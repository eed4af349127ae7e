"""Elements that data pick from short rows: lanes of vectors where all places are inside, and rows added up first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dlc.base.types import Array
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import Pick, exprs_of, subexpressions, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.kernel.triples import Triple
from tests.machines import MACHINES

FAST = replace(MACHINES["wide-vectors"], reciprocals=True)


def picked(length: int, count: int = 35, guard: str = "", ahead: int = 1) -> Kernel:
    """Elements of one row of a tensor, and those some further."""
    body = f"p0[y,i64(p1[x])]*p2[x]-p0[y,i64(p1[x])+{ahead}]"
    inside = f"i64(p1[x]) >= 0 and i64(p1[x])+{ahead} < {length}{guard}"
    return parse_kernel(
        f"kernel(f32[3,{length}], i32[{count}], f32[{count}]) -> (f32[3,{count}]) {{ r0[y,x] = {body} if {inside} }}"
    )


def resampled(rows: int, columns: int, of: str = "p4[x]") -> Kernel:
    """Linear resampling of a plane by data."""
    at = [f"p0[i64(p1[y]){i},i64(p3[x]){j}]" for i in ("", "+1") for j in ("", "+1")]
    body = f"(1.0-p2[y])*((1.0-{of})*{at[0]}+{of}*{at[1]})+p2[y]*((1.0-{of})*{at[2]}+{of}*{at[3]})"
    inside = f"i64(p1[y]) >= 0 and i64(p1[y])+1 < {rows} and i64(p3[x]) >= 0 and i64(p3[x])+1 < {columns}"
    of_y, of_x = "i32[7], f32[7]", "i32[40], f32[40]"
    return parse_kernel(
        f"kernel(f32[{rows},{columns}], {of_y}, {of_x}) -> (f32[7,40]) {{ r0[y,x] = {body} if {inside} }}"
    )


def picks(kernel: Kernel, machine: Machine) -> int:
    program = scheduled(kernel, machine).program
    return sum(isinstance(e, Pick) for e in subexpressions(e for s in walk_stmts(program.body) for e in exprs_of(s)))


def arguments(kernel: Kernel, low: int, high: int) -> list[Array]:
    """Operands of which integers are from `low` on and below `high`."""
    rng = np.random.default_rng(1)
    return [
        a if a.dtype.kind == "f" else np.asarray(rng.integers(low, high, a.shape), a.dtype) for a in samples(kernel)
    ]


def agree(kernel: Kernel, args: Sequence[Array], machine: Machine = FAST) -> None:
    found = run_loops(scheduled(kernel, machine).program, args)
    for got, want in zip(found, run_kernel(kernel, args), strict=True):
        assert close(got, want)


@pytest.mark.parametrize("length", [16, 17, 31, 33, 48, 50, 64])
def test_rows_of_any_length(length: int) -> None:
    kernel = picked(length)
    assert picks(kernel, FAST) == 2
    assert not Triple(kernel, FAST).problem()
    for low, high in ((0, length - 1), (length - 2, length - 1), (-3, length + 3), (0, length)):
        agree(kernel, arguments(kernel, low, high))


@pytest.mark.parametrize(
    "kernel",
    [
        picked(15),  # shorter than a vector
        picked(65),
        picked(20, count=15),
        picked(20, guard=" and x+y < 30"),  # other elements in every row
        picked(20, ahead=-1),
    ],
)
def test_what_is_picked_one_by_one(kernel: Kernel) -> None:
    assert not picks(kernel, FAST)
    assert not Triple(kernel, FAST).problem()


def test_only_wide_vectors_are_picked_from() -> None:
    for machine in (MACHINES["small-caches"], MACHINES["no-vectors"], replace(FAST, ordered=True)):
        assert not picks(picked(20), machine)


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_are_added_up_first(machine: str) -> None:
    kernel, fast = resampled(5, 18), replace(MACHINES[machine], reciprocals=True)
    program = scheduled(kernel, fast).program
    assert [b.size for b in program.buffers] == [18]
    assert not Triple(kernel, fast).problem()
    for low, high in ((0, 4), (-2, 20), (3, 17)):
        agree(kernel, arguments(kernel, low, high), fast)


@pytest.mark.parametrize("kernel", [resampled(5, 50), resampled(5, 18, "p2[y]*p4[x]*p0[0,0]")])
def test_rows_stay_terms_where_they_are_long_or_no_products(kernel: Kernel) -> None:
    assert not scheduled(kernel, FAST).program.buffers
    assert not Triple(kernel, FAST).problem()


def test_sums_keep_their_order_in_strict_modes() -> None:
    assert not scheduled(resampled(5, 18), MACHINES["wide-vectors"]).program.buffers
