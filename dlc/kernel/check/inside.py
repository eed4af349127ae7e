"""Whether every load and store of a kernel stays inside its tensor.

    for i<4: r[i] = p[i + 1]            i + 1 runs from 1 to 4, p has 4 elements: outside
    for i<4: r[i] = p[i + 1] if i < 3   inside, by the guard

A subscript is decided by the first of these that can:

1. Intervals, in which data have the range of their type: `min(max(p[i], 0), 3)` is inside 4 elements whatever p holds.
2. Projection of the conditions under which it is evaluated (the guard, branches of `select`), quotients and remainders
   flattened: inside where no element outside satisfies them.
3. A search for a point outside: all points of the axes involved where these are few, their ends and a sample where not.

An error always has a point, and integers of the parameters, at which the subscript is outside. What none of the three
decides counts as inside, and nothing is said of it:

- A subscript that is data which the kernel itself does not bound, as `x[p[i]]`: whoever gives the data answers for it.
  Where the kernel bounds it, as `x[min(max(p[i], 0), 3) + 1]`, it has to bound it rightly.
- A point outside may be excluded by conditions on other data, by what a nest before wrote into a local, or by
  arithmetic on data that intervals know little of (as `bitand`).
- There may be none, among more points than are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import numpy as np

from dlc.base.types import Array, DType, i64
from dlc.kernel.check.access import COMPLEMENT, Access, negated, span_of
from dlc.kernel.evaluate import values_over
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import dtype_of
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import Interval, conjuncts, is_index
from dlc.kernel.solve.flatten import Flattener, row_of
from dlc.kernel.solve.forms import combine, constant
from dlc.kernel.solve.inequalities import Row, impossible

Verdict = Literal["inside", "outside", "unknown"]

ALL_POINTS = 1 << 21
"""Points that are tried one by one; of more than these only the ends of the axes and a sample."""
SAMPLE = 1 << 14
FARTHEST = 1 << 40
"""Magnitude of the data that are tried: sums and products with extents stay within 64 bits."""
MOST_ENDS = 12
"""Axes whose ends are combined."""
MOST_CASES = 16
"""Ways through the selections of a subscript."""
_ORDERED = frozenset({"lt", "le", "gt", "ge"})


@dataclass(frozen=True)
class Found:
    """What is known of one subscript."""

    verdict: Verdict
    span: Interval = (0, 0)
    """Smallest and largest value that it is seen to have, where it is outside."""


def find(kernel: Kernel, access: Access, d: int) -> Found:
    """What is known of subscript `d` of an access of a kernel."""
    size = kernel.tensors[access.tensor].shape[d]
    low, high = span_of(access.index[d], kernel.dtypes)
    if low >= 0 and high < size:
        return Found("inside")
    found = [_decide(case, size, kernel) for case in _cases(access.index[d], access.conditions)]
    spans = [f.span for f in found if f.verdict == "outside"]
    if spans:
        return Found("outside", (min(s[0] for s in spans), max(s[1] for s in spans)))
    return Found("unknown" if not found or any(f.verdict == "unknown" for f in found) else "inside")


# ---- cases ----
@dataclass(frozen=True)
class _Case:
    """A subscript without selections, and the conditions that lead to it."""

    subscript: Expr
    conditions: tuple[Expr, ...]


def _cases(subscript: Expr, conditions: tuple[Expr, ...]) -> list[_Case]:
    """One case for every way through the selections of a subscript; none where there are too many."""
    pending, done = [_Case(subscript, conditions)], list[_Case]()
    while pending:
        case = pending.pop()
        choice = _choice(case.subscript)
        if choice is None:
            done.append(case)
        else:
            condition, then, otherwise = choice.args
            pending.append(_Case(_chosen(case.subscript, choice, then), (*case.conditions, *conjuncts(condition))))
            pending.append(_Case(_chosen(case.subscript, choice, otherwise), (*case.conditions, *negated(condition))))
        if len(pending) + len(done) > MOST_CASES:
            return []
    return done


def _choice(e: Expr) -> Apply | None:
    """The first selection of a subscript that is not inside a load."""
    match e:
        case Apply("select", _):
            return e
        case Apply(_, args):
            return next((found for a in args if (found := _choice(a)) is not None), None)
        case _:
            return None


def _chosen(e: Expr, choice: Expr, branch: Expr) -> Expr:
    if e == choice:
        return branch
    return apply(e.fn, *(_chosen(a, choice, branch) for a in e.args)) if isinstance(e, Apply) else e


# ---- one case ----
@dataclass
class _Atoms:
    """Data in index arithmetic as unknowns: axes of their own, which range over what the data may be."""

    dtypes: Mapping[str, DType]
    known: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    def plain(self, e: Expr) -> Expr:
        """The expression with everything that is no index arithmetic as an unknown."""
        if is_index(e):
            return e
        if dtype_of(e, self.dtypes) is not i64:  # narrower integers wrap
            return self._unknown(e)
        match e:
            case Apply(fn, (x, y)) if fn in ("add", "sub", "min", "max"):
                return apply(fn, self.plain(x), self.plain(y))
            case Apply("mul", (x, Const(int() as k))) | Apply("mul", (Const(int() as k), x)):
                return apply("mul", self.plain(x), k)
            case Apply("floordiv" | "mod" as fn, (x, Const(int() as k))) if k > 0:
                return apply(fn, self.plain(x), k)
            case _:
                return self._unknown(e)

    def _unknown(self, e: Expr) -> Expr:
        if e not in self.known:
            low, high = span_of(e, self.dtypes)
            # The mark keeps these names apart from those of axes, which are identifiers.
            self.known[e] = Axis(f"d'{len(self.known)}", high - low + 1) + low
        return self.known[e]

    def condition(self, e: Expr) -> Expr | None:
        """A comparison of integers over axes and unknowns; None for any other condition."""
        match e:
            case Apply(fn, (x, y)) if fn in COMPLEMENT and self._is_integer(x) and self._is_integer(y):
                return apply(fn, self.plain(x), self.plain(y))
            case Const(bool()):
                return e
            case _:
                return e if _is_condition(e) else None

    def _is_integer(self, e: Expr) -> bool:
        if isinstance(e, Const):
            return type(e.value) is int
        dtype = dtype_of(e, self.dtypes)
        return dtype is not None and dtype.is_integer


def _is_condition(e: Expr) -> bool:
    """Whether a condition depends on axes alone."""
    match e:
        case Apply("and" | "or" | "not" | "xor", args):
            return all(_is_condition(a) for a in args)
        case Apply(fn, (x, y)):
            return fn in COMPLEMENT and is_index(x) and is_index(y)
        case Const(value):
            return isinstance(value, bool)
        case _:
            return False


def _decide(case: _Case, size: int, kernel: Kernel) -> Found:
    atoms = _Atoms(kernel.dtypes)
    subscript = atoms.plain(case.subscript)
    translated = [atoms.condition(c) for c in case.conditions]
    conditions = [c for c in translated if c is not None]
    if _proved(subscript, size, conditions):
        return Found("inside")
    data = _data(atoms.known, kernel)
    if data is None or len(conditions) < len(translated):
        return Found("unknown")
    mapping: dict[Expr, Expr] = {load: axis for axis, load in data.items()}
    at, *where = (substitute(e, mapping) for e in (case.subscript, *case.conditions))
    limits = {axis: _tried(kernel.dtypes[load.param]) for axis, load in data.items()}
    found = _searched(at, size, where, limits)
    if not data:
        return found
    # A subscript that follows its data wherever they go is not bounded by the kernel.
    near = {axis: (low // 2, high // 2) for axis, (low, high) in limits.items()}
    return found if _searched(at, size, where, near) == found else Found("unknown")


def _tried(dtype: DType) -> Interval:
    low, high = dtype.limits
    return max(low, -FARTHEST), min(high, FARTHEST)


def _data(unknowns: Iterable[Expr], kernel: Kernel) -> Mapping[Axis, Load] | None:
    """Axes in the place of loads that may be any number of their types, each apart from the others; None if not all."""
    given = {p.name for p in kernel.params if p.dtype.is_integer}
    found: dict[str, Load] = {}
    for e in unknowns:
        while isinstance(e, Apply) and SCALARS[e.fn].rule == "cast":
            (e,) = e.args
        if not isinstance(e, Load) or e.param not in given or found.get(e.param, e) != e:
            return None
        found[e.param] = e
    return {Axis(f"d'{k}", 1): load for k, load in enumerate(found.values())}


def _proved(subscript: Expr, size: int, conditions: Sequence[Expr]) -> bool:
    """Whether no solution of the conditions has the subscript below zero, or at `size` or above."""
    flattener = Flattener()
    rows: list[Row] = []
    for c in conditions:
        match c:
            case Apply(fn, (x, y)) if fn in _ORDERED and is_index(x) and is_index(y):
                rows.append(row_of(flattener, c))
            case Apply("eq", (x, y)) if is_index(x) and is_index(y):
                difference = combine((1, flattener.form(x)), (-1, flattener.form(y)))
                rows += [difference, combine((-1, difference))]
            case _:
                pass
    form = flattener.form(subscript)
    rows += [row for e in flattener.equations for row in (e, combine((-1, e)))]
    below = combine((-1, form), (-1, constant(1)))
    above = combine((1, form), (-size, constant(1)))
    return all(impossible((*rows, row), [e for e, _ in row.terms]) or _never(row) for row in (below, above))


def _never(row: Row) -> bool:
    return not row.terms and row.constant < 0


def _searched(subscript: Expr, size: int, conditions: Sequence[Expr], data: Mapping[Axis, Interval]) -> Found:
    """A search for a point outside among points of the axes, and data, that satisfy all conditions."""
    axes = axes_in(subscript, *conditions)
    whole = not data and math.prod(a.extent for a in axes) <= ALL_POINTS
    grid = _everywhere(axes) if whole else _somewhere({a: data.get(a, (0, a.extent - 1)) for a in axes})
    holds = np.ones((1,) * max(1, len(axes)), bool)
    for c in conditions:
        holds = holds & values_over(c, grid)
    values, holds = np.broadcast_arrays(values_over(subscript, grid), holds)
    kept = values[holds]
    low, high = (int(kept.min()), int(kept.max())) if kept.size else (0, 0)
    if low < 0 or high >= size:
        return Found("outside", (low, high))
    return Found("inside" if whole else "unknown")


def _everywhere(axes: Sequence[Axis]) -> Mapping[Axis, Array]:
    rank = len(axes)
    return {a: np.arange(a.extent).reshape([-1 if k == n else 1 for k in range(rank)]) for n, a in enumerate(axes)}


def _somewhere(ranges: Mapping[Axis, Interval]) -> Mapping[Axis, Array]:
    """The ends of ranges in all combinations, if these are few, and a sample of points that is always the same."""
    random = np.random.default_rng(0)
    sides = np.array(list(product((False, True), repeat=min(len(ranges), MOST_ENDS)))).T
    grid: dict[Axis, Array] = {}
    for k, (axis, (low, high)) in enumerate(ranges.items()):
        ends = np.where(sides[k % len(sides)], high, low)
        grid[axis] = np.concatenate([ends, random.integers(low, high, SAMPLE, endpoint=True)])
    return grid
