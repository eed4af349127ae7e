"""Whether an index expression is zero everywhere, against all of its points."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in
from dlc.kernel.simplify import simplify
from dlc.kernel.solve import zero
from dlc.kernel.solve.zero import is_zero
from tests.kernel.points import value
from tests.kernel.test_simplify import index_exprs


def everywhere(e: Expr) -> bool:
    """By looking at all points."""
    axes = axes_in(e)
    shape = tuple(a.extent for a in axes)
    return bool(np.all(value(e, dict(zip(axes, np.indices(shape), strict=True))) == 0))


@given(index_exprs())
def test_is_exact(e: Expr) -> None:
    assert is_zero(e) == everywhere(e)


@given(index_exprs(), st.integers(1, 6), st.integers(-3, 3))
def test_is_exact_where_much_cancels(e: Expr, c: int, k: int) -> None:
    for parts in (
        (e // c * c + e % c, e),
        (e // c // 2, e // (2 * c)),
        ((e + c) // c, e // c + 1),
        ((e + k) // c, e // c),
        ((e * 2 + 1) // (2 * c), e // c),
        ((e + k) % c, e % c),
    ):
        difference = parts[0] - parts[1]
        assert is_zero(difference) == everywhere(difference)


@given(index_exprs())
def test_a_simpler_expression_is_equal(e: Expr) -> None:
    assert is_zero(simplify(e) - e)


def test_small_slabs_see_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero, "_SLAB", 4)
    monkeypatch.setattr(zero, "_SAMPLE", 0)
    i, j, k = Axis("i", 5), Axis("j", 7), Axis("k", 3)
    at = apply("min", apply("min", i + j * 5 + k * 35, 103), 104) - i - j * 5 - k * 35
    assert not is_zero(at)
    assert is_zero(apply("min", apply("max", i + j * 5 + k * 35, 0), 104) - i - j * 5 - k * 35)


def test_axes_of_any_extent_take_no_time() -> None:
    start = time.process_time()
    for n in (1 << 20, 1 << 40):
        i, j = Axis("i", n), Axis("j", 1000)
        x = i * 1000 + j
        assert is_zero(x // 777 * 777 + x % 777 - x)
        assert is_zero((x * 6 + 5) // 6 - x)
        assert is_zero((i * 4 + 3) // 6 * 6 + (i * 4 + 3) % 6 - i * 4 - 3)
        assert is_zero((i * 2 + 1) // 2 + (i + 2) // 3 - (i + 5) // 3 + 1 - i)
        assert not is_zero(x // 777 * 777 - x)
        assert not is_zero((i + 1) // n)
        assert not is_zero(apply("floordiv", i, n - 1))
    assert time.process_time() - start < 1.0


def test_no_points_and_data() -> None:
    assert is_zero(Axis("i", 0) + 5)
    assert not is_zero(Load("p0", (Const(0),)))
    assert is_zero(Const(0)) and not is_zero(Const(3))
    i = Axis("i", 4)
    assert is_zero(Apply("select", (i < 2, i, i)) - i)
    assert not is_zero(Apply("select", (i < 3, i, i + 1)) - i)
