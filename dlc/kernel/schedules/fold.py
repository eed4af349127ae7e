"""Reductions along contiguous elements: several vectors of partial results, combined at the end.

    s = Σₖ f(x[k])   →   v₀ … v₃ = Σ over every fourth vector;   s = fold(v₀ + v₁ + v₂ + v₃) + the last few

The order of additions differs from the order of the axis, which the language of nests leaves open. A body without a
vector form of its own (exp and the like) is first evaluated into a short buffer, in a loop that compilers vectorise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dlc.base.types import DType, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, substitute
from dlc.kernel.loops.program import Block, Fold, For, Lanes, Let, Local, Set, Stmt, Store, loop, wrap
from dlc.kernel.nest import Nest, identity
from dlc.kernel.schedules.flat import at, coefficient, flat_simplify, positions
from dlc.kernel.schedules.lanes import has_lanes, vectorise
from dlc.kernel.schedules.levels import LONG, levels
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scope import merge_run
from dlc.kernel.simplify import simplify

PARTIAL = 4
STAGE = "stage"
# Elements evaluated at a time: a few vectors of the widest kind, few enough to stay in the nearest cache.
CHUNK = 64


@dataclass(frozen=True)
class Row:
    """One contiguous reduction: nest, the axis along it, the axes around it, its variable, lanes of a vector."""

    nest: Nest
    axis: Axis
    outer: tuple[Axis, ...]
    sum: Local
    lanes: int
    dtypes: Mapping[str, DType]

    @property
    def fn(self) -> str:
        """How values combine."""
        assert self.nest.reduce is not None
        return self.nest.reduce

    def vector(self, first: Expr) -> Expr | None:
        """The body for `lanes` points from `first` on."""
        lane = Axis("lane", self.lanes)
        found = vectorise(self.nest.body, {self.axis: first + lane}, lane, self.dtypes, self.sum.dtype)
        return found if found is not None and has_lanes(found) else None


def folded(
    nest: Nest, reduced: tuple[Axis, ...], sum: Local, machine: Machine, dtypes: Mapping[str, DType]
) -> tuple[Stmt, ...] | None:
    """sum = sum r body over the reduced axes, by vectors; None when the reduction is not contiguous."""
    if (
        not reduced
        or nest.where is not None
        or machine.vector_bytes < 16
        or machine.strict
        or sum.dtype not in (f32, f64)
    ):
        return None
    (nest,), reduced = merge_run((nest,), reduced)
    lanes = machine.lanes(sum.dtype.itemsize)
    for axis in reversed(reduced):
        if axis.extent < 2 * lanes:
            continue
        row = Row(nest, axis, tuple(a for a in reduced if a != axis), sum, lanes, dtypes)
        if all(row.vector(axis + k * lanes) is not None for k in range(PARTIAL)):
            return _in_levels(row, _by_vectors)
        if _stageable(row):
            return _in_levels(row, _by_chunks)
    return None


def stages(body: tuple[Stmt, ...]) -> bool:
    """Whether the statements use the short buffer."""
    from dlc.kernel.loops.program import writes

    return STAGE in writes(body)


def _stageable(row: Row) -> bool:
    """A body that is worth a loop of its own: contiguous or fixed loads of the result's type, at least one of them."""
    steps = [coefficient(p, row.axis) for p in positions(row.nest.body)]
    return row.axis.extent >= CHUNK and 1 in steps and all(s in (0, 1) for s in steps)


def _partials(row: Row) -> list[Local]:
    count = min(PARTIAL, row.axis.extent // row.lanes)
    return [Local(f"{row.sum.name}_{k}", row.sum.dtype, row.lanes) for k in range(count)]


def _in_levels(row: Row, loops: Callable[[Row], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The loops with partial results around them; long sums in two levels."""
    wide = len(_partials(row)) * row.lanes
    unit = math.lcm(wide, CHUNK)
    cut = levels((*row.outer, row.axis), LONG * wide, unit) if row.fn == "add" else None
    if cut is None:
        return _with_partials(row, loops(row))
    out: list[Stmt] = []
    for piece in cut.pieces:
        body = flat_simplify(substitute(row.nest.body, {cut.axis: piece.value}))
        *outer, axis = piece.inner
        part = replace(row, nest=replace(row.nest, body=body), axis=axis, outer=tuple(outer))
        out += wrap(piece.blocks, _with_partials(part, loops(part)))
    return wrap(cut.outer, tuple(out))


def _with_partials(row: Row, inner: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    parts = _partials(row)
    start = tuple(Let(p, Const(identity(row.fn, p.dtype))) for p in parts)
    for axis in reversed(row.outer):
        inner = (loop(axis, *inner),)
    total: Expr = parts[0]
    for p in parts[1:]:
        total = Apply(row.fn, (total, p))
    end = (Set(parts[0], total), Set(row.sum, Apply(row.fn, (row.sum, Fold(row.fn, parts[0])))))
    return (Block((*start, *inner, *end)),)


def _by_vectors(row: Row) -> tuple[Stmt, ...]:
    parts = _partials(row)
    wide = len(parts) * row.lanes
    main, rest = _multiple(row.axis, wide), _multiple(row.axis, row.lanes)
    steps = tuple(_add(row, p, row.vector(row.axis + k * row.lanes)) for k, p in enumerate(parts))
    body: list[Stmt] = [For(row.axis, Const(0), main, steps, wide)]
    if rest != main:
        one = _add(row, parts[0], row.vector(row.axis))
        body.append(For(row.axis, main, rest, (one,), row.lanes))
    return (*body, *_tail(row, rest))


def _by_chunks(row: Row) -> tuple[Stmt, ...]:
    parts = _partials(row)
    main = _multiple(row.axis, CHUNK)
    j = Axis("j", CHUNK)
    evaluate = loop(j, Store(STAGE, j, at(row.nest.body, {row.axis: row.axis + j})))
    gather = tuple(
        _add(row, parts[k % len(parts)], Lanes(Load(STAGE, (Const(k * row.lanes),)), row.lanes))
        for k in range(CHUNK // row.lanes)
    )
    return (For(row.axis, Const(0), main, (evaluate, *gather), CHUNK), *_tail(row, main))


def _multiple(axis: Axis, unit: int) -> Expr:
    """The end of as many whole units as an axis has."""
    return simplify(axis.stop // unit * unit)


def _tail(row: Row, first: Expr) -> tuple[Stmt, ...]:
    if first == row.axis.stop:
        return ()
    step = Set(row.sum, Apply(row.fn, (row.sum, row.nest.body)))
    return (For(row.axis, first, row.axis.stop, (step,)),)


def _add(row: Row, part: Local, value: Expr | None) -> Stmt:
    assert value is not None, "the body had a vector form at another place"
    return Set(part, Apply(row.fn, (part, value)))
