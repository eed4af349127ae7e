"""Sums along contiguous elements for several rows of an operand at the same time, as a matrix times a vector.

    for i: t = Σₖ x[k]·w[i,k]; r[i] = f(t)    →    for i += 4: t₀ … t₃ = Σₖ x[k]·w[i,k] … x[k]·w[i+3,k]; r[i] = f(t₀) …

What all rows read is read once, and memory delivers several streams faster than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dlc.kernel.expr import Axis, Const, Expr, axes_in, loads
from dlc.kernel.loops.program import Block, For, Let, Local, Stmt, Store, wrap
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.flat import at
from dlc.kernel.schedules.fold import folded_together, folded_windows
from dlc.kernel.schedules.scalar_loops import scalar_group
from dlc.kernel.schedules.scope import Scope
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.schedules.window_rows import window_axes
from dlc.spec import option

TOGETHER = 4
"""Rows at the same time: with more, the lines that come in drive each other out of the nearest cache."""
FAR = 32
"""Times the second-level cache from which on operands come from memory: from a cache one row at a time is faster."""


@dataclass(frozen=True)
class Rows(Choice):
    """Sums along contiguous elements, those of several rows at the same time."""

    name = "rows"
    rows: int = option(0, "rows that are summed at the same time", low=0)

    def apply(self, place: Place) -> Applied:
        scope = place.scope
        if scope is None or not scope.shared:
            raise Unfit("it has no rows")
        first, row = scope.nests[0], scope.shared[-1]
        shared = set(scope.shared)
        reduced = tuple(a for a in first.axes if a not in shared)
        windows = window_axes(first, scope.shared, reduced)
        several = math.prod(a.extent for a in windows)
        windows = windows if self.rows in (0, several) else ()
        count = self.rows or (several if windows else TOGETHER)
        conditions = (
            (count > 1, f"{count} rows are not several"),
            (bool(windows) or (row.limit is None and row.extent >= count), f"there are {row.extent} rows"),
            (first.reduce is not None and bool(reduced), "it adds nothing up"),
            (all(n.where is None for n in scope.nests), "it has a guard"),
            (first.out not in place.written, f"{first.out} has a value before"),
            (scope.plain[0] and shared <= set(first.axes), "its sums do not belong to one row each"),
            (all(n.reduce is None and set(n.axes) <= shared for n in scope.nests[1:]), "a follower adds up"),
            (all(n.out in scope.scalars for n in scope.nests if n.out in scope.narrow), "a follower has a buffer"),
        )
        require(conditions)
        if windows:
            points = product(*(map(Const, range(a.extent)) for a in windows))
            body = _together(
                place, scope, reduced, [dict(zip(windows, p, strict=True)) for p in points], folded_windows
            )
            around = scope.shared[: -len(windows)]
            return Applied(replace(self, rows=count), wrap(around, body) if around else (Block(body),), ())
        body = _together(place, scope, reduced, [{row: row + r} for r in range(count)], folded_together)
        read = sum(place.kernel.tensors[name].type.nbytes for name in _moving(first, row))
        if not self.rows and read < FAR * place.machine.l2:
            raise Unfit(f"its rows read {read} bytes, which a cache may hold")
        one = inside(scalar_group(scope, place.kernel, place.machine, place.written), scope.shared)
        full = row.extent // count * count
        loops: list[Stmt] = [For(row, Const(0), Const(full), body, count)]
        if full < row.extent:
            loops.append(replace(one, start=Const(full)))
        return Applied(replace(self, rows=count), wrap(scope.shared[:-1], tuple(loops)), ())


def _moving(nest: Nest, row: Axis) -> frozenset[str]:
    """The tensors of which every row reads its own elements."""
    return frozenset(x.param for x in loads(nest.body) if row in axes_in(*x.index))


def _together(
    place: Place,
    scope: Scope,
    reduced: tuple[Axis, ...],
    mappings: Sequence[dict[Expr, Expr]],
    fold: Callable[..., tuple[Stmt, ...] | None],
) -> tuple[Stmt, ...]:
    """The sums of some rows, given by what shared axes are there, then what follows row by row."""
    first, *followers = scope.nests
    type = place.kernel.tensors[first.out].dtype
    total = scope.scalars.get(first.out, Local("a0", type))
    sums = [replace(total, name=f"{total.name}{r}") for r in range(len(mappings))]
    nests = [_moved(first, m) for m in mappings]
    adding = fold(nests, reduced, sums, place.machine, place.kernel.dtypes)
    if adding is None:
        raise Unfit("its sums are not along contiguous elements")
    start = Const(place.kernel.start_of(first.out))
    out: list[Stmt] = [*(Let(s, start) for s in sums), *adding]
    for mapping, sum in zip(mappings, sums, strict=True):
        end: list[Stmt] = [Let(total, sum)] if first.out in scope.scalars else [_store(first, mapping, sum)]
        for n in followers:
            value = at(n.body, mapping)
            scalar = scope.scalars.get(n.out)
            end.append(Let(scalar, value) if scalar else Store(n.out, at(n.index[0], mapping), value))
        out.append(Block(tuple(end)))
    return tuple(out)


def _moved(nest: Nest, mapping: Mapping[Expr, Expr]) -> Nest:
    """The nest at another row; its subscript plays no part in its sum."""
    return replace(nest, body=at(nest.body, mapping))


def _store(nest: Nest, mapping: Mapping[Expr, Expr], value: Expr) -> Store:
    return Store(nest.out, at(nest.index[0], mapping), value)


def inside(loops: tuple[Stmt, ...], shared: tuple[Axis, ...]) -> For:
    """The innermost of the loops over shared axes, which have nothing between them."""
    (outer,) = loops
    assert isinstance(outer, For) and outer.axis == shared[0]
    return outer if len(shared) == 1 else inside(outer.body, shared[1:])
