"""The arithmetic of the checker of loops: a field, a total order, and functions that only equal arguments agree on."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from dlc.base.types import Array, f32, i32
from dlc.kernel.loops.check.modular import HALF, NAN, P, reduced, residue
from dlc.kernel.loops.check.order import Order
from dlc.kernel.loops.check.residues import Field, Unknowable
from dlc.kernel.loops.check.terms import Terms

RNG = np.random.default_rng(0)
A, B, C = (RNG.integers(-HALF, HALF + 1, 2000).astype(np.float64) for _ in range(3))


def apply(fn: str, *values: Array) -> Array:
    return Field().applied(fn, f32, *values)


def centred(n: int) -> int:
    n %= P
    return n - P if n > HALF else n


def test_it_is_exact() -> None:
    ends = np.array([HALF, -HALF, 1 - HALF, 0, 1, -1], np.float64)
    for a, b in ((A, B), (ends, ends[::-1]), (ends, ends)):
        want = [(centred(x + y), centred(x * y)) for x, y in zip(map(int, a), map(int, b), strict=True)]
        assert apply("add", a, b).tolist() == [x for x, _ in want]
        assert apply("mul", a, b).tolist() == [y for _, y in want]
    assert np.array_equal(apply("mul", apply("div", A, B), B)[B != 0], A[B != 0])


@pytest.mark.parametrize("value", [0.5, -0.25, 3.0, 1 / 3, 0.1, 1e30, -7.5])
def test_literals_are_the_fractions_that_they_are(value: float) -> None:
    numerator, denominator = value.as_integer_ratio()
    assert centred(int(residue(value)) * denominator) == centred(numerator)


@np.errstate(all="ignore")
def test_infinities_absorb_in_any_order() -> None:
    inf = np.asarray([np.inf, -np.inf, 0.0, 3.0])
    a, b = (x.ravel() for x in np.meshgrid(inf, inf))
    assert np.array_equal(apply("add", a, b), apply("add", b, a))
    assert np.array_equal(np.isinf(apply("mul", a, b)), np.isinf(a) | np.isinf(b))
    assert np.array_equal(np.isinf(apply("sub", a, b)), np.isinf(a) | np.isinf(b))
    assert np.array_equal(np.isinf(apply("div", a, b)), np.isinf(a) | (b == 0))
    assert not apply("div", A[:1], inf[:2]).any()
    assert apply("exp", inf[:2]).tolist() == [np.inf, 0]
    starts = np.array([0, 2, 3])
    assert Field().combined_runs("add", f32, inf[::-1, None], starts)[:, 0].tolist() == [3, -np.inf, np.inf]
    out = np.asarray([1.0, 1.0, -np.inf])
    Field().combined_at("add", f32, out, (np.array([0, 0, 1, 2]),), np.array([-np.inf, np.inf, -np.inf, 5.0]))
    assert out.tolist() == [np.inf, -np.inf, -np.inf]


def test_what_is_compared_lies_between_literals_as_often_as_beyond() -> None:
    numbers = Field(Order((-1.0, 0.25, 6.0)))
    zero, quarter, one, six = (np.asarray(residue(x)) for x in (0.0, 0.25, 1.0, 6.0))
    for low, high in ((zero, quarter), (quarter, one), (one, six)):
        inside = numbers.applied("gt", f32, A, low) & numbers.applied("lt", f32, A, high)
        assert abs(inside.mean() - 1 / 8) < 0.03
    least, most = numbers.applied("min", f32, A, B), numbers.applied("max", f32, A, B)
    assert np.array_equal(least + most, A + B)
    assert numbers.applied("le", f32, least, most).all()
    assert np.array_equal(numbers.applied("min", f32, -A, -B), -most)
    small = np.arange(-9.0, 9.0)
    assert np.array_equal(numbers.applied("max", f32, small, six), np.maximum(small, 6))
    runs = numbers.combined_runs("max", f32, A[:, None], np.arange(0, len(A), 4))[:, 0]
    out = np.full(len(A) // 4, -np.inf)
    numbers.combined_at("max", f32, out, (np.arange(len(A)) // 4,), A)
    assert np.array_equal(runs, out)
    assert all(numbers.applied("ge", f32, out, A[k::4]).all() for k in range(4))


@pytest.mark.parametrize(("fn", "none"), [("max", -np.inf), ("min", np.inf)])
def test_extremes_that_keep_every_term(fn: str, none: float) -> None:
    terms = Field(Terms(()))
    starts = np.array([0, 1, 5, 12])
    values = A[:20].copy()
    values[[0, 3, 14]] = none
    runs = terms.combined_runs(fn, f32, values[:, None], starts)[:, 0]
    out = np.full(4, none)
    terms.combined_at(fn, f32, out, (np.repeat(np.arange(4), (1, 4, 7, 8)),), values)
    one_by_one = [reduce(lambda a, b: terms.applied(fn, f32, a, b), run[::-1]) for run in np.split(values, starts[1:])]
    assert runs.tolist() == out.tolist() == [float(x) for x in one_by_one]
    assert runs[0] == none
    fewer = np.where(np.arange(20) == 7, none, values)
    assert np.flatnonzero(terms.combined_runs(fn, f32, fewer[:, None], starts)[:, 0] != runs).tolist() == [2]
    assert (terms.applied("max", f32, A, B) != terms.applied("min", f32, A, B)).all()
    assert (terms.applied(fn, f32, A, np.asarray(0.0)) != A).all()


def test_comparisons_in_which_every_number_shows() -> None:
    """An order still: of two different numbers one is less, a number is its own equal, and so is what has moved."""
    terms = Field(Terms(()))
    holds = {fn: terms.applied(fn, f32, A, B) for fn in ("eq", "ne", "lt", "le", "gt", "ge")}
    assert (holds["lt"] ^ holds["gt"])[A != B].all()
    assert (holds["lt"] ^ holds["ge"]).all()
    assert (holds["gt"] ^ holds["le"]).all()
    assert (holds["eq"] ^ holds["ne"]).all()
    assert np.array_equal(holds["eq"], terms.applied("eq", f32, B, A))
    assert np.array_equal(holds["lt"], terms.applied("gt", f32, B, A))
    assert np.array_equal(holds["lt"], terms.applied("lt", f32, reduced(A - B), np.asarray(0.0)))
    assert all(terms.applied(fn, f32, A, A).all() for fn in ("eq", "le", "ge"))
    for fn in ("eq", "lt", "gt"):
        assert abs(holds[fn].mean() - 0.5) < 0.05
        changed = terms.applied(fn, f32, A, reduced(B + 1))
        assert abs((changed != holds[fn]).mean() - 0.5) < 0.05


def test_infinities_are_the_ends_of_the_order() -> None:
    assert (apply("max", A, np.asarray(residue(-np.inf))) == A).all()
    assert (apply("min", A, np.asarray(residue(np.inf))) == A).all()


def test_nan_compares_with_nothing() -> None:
    nan = np.full(A.shape, NAN)
    assert not any(apply(fn, nan, A).any() for fn in ("lt", "le", "gt", "ge", "eq"))
    assert apply("ne", nan, nan).all()
    assert apply("isnan", nan).all()


def test_functions_tell_arguments_apart() -> None:
    for fn in ("exp", "erf", "floor"):
        assert np.array_equal(apply(fn, A), apply(fn, A.copy()))
        assert len(np.unique(apply(fn, np.arange(2000.0)))) >= 1999
    assert (apply("exp", A) != apply("tanh", A)).mean() > 0.99
    assert (apply("pow", A, B) != apply("pow", B, A)).mean() > 0.99


def test_sums_and_products_of_runs() -> None:
    starts = np.array([0, 1, 5, 12, 1000])
    for fn, combine in (("add", int.__add__), ("mul", int.__mul__)):
        found = Field().combined_runs(fn, f32, A[:, None], starts)[:, 0]
        for k, stop in enumerate([*starts[1:], len(A)]):
            total = int(A[starts[k]])
            for x in A[starts[k] + 1 : stop]:
                total = centred(combine(total, int(x)))
            assert found[k] == total


@pytest.mark.parametrize("fn", ["add", "mul", "max"])
def test_values_that_meet_at_one_element(fn: str) -> None:
    at = RNG.integers(0, 7, 300)
    out = A[:7].copy()
    Field().combined_at(fn, f32, out, (at,), B[:300])
    want = A[:7].copy()
    for k, x in zip(at, B[:300], strict=True):
        want[k] = apply(fn, want[k], x)
    assert np.array_equal(reduced(out - want), np.zeros(7))


def test_conversions() -> None:
    numbers = Field()
    whole = np.array([3, -4, 0], np.int32)
    assert numbers.applied("f32", i32, whole).tolist() == [3, -4, 0]
    assert numbers.applied("i32", f32, np.array([3.0, -4.0])).tolist() == [3, -4]
    assert np.array_equal(numbers.applied("bf16", f32, A), A)


def test_what_nobody_knows_is_passed_on_or_refused() -> None:
    unknown = np.array([np.nan, 1.0])
    for fn in ("add", "mul", "max", "div"):
        assert np.isnan(apply(fn, unknown, unknown)).tolist() == [True, False]
    assert np.isnan(apply("exp", unknown)).tolist() == [True, False]
    for fn, values in (("lt", (unknown, unknown)), ("i32", (unknown,)), ("isnan", (unknown,))):
        with pytest.raises(Unknowable):
            apply(fn, *values)
