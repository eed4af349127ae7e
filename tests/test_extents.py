"""Extents: formulas over sizes that behave like numbers, and decide only what holds for all sizes."""

from __future__ import annotations

import math
import operator
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc.base.extent_text import parse
from dlc.base.extents import (
    Dim,
    Undecided,
    bounds,
    capacity,
    divided,
    is_multiple,
    larger,
    settled,
    shown,
    smaller,
    symbol,
    symbols,
    value,
)
from dlc.base.types import Type, f32

SYMBOLS = {"a": (1, 7, 1), "b": (0, 5, 1), "c": (2, 6, 8)}
"""Name → smallest and largest count of units, and the unit."""
A, B, C = (symbol(name, *limits) for name, limits in SYMBOLS.items())


@dataclass(frozen=True)
class Formula:
    """An extent, and the same as a function of sizes."""

    extent: Any
    number: Callable[[dict[str, int]], int]


def sizes() -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries(
        {name: st.integers(low, high).map(lambda k, unit=unit: k * unit) for name, (low, high, unit) in SYMBOLS.items()}
    )


def _joined(pair: tuple[str, Formula, Formula]) -> Formula:
    fn, x, y = pair
    apply = {"+": operator.add, "-": operator.sub, "*": operator.mul, "min": smaller, "max": larger}[fn]
    numbers = {"min": min, "max": max}.get(fn, apply)
    return Formula(apply(x.extent, y.extent), lambda s: numbers(x.number(s), y.number(s)))


def _divided(pair: tuple[str, Formula, int]) -> Formula:
    fn, x, k = pair
    apply: Callable[[Any, Any], Any] = (lambda a, b: a // b) if fn == "//" else (lambda a, b: a % b)
    return Formula(apply(x.extent, k), lambda s: apply(x.number(s), k))


LEAVES = st.one_of(
    st.integers(-9, 9).map(lambda k: Formula(k, lambda _: k)),
    st.sampled_from([("a", A), ("b", B), ("c", C)]).map(lambda p: Formula(p[1], lambda s: s[p[0]])),
)
FORMULAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner).map(_joined),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 9)).map(_divided),
    ),
    max_leaves=8,
)


@given(FORMULAS, sizes())
def test_arithmetic_is_that_of_the_numbers(f: Formula, s: dict[str, int]) -> None:
    assert value(f.extent, s) == f.number(s)
    low, high = bounds(f.extent)
    assert low <= f.number(s) <= high


@given(FORMULAS)
def test_bounds_of_one_size_are_reached(f: Formula) -> None:
    if len(found := symbols(f.extent)) == 1:
        low, high, unit = SYMBOLS[found[0].name]
        several = [value(f.extent, {found[0].name: k * unit}) for k in range(low, high + 1)]
        assert bounds(f.extent) == (min(several), max(several))


@given(FORMULAS)
def test_text_is_read_back(f: Formula) -> None:
    assert parse(str(f.extent)) == f.extent
    assert pickle.loads(pickle.dumps(f.extent)) == f.extent
    assert not isinstance(f.extent, Dim) or "(" not in shown(f.extent) or re.search("//|min", shown(f.extent))


@given(FORMULAS, sizes(), st.sets(st.sampled_from([A, B, C])))
def test_a_formula_with_some_of_its_sizes(f: Formula, s: dict[str, int], known: set[Any]) -> None:
    at = settled(f.extent, {found: s[found.name] for found in symbols(*known)})
    assert value(at, s) == f.number(s)
    assert not {x.name for x in symbols(at)} & {x.name for x in symbols(*known)}


@given(FORMULAS, FORMULAS, st.lists(sizes(), min_size=3, max_size=3))
def test_what_is_decided_holds_for_all_sizes(f: Formula, g: Formula, several: list[dict[str, int]]) -> None:
    relations = (operator.lt, operator.le, operator.gt, operator.ge)
    for relation in relations:
        try:
            decided = relation(f.extent, g.extent)
        except Undecided:
            continue
        assert all(relation(f.number(s), g.number(s)) == decided for s in several)
    if f.extent == g.extent:
        assert all(f.number(s) == g.number(s) for s in several)
        assert hash(f.extent) == hash(g.extent)


@given(FORMULAS, FORMULAS, sizes())
def test_quotients_are_exact(f: Formula, g: Formula, s: dict[str, int]) -> None:
    found = divided(f.extent * g.extent, g.extent)
    if found is not None and g.number(s):
        assert value(found, s) == f.number(s)


def test_shapes_that_exporters_compute() -> None:
    assert (A * C * 768) // (A * 12 * 64) == C
    assert math.prod((A, C, 3)) == 3 * A * C
    assert sum([A, B, 2]) == A + B + 2
    assert (C - 2) // 2 + 1 == C // 2  # a window of 2 over a multiple of 8
    assert is_multiple(A * 12, 12)
    assert not is_multiple(A * 12 + 1, 12)
    assert ((B + 1) // 2 + 1) // 2 == (B + 3) // 4  # windows of stride 2, one after the other
    assert capacity(A * C) == 7 * 48
    assert [s.name for s in symbols(A + C, B, 4)] == ["a", "b", "c"]
    assert shown(C + 2 * A) == "2*a+c"
    assert shown(C // 4) == "c//4"


def test_the_smaller_one_of_two() -> None:
    least = smaller(B, 3)
    assert bounds(least) == (0, 3)
    assert shown(least) == "min(3, b)"
    assert smaller(B + A, A + 3) - A == least
    assert smaller(2 * B, 6) == 2 * least
    assert smaller(smaller(B, 3), 3) == smaller(B, smaller(B, 3)) == least
    assert bounds(3 - least) == (0, 3)
    assert bounds(B - least) == (0, 2)
    assert bounds(larger(B, 3)) == (3, 5)
    assert parse("min(1,4)") == symbol("min", 1, 4)
    assert shown(smaller(A - B, 0)) == "min(0, a-b)"
    assert parse(str(smaller(A - B, 0))) == smaller(A - B, 0)


def test_a_formula_that_doubles_with_every_step_is_refused() -> None:
    """Soon, not when memory is full; bounds of many choices take no time that doubles with each."""
    grown: dict[str, Callable[[Any], Any]] = {
        "products": lambda e: e * e,
        "smaller ones": lambda e: smaller(2 * e - 1, e * B),
        "larger ones": lambda e: larger(e - 1, A * B * e),
    }
    for step in grown.values():
        e: Any = A + B + C
        with pytest.raises(Undecided, match="terms"):
            for _ in range(40):
                e = step(e)
                assert bounds(e)[0] <= bounds(e)[1]


def test_nothing_takes_a_size_for_a_number() -> None:
    for use in (range, int, float, list[Any](range(9)).__getitem__, bytes):
        with pytest.raises((Undecided, TypeError)):
            use(A)  # type: ignore[operator]
    for calculate in (lambda: 1.5 * A, lambda: A * 1.5, lambda: 1 / A, lambda: A / 2, lambda: A / B, lambda: A + 0.5):
        with pytest.raises(Undecided, match="has to be one number"):
            calculate()
    with pytest.raises(Undecided, match="whether b"):
        bool(B)
    assert bool(A)
    assert A != 3
    assert A != 3
    with pytest.raises(AttributeError):
        A.terms = ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "a",
        "a(1)",
        "a(2,1)",
        "a(1,1)",
        "1+",
        "(a(1,2))",
        "a(1,2)//3",
        "a(1,2,0)",
        "9" * 30,
        "min(1,a(1,2),3)",
        "b(1,a(1,2))",
    ],
)
def test_text_that_is_no_extent(bad: str) -> None:
    with pytest.raises(ValueError, match="extent"):
        parse(bad)


@given(FORMULAS, FORMULAS)
def test_types_of_formulas_are_read_back(f: Formula, g: Formula) -> None:
    if min(bounds(f.extent)[0], bounds(g.extent)[0]) >= 0:
        of = Type(f32, (f.extent, 3, g.extent))
        assert Type.parse(str(of)) == of


def test_types_have_the_smaller_one_of_two() -> None:
    for extent in (smaller(30, A), smaller(3 * A, smaller(C, 5) + 1)):
        assert Type.parse(str(Type(f32, (extent, 2, extent)))) == Type(f32, (extent, 2, extent))


def test_types_have_them() -> None:
    of = Type(f32, (A, 3, C + 1))
    assert str(of) == "f32[a(1,7),3,8*c(2,6,8)+1]"
    assert Type.parse(str(of)) == of
    assert of.room == (7, 3, 49)
    assert of.text == "f32[a,3,c+1]"
    assert of.at({"a": 2, "c": 16}) == Type(f32, (2, 3, 17))
    dense = Type(f32, (A, 3), dense=True)
    assert Type.parse(str(dense)) == dense
    assert dense.room == (21,)
    with pytest.raises(ValueError, match="negative"):
        Type.parse("f32[a(1,7)-2]")
