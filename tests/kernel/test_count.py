"""`iterations` says how often the body runs in the loops that a nest becomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, i64
from dlc.kernel.expr import Axis, Const, Expr, apply, both
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.count import iterations
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel

COMPARISONS = ("lt", "le", "gt", "ge", "eq")


def executed(axes: tuple[Axis, ...], kept: tuple[Axis, ...], where: Expr | None) -> int:
    """Executions of the body in the loops of a nest that adds one at every point."""
    one, out = Param("x", Type(i64, (1,))), Param("y", Type(i64, tuple(a.extent for a in kept)))
    kernel = Kernel.canonical((one,), (out,), (Nest("y", kept, axes, one[Const(0)], "add", where),))
    (got,) = run_loops(schedule(kernel, Machine()), [np.ones(1, np.int64)])
    return int(got.sum())


def counted(axes: tuple[Axis, ...], kept: tuple[Axis, ...], where: Expr | None) -> int:
    return iterations(Nest("y", kept, axes, Const(1), "add", where))


@st.composite
def spaces(draw: st.DrawFn) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Expr | None]:
    """Axes, those of the output, and a guard that is linear in them."""
    axes = tuple(Axis(f"a{k}", draw(st.integers(1, 6))) for k in range(draw(st.integers(1, 4))))
    kept = axes[: draw(st.integers(0, len(axes)))]
    guard: Expr | None = None
    for _ in range(draw(st.integers(0, 4))):
        used = draw(st.lists(st.sampled_from(axes), min_size=1, max_size=3, unique=True))
        total: Expr = Const(0)
        for a in used:
            total = total + a * draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
        guard = both(guard, apply(draw(st.sampled_from(COMPARISONS)), total, draw(st.integers(-4, 9))))
    return axes, kept, guard


@settings(max_examples=150, deadline=None)
@given(spaces())
def test_linear_guards_count_exactly(space: tuple[tuple[Axis, ...], tuple[Axis, ...], Expr | None]) -> None:
    assert counted(*space) == executed(*space)


@settings(max_examples=40, deadline=None)
@given(spaces(), st.integers(2, 4))
def test_other_guards_count_as_if_they_held(
    space: tuple[tuple[Axis, ...], tuple[Axis, ...], Expr | None], step: int
) -> None:
    axes, kept, guard = space
    test = (axes[0] + 1) * (axes[-1] + 1) % step < step - 1
    if axes[0].extent > 1:
        assert counted(axes, kept, both(guard, test)) == counted(axes, kept, guard)


@settings(max_examples=60, deadline=None)
@given(spaces(), st.integers(2, 4))
def test_tests_outside_of_a_reduction_count_exactly(
    space: tuple[tuple[Axis, ...], tuple[Axis, ...], Expr | None], step: int
) -> None:
    axes, kept, guard = space
    if 0 < len(kept) < len(axes) and axes[-1].extent > 1:
        guard = both(guard, (kept[0] + 1) * (kept[-1] + 1) % step < step - 1)
        assert counted(axes, kept, guard) == executed(axes, kept, guard)


@settings(max_examples=100, deadline=None)
@given(spaces(), st.integers(2, 4), st.integers(0, 3), st.sampled_from([-3, -1, 1, 2, 5]))
def test_one_remainder_is_a_step(
    space: tuple[tuple[Axis, ...], tuple[Axis, ...], Expr | None], step: int, value: int, factor: int
) -> None:
    axes, kept, guard = space
    guard = both(guard, apply("eq", sum((a * factor for a in axes[1:]), axes[0]) % step, value % step))
    if math.gcd(step, factor) == 1:
        assert counted(axes, kept, guard) == executed(axes, kept, guard)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("i<100 j<100: r0[i,j] += 1.0", 10_000),
        ("i<100 j<100: r0[i,j] += 1.0 if i+j < 100", 5_050),
        ("i<100 j<100: r0[i,j] += 1.0 if i == j", 100),
        ("i<100 j<100: r0[i,j] += 1.0 if i == 2*j", 50),
        ("i<100 j<100: r0[i,j] += 1.0 if 2*i == 2*j+1", 0),
        ("i<100 j<100 k<0: r0[i,j] += 1.0", 0),
        ("i<100 j<100: r0[i,j] += 1.0 if i < 0", 0),
        ("i<100 j<100: r0[i,j] += 1.0 if (i+j) % 3 == 1", 3_333),
        ("i<100 j<100: r0[i,j] += 1.0 if (1-i)//2 >= -3", 800),
        ("i<100 j<100 k<50: r0[i,j] += 1.0 if k-i//2 >= 0 and k-i//2 < 3", 29_400),
        ("i<100 j<100: r0[i,j] += 1.0 if p0[i,j] < 0.0", 10_000),
        ("i<100 j<100 k<5: r0[i,j] += 1.0 if (j*3-i) % 9 == 0", 5_670),
    ],
)
def test_known_counts(text: str, count: int) -> None:
    (nest,) = parse_kernel(f"kernel(p0: f32[100,100]) -> (r0: f32[100,100]) {{\n {text}\n}}").nests
    assert iterations(nest) == count


def test_case_6_has_no_superfluous_multiplication() -> None:
    kernel = parse_kernel("""kernel(p0: f32[2,8,5,5], p1: f32[8,16,3,3]) -> (r0: f32[2,16,7,7]) {
      k<8 p<5 q<5: r0[n,c,h,w] += p0[n,k,p,q]*p1[k,c,h-p,w-q] if h-p >= 0 and h-p < 3 and w-q >= 0 and w-q < 3
    }""")
    assert iterations(kernel.nests[0]) == 57_600


def test_huge_spaces_count_at_once() -> None:
    n, h = 10**12, 10**6
    i, j = Axis("i", n), Axis("j", n)
    u, p, q = Axis("u", h), Axis("p", h), Axis("q", 3)
    banded = both(u - p >= 0, u - p < 3)
    assert counted((i, j), (i, j), both(i >= 5, j < n - 7)) == (n - 5) * (n - 7)
    assert counted((u, p, q, i), (u,), banded) == (3 * h - 3) * 3 * n


def test_spaces_too_large_to_enumerate_count_whole() -> None:
    axes = tuple(Axis(f"a{k}", 10**5) for k in range(3))
    assert counted(axes, axes, axes[0] + axes[1] + axes[2] < 10) == 10**15
