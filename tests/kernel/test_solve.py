"""The integer solver: Smith forms, Fourier-Motzkin projections, and solutions of systems as bijections."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlc.kernel.expr import Axis, Expr, apply, axes_in
from dlc.kernel.simplify import Linear
from dlc.kernel.solve.flatten import Unsolvable
from dlc.kernel.solve.forms import atom, combine, constant, divided
from dlc.kernel.solve.inequalities import IMPOSSIBLE, implied, interval, project, ranges_of
from dlc.kernel.solve.smith import Matrix, product, smith
from dlc.kernel.solve.system import MAX_AXES, Solution, solve
from tests.kernel.points import value

M, J, K = Axis("i", 5), Axis("j", 4), Axis("k", 6)


# ---- Smith forms ----
def determinant(a: Sequence[Sequence[int]]) -> int:
    """By expansion along the first row."""
    if not a:
        return 1
    rest = [list(row) for row in a[1:]]
    return sum((-1) ** k * x * determinant([r[:k] + r[k + 1 :] for r in rest]) for k, x in enumerate(a[0]))


def unit(n: int) -> Matrix:
    return tuple(tuple(int(i == j) for j in range(n)) for i in range(n))


@st.composite
def matrices(draw: st.DrawFn) -> list[list[int]]:
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    entries = st.one_of(st.integers(-4, 4), st.just(0), st.integers(-(10**12), 10**12))
    return [[draw(entries) for _ in range(width)] for _ in range(height)]


@given(matrices())
def test_smith_form(a: list[list[int]]) -> None:
    form = smith(a)
    assert product(product(form.u, a), form.v) == form.s
    assert abs(determinant(form.u)) == abs(determinant(form.v)) == 1
    assert product(form.v, form.v_inverse) == unit(len(a[0]))
    assert all(x == 0 for i, row in enumerate(form.s) for j, x in enumerate(row) if i != j)
    factors = form.factors
    assert all(f > 0 for f in factors) and all(b % a == 0 for a, b in itertools.pairwise(factors))
    assert factors == tuple(row[k] for k, row in enumerate(form.s) if k < len(row))[: len(factors)]


def test_smith_form_of_nothing() -> None:
    assert smith([]).s == ()
    assert smith([[0, 0]]).factors == ()


def test_null_columns_are_short() -> None:
    form = smith([[6, 10, 15]])
    assert all(abs(x) <= 5 for row in form.v for x in row)


# ---- forms ----
@given(st.lists(st.integers(-7, 7), min_size=3, max_size=3), st.integers(-9, 9), st.integers(1, 5))
def test_division_of_forms_floors(coefficients: list[int], number: int, divisor: int) -> None:
    form = combine(*((c, atom(a)) for c, a in zip(coefficients, (M, J, K), strict=True)), (number, constant(1)))
    quotient = divided(form, divisor).expr()
    for i, j, k in itertools.product(range(5), range(4), range(6)):
        at = {M: i, J: j, K: k}
        assert value(quotient, at) == value(form.expr(), at) // divisor


# ---- Fourier-Motzkin ----
def satisfied(rows: Sequence[Linear], at: dict[Axis, int]) -> bool:
    return all(value(row.expr(), at) >= 0 for row in rows)


def random_rows(seed: int, count: int) -> list[Linear]:
    rng = random.Random(seed)
    return [
        combine(
            *((rng.choice((0, 0, 1, -1, 2, -3)), atom(a)) for a in (M, J, K)),
            (rng.randint(-2, 8), constant(1)),
        )
        for _ in range(count)
    ]


@given(st.integers(0, 1 << 30), st.integers(1, 4))
def test_a_projection_has_every_point_and_is_exact_for_unit_coefficients(seed: int, count: int) -> None:
    rows = [*random_rows(seed, count), *ranges_of((M, J, K))]
    below = project(rows, (K,))
    assert below is not None
    units = all(abs(row.coefficient(K)) <= 1 for row in rows)
    for i, j in itertools.product(range(5), range(4)):
        exists = any(satisfied(rows, {M: i, J: j, K: k}) for k in range(6))
        found = below != (IMPOSSIBLE,) and satisfied(below, {M: i, J: j})
        assert found == exists if units else found or not exists


@given(st.integers(0, 1 << 30), st.integers(0, 4))
def test_intervals_and_implications_hold_at_every_point(seed: int, count: int) -> None:
    *rows, other = random_rows(seed, count + 1)
    points = [
        {M: i, J: j, K: k}
        for i, j, k in itertools.product(range(5), range(4), range(6))
        if satisfied(rows, {M: i, J: j, K: k})
    ]
    low, high = interval(rows, M) or (0, -1)
    assert all(low <= p[M] <= high for p in points)
    if implied(other, rows):
        assert all(satisfied([other], p) for p in points)


def test_bounds_are_as_tight_as_the_integers_allow() -> None:
    rows = [combine((2, atom(M)), (-1, atom(J))), combine((-2, atom(M)), (1, atom(J)), (3, constant(1)))]
    assert interval(rows, M) == (0, 3)
    assert interval([*rows, combine((1, atom(J)), (-3, constant(1)))], M) == (2, 3)
    low, high = interval([combine((3, atom(M)), (-14, constant(1)))], M) or (0, 0)
    assert low > high


# ---- systems ----
def table(loops: Sequence[Axis], columns: Sequence[Expr], where: Expr | None) -> list[list[int]]:
    """Values of expressions at all points of the loops where the guard holds, sorted."""
    shape = tuple(a.extent for a in loops)
    count = math.prod(shape)
    at = dict(zip(loops, np.indices(shape).reshape(len(shape), count), strict=True))
    keep = np.broadcast_to(True if where is None else value(where, at), count)
    return sorted(np.stack([np.broadcast_to(value(e, at), count)[keep] for e in columns], 1).tolist())


@given(st.integers(0, 1 << 30))
def test_solutions_of_affine_systems_are_a_bijection(seed: int) -> None:
    rng = random.Random(seed)
    axes = [Axis(n, rng.randint(1, 5)) for n in "ijk"[: rng.randint(1, 3)]]
    subscripts: list[Expr] = []
    for _ in range(rng.randint(1, 3)):
        e: Expr = apply("add", 0, rng.randint(0, 3))
        for a in axes:
            e = e + a * rng.choice((0, 1, 1, 2, 3, 5, -1, -2))
        subscripts.append(e)
    written = table(axes, subscripts, None)
    low = [min(column) for column in zip(*written, strict=True)]
    high = [max(column) for column in zip(*written, strict=True)]
    moved = [e - m for e, m in zip(subscripts, low, strict=True)]
    parameters = [Axis(f"u{d}", b - a + 1) for d, (a, b) in enumerate(zip(low, high, strict=True))]
    targets: list[tuple[Expr, Expr]] = list(zip(moved, parameters, strict=True))
    guard = apply(rng.choice(("eq", "lt", "ge")), subscripts[0] % 3, rng.randint(0, 2)) if rng.random() < 0.5 else None
    wanted = table(axes, (*moved, *axes), guard)
    found = solve(axes, targets, guard)
    assert not isinstance(found, Unsolvable)
    if found is None:
        assert not wanted
    else:
        columns = (*parameters, *(found.values[a] for a in axes))
        assert table((*parameters, *found.free), columns, found.guard) == wanted


def test_an_equation_is_solved_for_the_larger_axis() -> None:
    u = Axis("u", 9)
    small, large = Axis("r", 3), Axis("p", 7)
    found = solve((small, large), [(small + large, u)], None)
    assert isinstance(found, Solution)
    assert found.free == (small,) and found.values[large] == u - small


def test_systems_without_points() -> None:
    assert solve((Axis("i", 0),), [], None) is None
    assert solve((M,), [(M * 2, Axis("u", 9))], apply("eq", M * 2, 3)) is None
    assert solve((M, J), [], apply("eq", M + J, 20)) is None
    assert solve((M,), [], M > 7) is None


def test_what_is_no_system_has_a_reason() -> None:
    cases = [(M * J, "multiplies axes"), (apply("min", M, J), "applies min"), (apply("floordiv", M, J), "divides by")]
    for e, reason in cases:
        found = solve((M, J), [(M, Axis("u", 5)), (e, Axis("v", 5))], None)
        assert isinstance(found, Unsolvable) and found.reason.startswith(f"subscript 1 {reason}")


def test_too_many_axes_are_counted() -> None:
    axes = tuple(Axis(f"i{k}", 2) for k in range(MAX_AXES + 1))
    found = solve(axes, [(axes[0], Axis("u", 2))], None)
    assert found == Unsolvable(f"{MAX_AXES + 1} axes, more than {MAX_AXES}")


def test_free_axes_that_no_guard_mentions_stay() -> None:
    found = solve((M, J, K), [(M, Axis("u", 5))], None)
    assert isinstance(found, Solution)
    assert found.free == (J, K) and found.guard is None and axes_in(found.values[M]) == (Axis("u", 5),)
