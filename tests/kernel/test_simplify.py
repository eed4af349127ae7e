"""Simplification never changes a value: checked at every point of the iteration space."""

from __future__ import annotations

import operator as op
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Type, i64
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import TRUE, Apply, Axis, Const, Expr, apply, axes_in, both
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.print import print_expr
from dlc.kernel.simplify import bounds, conjuncts, linear, simplify, simplify_guard, simplify_nest

AXES = (Axis("i", 4), Axis("j", 3), Axis("k", 5), Axis("u", 1))
M, J, K, U = AXES
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def pair(fn: str, a: Expr, b: Expr | int) -> Expr:
    return apply(fn, a, b)


def single(fn: str, a: Expr) -> Expr:
    return apply(fn, a)


def index_exprs() -> st.SearchStrategy[Expr]:
    """Index arithmetic as schedules and layouts make it: sums, scalings, divisions, remainders."""
    leaves: st.SearchStrategy[Expr] = st.one_of(st.sampled_from(AXES), st.integers(-7, 7).map(Const))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(pair, st.sampled_from(["add", "sub", "min", "max"]), inner, inner),
            st.builds(pair, st.just("mul"), inner, st.integers(-4, 4)),
            st.builds(single, st.just("neg"), inner),
            st.builds(pair, st.sampled_from(["floordiv", "mod"]), inner, st.integers(1, 6)),
        )

    return st.recursive(leaves, grow, max_leaves=8)


def guards() -> st.SearchStrategy[Expr]:
    plain = st.builds(pair, st.sampled_from(COMPARISONS), index_exprs(), index_exprs())

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(pair, st.sampled_from(["and", "or"]), inner, inner), st.builds(single, st.just("not"), inner)
        )

    return st.recursive(plain, grow, max_leaves=3)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": op.add,
    "sub": op.sub,
    "mul": op.mul,
    "neg": op.neg,
    "floordiv": np.floor_divide,
    "mod": op.mod,
    "min": np.minimum,
    "max": np.maximum,
    **{name: getattr(op, name) for name in COMPARISONS},
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
}
SHAPE = tuple(a.extent for a in AXES)
GRID = dict(zip(AXES, np.indices(SHAPE), strict=True))


def value(e: Expr) -> Any:
    """The values of an expression at all points, independently of the interpreter."""

    def at(e: Expr) -> Any:
        match e:
            case Const(v):
                return np.asarray(v)
            case Axis():
                return GRID[e]
            case Apply(fn, args):
                return FUNCTIONS[fn](*(at(a) for a in args))
            case _:
                raise AssertionError(e)

    return np.broadcast_to(at(e), SHAPE)


@settings(max_examples=300, deadline=None)
@given(index_exprs())
def test_a_simplified_index_is_equal_everywhere(e: Expr) -> None:
    simple = simplify(e)
    assert np.array_equal(value(e), value(simple)), f"{print_expr(e)} → {print_expr(simple)}"


@settings(max_examples=200, deadline=None)
@given(guards())
def test_a_simplified_guard_is_equal_everywhere(guard: Expr) -> None:
    simple = simplify_guard(guard)
    assert np.array_equal(value(guard), value(TRUE if simple is None else simple))


@settings(deadline=None)
@given(index_exprs())
def test_simplification_is_idempotent(e: Expr) -> None:
    once = simplify(e)
    assert simplify(once) == once


@settings(max_examples=200, deadline=None)
@given(index_exprs())
def test_bounds_contain_every_value(e: Expr) -> None:
    found = bounds(e)
    values = value(e)
    assert found is None or (found[0] <= values.min() and values.max() <= found[1])


@settings(deadline=None)
@given(index_exprs())
def test_bounds_of_sums_of_axes_are_exact(e: Expr) -> None:
    form = linear(e)
    if form is not None and all(isinstance(a, Axis) for a, _ in form.terms):
        assert bounds(form.expr()) == (value(e).min(), value(e).max())


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        ((M * 3 + J) // 3, "i"),
        ((M * 3 + J) % 3, "j"),
        ((M * 15 + J * 5 + K) // 5 % 3, "j"),
        ((M * 6 + K + 6) // 6, "i+1"),
        (K // 2 // 2, "k//4"),
        (M * 2 - M - M, "0"),
        ((M + J) - J, "i"),
        (M - M // 3 * 3, "i%3"),
        (M // 3 * 6 - M * 2 + K, "k-i%3*2"),
        ((K + 5) // 2 * 2 - K, "(k+1)%2*(-1)+5"),
        (K // 2 - K // 4 * 2, "k//2%2"),
        (M // 3 * 3 + M % 3, "i"),
        ((M + K) // 3 * 6 + (M + K) % 3 * 2 - M, "i+k*2"),
        (U, "0"),
    ],
)
def test_rules(e: Expr, expected: str) -> None:
    assert print_expr(simplify(e)).replace(" ", "") == expected


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        (M < 4, None),
        (M >= 0, None),
        (apply("and", M >= 0, M < 3), "i<3"),
        (apply("and", M < 3, M < 3), "i<3"),
        (M + 4 < 3, "false"),
        (M + 1 < 3, "i<2"),
    ],
)
def test_guards_that_always_or_never_hold_are_found(guard: Expr, expected: str | None) -> None:
    found = simplify_guard(guard)
    assert (None if found is None else print_expr(found).replace(" ", "")) == expected


def test_division_by_what_is_not_positive_is_left_alone() -> None:
    for e in (apply("floordiv", M, 0), apply("mod", M, -2), apply("floordiv", apply("floordiv", M, 0), 2)):
        assert axes_in(simplify(e)) == (M,)


def test_conjuncts_of_nested_guards() -> None:
    parts = (M < 2, J < 2, K < 2)
    guard = both(both(parts[0], parts[1]), parts[2])
    assert conjuncts(guard) == parts
    assert conjuncts(None) == ()
    assert simplify_guard(TRUE) is None


def test_deep_divisions_simplify_in_reasonable_time() -> None:
    e: Expr = M * 64 + K
    for n in range(12):
        e = (e + n) // 2 + (e % 3) if n % 4 == 0 else (e + n) // 2 + n
    start = time.process_time()
    simplify(e)
    assert time.process_time() - start < 5


def random_nest(seed: int) -> tuple[Kernel, Nest]:
    """A permuted, guarded copy with subscripts that are always inside: only simplification is tried here."""
    rng = random.Random(seed)
    axes = [Axis(f"a{k}", rng.choice((1, 2, 3, 4))) for k in range(rng.randint(1, 3))]
    flat: Expr = Const(0)
    for a in axes:
        flat = flat * a.extent + a
    size = int(np.prod([a.extent for a in axes]))
    c = rng.choice((1, 2, 3))
    x = Param("x", Type(i64, (size // c + 1, c)))
    guard = apply(rng.choice(COMPARISONS), flat % rng.randint(1, 4), rng.randint(0, 3)) if rng.random() < 0.7 else None
    y = Param("y", Type(i64, tuple(a.extent for a in axes)))
    nest = Nest("y", tuple(axes), tuple(axes), x[flat // c, flat % c] + flat, None, guard)
    return Kernel((x,), (y,), (), (nest,)), nest


@given(st.integers(0, 1 << 20))
def test_a_simplified_nest_computes_the_same(seed: int) -> None:
    kernel, nest = random_nest(seed)
    simple = Kernel(kernel.params, kernel.results, (), (simplify_nest(nest),))
    x = np.arange(kernel.params[0].type.size).reshape(kernel.params[0].shape) * 3
    np.testing.assert_array_equal(run_kernel(simple, [x])[0], run_kernel(kernel, [x])[0])
    assert all(a.extent > 1 for a in simple.nests[0].axes)


def test_data_expressions_keep_their_arithmetic() -> None:
    x = Param("x", Type(i64, (4,)))
    e = x[M + 0] * 2 + x[M * 1] * 0
    assert simplify(e) == x[M] * 2 + x[M] * 0
