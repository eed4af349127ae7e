"""Reductions along contiguous elements: several vectors of partial results, combined at the end.

    s = Σₖ f(x[k])   →   v₀ … v₃ = Σ over every fourth vector;   s = fold(v₀ + v₁ + v₂ + v₃) + the last few

The order of additions differs from the order of the axis, which the language of nests leaves open. A body without a
vector form of its own (exp and the like) is first evaluated into a short buffer, in a loop that compilers vectorise. So
is one with functions of which vectors are faster that reads where data says, with what changes nothing in the place of
points that its guard leaves out. Without such functions single elements are faster, as loads of vectors are made of
loads of elements there, and branches that always go one way cost nothing:

    s = Σₖ f(x[c[k]]) where c[k] < n       →   b[k] = c[k] < n ? f(x[c[k]]) : 0;                     s = Σₖ b[k]
    s = Σₖ v[k]·x[c[k]] where c[k] < n     →   if c[k] < n: s₀ += v[k]·x[c[k]];  if c[k+1] < n: s₁ += …;  s = s₀ + s₁
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.base.types import DType, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, loads, select, substitute
from dlc.kernel.loops.program import Block, Fold, For, Lanes, Let, Local, Set, Stmt, Store, loop, walk_stmts, wrap
from dlc.kernel.nest import Nest, identity
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.clip import guarded
from dlc.kernel.schedules.flat import at, coefficient, flat_simplify, positions
from dlc.kernel.schedules.lanes import has_lanes, vectorise
from dlc.kernel.schedules.levels import LONG, levels
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scope import merge_run
from dlc.kernel.schedules.window_rows import by_loads, loaded_once
from dlc.kernel.simplify import conjuncts, is_index, simplify
from dlc.kernel.work import applied

PARTIAL = 4
"""Variables of partial results: as many sums run at the same time."""
DEAR = 4.0
"""Cycles of a function that vectors are made for, although loads take longer then."""
LINES = 4
"""Lines of overlapping windows at a time: with more, little more of what is loaded is shared."""
STAGE = "stage"
CHUNK = 64
"""Elements evaluated at a time: a few vectors of the widest kind, few enough to stay in the nearest cache."""


@dataclass(frozen=True)
class Row:
    """One contiguous reduction: nest, the axis along it, the axes around it, its variable, lanes of a vector.

    It has at most `partial` partial results, and is evaluated `chunk` elements at a time where it has no vector form.
    """

    nest: Nest
    axis: Axis
    outer: tuple[Axis, ...]
    sum: Local
    lanes: int
    dtypes: Mapping[str, DType]
    partial: int = PARTIAL
    chunk: int = CHUNK

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
    nest: Nest,
    reduced: tuple[Axis, ...],
    sum: Local,
    machine: Machine,
    dtypes: Mapping[str, DType],
    partial: int = PARTIAL,
    chunk: int = CHUNK,
) -> tuple[Stmt, ...] | None:
    """sum = sum r body over the reduced axes, by vectors; None when the reduction is not contiguous.

    `partial` results run at the same time, at most; see `Row` for `chunk`, a multiple of a vector's lanes.
    """
    for row in _contiguous(nest, reduced, sum, machine, dtypes):
        size = row.axis.extent // row.lanes * row.lanes
        row = replace(row, partial=partial, chunk=chunk if row.nest.where is None else min(chunk, size))
        if row.nest.where is None and _has_vectors(row):
            return _in_levels((row,), _by_vectors)
        if row.nest.where is not None and row.axis.extent >= partial and _cheap(row.nest.body):
            return _in_levels((replace(row, lanes=1, chunk=1),), _by_elements)
        if _stageable(row):
            return _in_levels((row,), _by_chunks)
    return None


def _asks_data(nest: Nest) -> bool:
    """Whether a guard asks data alone which points count.

    Subscripts that data says are clamped, and no data keeps other subscripts inside: every load is legal everywhere.
    """
    parts = conjuncts(nest.where)
    return bool(parts) and all(any(True for _ in loads(p)) for p in parts)


def _cheap(body: Expr) -> bool:
    """Whether vectors of what a body computes save less than loads of vectors cost."""
    return all(is_index(x) or SCALARS[x.fn].cycles < DEAR for x in applied(body))


def folded_together(
    nests: Sequence[Nest],
    reduced: tuple[Axis, ...],
    sums: Sequence[Local],
    machine: Machine,
    dtypes: Mapping[str, DType],
    partial: int = PARTIAL,
) -> tuple[Stmt, ...] | None:
    """The same for several nests over these axes, vector by vector of all of them."""
    found = [list(_contiguous(n, reduced, s, machine, dtypes)) for n, s in zip(nests, sums, strict=True)]
    for several in zip(*found, strict=False):
        rows = [replace(r, partial=partial) for r in several]
        alike = len({(r.axis, r.outer) for r in rows}) == 1
        if alike and all(r.nest.where is None and _has_vectors(r) for r in rows):
            return _in_levels(rows, _by_vectors)
    return None


def folded_windows(
    nests: Sequence[Nest],
    reduced: tuple[Axis, ...],
    sums: Sequence[Local],
    machine: Machine,
    dtypes: Mapping[str, DType],
) -> tuple[Stmt, ...] | None:
    """The same for nests that read overlapping windows: some of their lines at a time, each vector loaded once."""
    found = [list(_contiguous(n, reduced, s, machine, dtypes)) for n, s in zip(nests, sums, strict=True)]
    for several in zip(*found, strict=False):
        rows = [replace(r, partial=1) for r in several]
        alike = len({(r.axis, r.outer) for r in rows}) == 1 and rows[0].outer
        if alike and all(r.nest.where is None and _has_vectors(r) for r in rows):
            return _in_levels(rows, _by_lines)
    return None


def _contiguous(
    nest: Nest, reduced: tuple[Axis, ...], sum: Local, machine: Machine, dtypes: Mapping[str, DType]
) -> Iterator[Row]:
    """The reduction along each axis that is long enough for vectors, the innermost first."""
    if (
        not reduced
        or not (nest.where is None or _asks_data(nest))
        or machine.vector_bytes < 16
        or machine.ordered
        or sum.dtype not in (f32, f64)
    ):
        return
    (nest,), reduced = merge_run((nest,), reduced)
    lanes = machine.lanes(sum.dtype.itemsize)
    for axis in reversed(reduced):
        if axis.extent >= 2 * lanes:
            yield Row(nest, axis, tuple(a for a in reduced if a != axis), sum, lanes, dtypes)


def _has_vectors(row: Row) -> bool:
    return all(row.vector(row.axis + k * row.lanes) is not None for k in range(row.partial))


def stage_of(dtype: DType) -> str:
    """The short buffer of sums of a type: nests of a group may have sums of several types, and results of others."""
    return f"{STAGE}_{dtype}"


def staged(body: tuple[Stmt, ...]) -> Mapping[str, tuple[DType, int]]:
    """The short buffers that the statements use: name → type and number of elements."""
    loops = [s for s in walk_stmts(body) if isinstance(s, For)]
    found: dict[str, tuple[DType, int]] = {}
    for dtype in (f32, f64):
        name = stage_of(dtype)
        sizes = [s.axis.extent for s in loops if any(isinstance(x, Store) and x.out == name for x in s.body)]
        if sizes:
            found[name] = dtype, max(sizes)
    return found


def partial_sums(body: tuple[Stmt, ...]) -> int:
    """The most partial results of a sum that the statements have at the same time; 0: they have none."""
    blocks = (s.body for s in walk_stmts(body) if isinstance(s, Block))
    names = ([s.local.name for s in b if isinstance(s, Let) and s.local.lanes > 1] for b in blocks)
    return max((n for b in names for n in Counter(name.rpartition("_")[0] for name in b).values()), default=0)


def _stageable(row: Row) -> bool:
    """A body that is worth a loop of its own: loads of the result's type that are contiguous, fixed, or where data
    says; at least one of them contiguous."""
    steps = [coefficient(p, row.axis) for p in positions(row.nest.body) if is_index(p)]
    return (
        row.axis.extent >= row.chunk and row.chunk % row.lanes == 0 and 1 in steps and all(s in (0, 1) for s in steps)
    )


def _partials(row: Row, beside: int = 1) -> list[Local]:
    """The variables of a row that has so many rows beside it, itself included."""
    count = min(max(1, row.partial // beside), row.axis.extent // row.lanes)
    return [Local(f"{row.sum.name}_{k}", row.sum.dtype, row.lanes) for k in range(count)]


def _in_levels(rows: Sequence[Row], loops: Callable[[Sequence[Row]], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The loops with partial results around them; long sums in two levels."""
    row = rows[0]
    wide = len(_partials(row, len(rows))) * row.lanes
    unit = math.lcm(wide, row.chunk)
    cut = levels((*row.outer, row.axis), LONG * wide, unit) if row.fn == "add" else None
    if cut is None:
        return _with_partials(rows, loops)
    out: list[Stmt] = []
    for piece in cut.pieces:
        *outer, axis = piece.inner
        parts = [replace(r, nest=_moved(r.nest, {cut.axis: piece.value}), axis=axis, outer=tuple(outer)) for r in rows]
        out += wrap(piece.blocks, _with_partials(parts, loops))
    return wrap(cut.outer, tuple(out))


def _with_partials(rows: Sequence[Row], loops: Callable[[Sequence[Row]], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    inner = loops(rows)
    sums = [_partials(r, len(rows)) for r in rows]
    start = tuple(Let(p, Const(identity(rows[0].fn, p.dtype))) for parts in sums for p in parts)
    end: list[Stmt] = []
    for row, parts in zip(rows, sums, strict=True):
        total: Expr = parts[0]
        for p in parts[1:]:
            total = Apply(row.fn, (total, p))
        whole: Expr = Fold(row.fn, parts[0]) if row.lanes > 1 else parts[0]
        end += (*([Set(parts[0], total)] if len(parts) > 1 else []), Set(row.sum, Apply(row.fn, (row.sum, whole))))
    return (Block((*start, *inner, *end)),)


def _by_vectors(rows: Sequence[Row]) -> tuple[Stmt, ...]:
    row = rows[0]
    sums = [_partials(r, len(rows)) for r in rows]
    wide = len(sums[0]) * row.lanes
    main, rest = _multiple(row.axis, wide), _multiple(row.axis, row.lanes)
    steps = tuple(
        _add(r, parts[k], r.vector(r.axis + k * r.lanes))
        for k in range(len(sums[0]))
        for r, parts in zip(rows, sums, strict=True)
    )
    body: list[Stmt] = [For(row.axis, Const(0), main, steps, wide)]
    if rest != main:
        one = tuple(_add(r, parts[0], r.vector(r.axis)) for r, parts in zip(rows, sums, strict=True))
        body.append(For(row.axis, main, rest, one, row.lanes))
    return wrap(row.outer, (*body, *_tail(rows, rest)))


def _by_lines(rows: Sequence[Row]) -> tuple[Stmt, ...]:
    """Vectors of several values of the innermost axis around, as long as there are so many."""
    row = rows[0]
    if not row.outer:
        return _by_vectors(rows)
    *around, line = row.outer
    main = _multiple(row.axis, row.lanes)

    def lines(count: int) -> tuple[Stmt, ...]:
        names: dict[Expr, Local] = {}
        moved = [[replace(r, nest=_moved(r.nest, {line: line + k})) for r in rows] for k in range(count)]
        steps: list[Stmt] = []
        for part in moved:
            for r in part:
                value = r.vector(r.axis)
                assert value is not None, "the body had a vector form at another place"
                steps += loaded_once(value, r.sum.dtype, names)
                steps.append(_add(r, _partials(r, len(rows))[0], substitute(value, names)))
        inner = For(row.axis, Const(0), main, by_loads(steps), row.lanes)
        return (inner, *(s for part in moved for s in _tail(part, main)))

    full = line.extent // LINES * LINES
    out: list[Stmt] = [For(line, Const(0), Const(full), lines(LINES), LINES)] if full else []
    if full < line.extent:
        out.append(For(line, Const(full), Const(line.extent), lines(1)))
    return wrap(tuple(around), tuple(out))


def _by_chunks(rows: Sequence[Row]) -> tuple[Stmt, ...]:
    (row,) = rows
    parts = _partials(row)
    main = _multiple(row.axis, row.chunk)
    j = Axis("j", row.chunk)
    moved = _moved(row.nest, {row.axis: row.axis + j})
    value, stage = Local("staged", row.sum.dtype), stage_of(row.sum.dtype)
    evaluate = loop(j, Store(stage, j, moved.body))
    if moved.where is not None:  # evaluated everywhere, as vectors are
        kept = select(moved.where, value, identity(row.fn, value.dtype))
        evaluate = loop(j, Let(value, moved.body), Store(stage, j, kept))
    gather = tuple(
        _add(row, parts[k % len(parts)], Lanes(Load(stage, (Const(k * row.lanes),)), row.lanes))
        for k in range(row.chunk // row.lanes)
    )
    return wrap(row.outer, (For(row.axis, Const(0), main, (evaluate, *gather), row.chunk), *_tail(rows, main)))


def _by_elements(rows: Sequence[Row]) -> tuple[Stmt, ...]:
    (row,) = rows
    parts = _partials(row)
    main = _multiple(row.axis, len(parts))
    steps: list[Stmt] = []
    for k, part in enumerate(parts):
        moved = _moved(row.nest, {row.axis: row.axis + k})
        steps += guarded((), moved.where, (_add(row, part, moved.body),))
    return wrap(row.outer, (For(row.axis, Const(0), main, tuple(steps), len(parts)), *_tail(rows, main)))


def _moved(nest: Nest, mapping: Mapping[Expr, Expr]) -> Nest:
    """The terms of a sum at other points."""
    where = None if nest.where is None else flat_simplify(substitute(nest.where, mapping))
    return replace(nest, body=at(nest.body, mapping), where=where)


def _multiple(axis: Axis, unit: int) -> Expr:
    """The end of as many whole units as an axis has."""
    return simplify(axis.stop // unit * unit)


def _tail(rows: Sequence[Row], first: Expr) -> tuple[Stmt, ...]:
    axis = rows[0].axis
    if first == axis.stop:
        return ()
    steps: list[Stmt] = []
    for r in rows:
        steps += guarded((), r.nest.where, (Set(r.sum, Apply(r.fn, (r.sum, r.nest.body))),))
    return (For(axis, first, axis.stop, tuple(steps)),)


def _add(row: Row, part: Local, value: Expr | None) -> Stmt:
    assert value is not None, "the body had a vector form at another place"
    return Set(part, Apply(row.fn, (part, value)))
