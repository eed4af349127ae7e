"""Register tiles of scalars, for machines without vectors: rows x columns of sums in named variables.

    for r<R c<C: t[r,c] = sum_k a[r,k]·b[k,c]; out = f(t)
    →
    for r<R step 2: for c<C step 4: c0_0 = … = 0;  for k: c0_0 += a0·b0; c0_1 += a0·b1; …;  out = f(c0_0); …

What several elements of a tile read is loaded once. Nothing is copied: where guards say that a window leaves the data,
the rows for which no window does have tiles, and the others are computed one by one, with guards as bounds of loops.
Compilers find vectors in the columns of a tile where they are contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Self

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, both, loads, substitute
from dlc.kernel.loops.program import For, Stmt, wrap
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.schedules.loop_plan import tile_of
from dlc.kernel.schedules.reductions import check_reduction
from dlc.kernel.schedules.scalar_tile import Cells, scalar_tile, unrolled
from dlc.kernel.schedules.scope import Scope
from dlc.kernel.schedules.tile import Tile
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import conjuncts, linear, simplify
from dlc.spec import option

Values = tuple[Expr, ...]
"""Of an axis, for the rows or columns of a tile."""
ROWS, COLUMNS = (1, 2, 3, 4, 5, 6), (1, 2, 4, 8)
"""How many tiles may have, but for the last ones; columns as many as compilers find vectors in."""
MOST = 16
"""Elements of a tile: larger ones are more code, and hardly faster."""
LOOP, TILE = 3, 16
"""Instructions of an iteration of a loop, and of a tile, besides its terms."""
MOST_BORDER = 32
"""Rows of each end that are looked at for windows that leave the data."""


@dataclass(frozen=True)
class ScalarTiles(Choice):
    """Register tiles of scalars, where there are no vectors; operands are read as they lie."""

    name = "scalar-tiles"
    columns: int = option(0, "columns of a tile, of the output axis whose elements are neighbours", low=0)
    rows: int = option(0, "rows of a tile", low=0)

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        if place.machine.vector_bytes < 16:
            yield cls()

    def apply(self, place: Place) -> Applied:
        require(
            ((place.machine.vector_bytes < 16, "there are vectors"), (place.scope is not None, "it ranks elements"))
        )
        check_reduction(place)
        grid, (rows, columns) = smallest(_grids(place), self.rows, self.columns)
        return Applied(replace(self, rows=rows, columns=columns), grid.loops(rows, columns), ())


def smallest(grids: Sequence[Grid], rows: int, columns: int) -> tuple[Grid, tuple[int, int]]:
    """The tiles that take the fewest instructions, of so many rows and columns; 0: of any. Raises Unfit."""
    found = [(g, size) for g in grids for size in g.sizes(rows, columns)]
    if not found:
        size = f"tiles of {rows} rows and {columns} columns"
        raise Unfit(f"{size} fit neither output nor {grids[0].registers} registers")
    return min(found, key=lambda x: x[0].cost(x[1]))


def usable_axes(scope: Scope) -> list[Axis]:
    """Axes that tiles may walk: a limit that is known only when the program runs leaves no room for whole tiles."""
    return [a for a in reversed(scope.shared) if a.limit is None and a.extent > 1]


def _grids(place: Place) -> list[Grid]:
    """How the elements of a group may be tiled: with rows of each axis along which tiles share what they read."""
    scope, machine = place.scope, place.machine
    assert scope is not None
    guard = scope.nests[0].where
    usable = usable_axes(scope)
    column = next((a for a in usable if not _mentions(guard, a)), None)
    if column is None:
        raise Unfit("guards depend on every output axis" if usable else "it has one element")
    found = [Grid(place, tile_of(scope, place.kernel, machine, None, column), None)]
    for row in (a for a in usable if a != column):
        grid = Grid(place, tile_of(scope, place.kernel, machine, row, column), row)
        if grid.shares:
            found.append(grid)
    return found


def _mentions(guard: Expr | None, axis: Axis) -> bool:
    return any(axis in axes_in(g) for g in conjuncts(guard))


@dataclass(frozen=True)
class Grid:
    """The elements of a group as tiles of rows and columns.

    Attributes:
        place: The group.
        tile: What tiles have in common.
        row: The axis of their rows; None: they have one.
    """

    place: Place
    tile: Tile
    row: Axis | None

    @cached_property
    def loads(self) -> tuple[tuple[bool, bool], ...]:
        """For each load of a term, whether it moves with the row, and with the column."""
        found = dict.fromkeys(loads(self.tile.product.body))
        return tuple(
            (self.row is not None and axis_inside(x, self.row), axis_inside(x, self.tile.column)) for x in found
        )

    @property
    def registers(self) -> int:
        """Those that hold sums and their operands."""
        machine = self.place.machine
        return machine.general if machine.general and self.tile.dtype.is_integer else machine.registers

    @property
    def shares(self) -> bool:
        """Whether several rows read the same elements, if there are several."""
        return self.row is None or (any(not r for r, _ in self.loads) and self.inside[1] - self.inside[0] > 1)

    @cached_property
    def inside(self) -> tuple[int, int]:
        """The rows from which no window leaves the data: the first, and the one after the last."""
        if self.row is None:
            return 0, 1
        mine = [g for g in conjuncts(self.tile.product.where) if _mentions(g, self.row)]
        if not mine:
            return 0, self.row.extent
        if not all(_one_sided(g, self.row) for g in mine):
            return 0, 0
        first, last = 0, self.row.extent
        while first < last and not self._whole(mine, first):
            first += 1
            if first > MOST_BORDER:
                return 0, 0
        while first < last and not self._whole(mine, last - 1):
            last -= 1
            if self.row.extent - last > MOST_BORDER:
                return 0, 0
        return first, last

    def _whole(self, guards: Sequence[Expr], row: int) -> bool:
        assert self.row is not None
        return all(simplify(substitute(g, {self.row: Const(row)})) == Const(True) for g in guards)

    def sizes(self, rows: int, columns: int) -> Iterator[tuple[int, int]]:
        """Rows and columns that fit the registers, and whose elements are found without division; 0: any."""
        first, last = self.inside
        tall = [r for r in ([rows] if rows else ROWS if self.row is not None else (1,)) if r <= last - first]
        wide = [c for c in ([columns] if columns else COLUMNS) if c <= self.tile.column.extent and self._fits(1, c)]
        plain = [c for c in wide if self._affine(c)] or wide
        yield from ((r, c) for r in tall for c in plain if self._fits(r, c))

    def _fits(self, rows: int, columns: int) -> bool:
        """Whether sums, what a whole row reads, and one more value are in registers."""
        if self.tile.words:  # each word is two pairs of 16 bits
            return (rows, columns) == (1, 1) or rows * columns + 2 * (rows + 1) <= self.registers
        read = columns * sum(c and not r for r, c in self.loads)
        return rows * columns <= min(MOST, max(1, self.registers - read - 1))

    def _affine(self, columns: int) -> bool:
        """Whether a panel of columns lies inside of those in which weights are stored."""
        t = self.tile
        step = Axis(t.column.name, t.column.extent)
        for x in loads(t.product.body):
            form = linear(simplify(substitute(x.index[0], {t.column: step * columns + (columns - 1)})))
            if form is None or any(not isinstance(a, Axis) and axis_inside(a, step) for a, _ in form.terms):
                return False
        return True

    def cost(self, size: tuple[int, int]) -> float:
        """Instructions for each element."""
        rows, columns = size
        first, last = self.inside
        extent = 1 if self.row is None else self.row.extent
        wide = _split(self.tile.column.extent, columns)
        tall = (last - first) // rows
        parts = ((rows, tall, self.guards[0]), (1, extent - tall * rows, self.guards[1]))
        whole = sum(n * m * self._cost(r, c, guard) for r, n, guard in parts for c, m in wide)
        return whole / (extent * self.tile.column.extent)

    def _cost(self, rows: int, columns: int, guard: Expr | None) -> float:
        """Of a tile."""
        read = sum((rows if r else 1) * (columns if c else 1) for r, c in self.loads)
        steps = unrolled(self.tile.reduced, guard, rows * columns * (1 + bool(self.tile.words))).steps
        terms = math.prod(a.extent for a in self.tile.reduced)
        each = 2 * rows * columns + 3 * read if self.tile.words else rows * columns + read
        return TILE + terms * (each + LOOP / steps)

    @cached_property
    def guards(self) -> tuple[Expr | None, Expr | None]:
        """What holds for the terms of rows from which no window leaves the data, and of any row."""
        every = conjuncts(self.tile.product.where)
        free = [g for g in every if self.row is None or not _mentions(g, self.row)]
        return reduce(both, free, None), reduce(both, every, None)

    # ---- loops ----
    def loops(self, rows: int, columns: int) -> tuple[Stmt, ...]:
        """All tiles."""
        t, ordered = self.tile, self.place.machine.ordered

        def some(r: Values, guard: Expr | None, c: Values) -> tuple[Stmt, ...]:
            return scalar_tile(t, Cells(r, c, guard), ordered=ordered)

        if self._columns_outermost():
            return _spread(t.column, columns, lambda c: wrap(self.around, self._rows(rows, lambda r, g: some(r, g, c))))
        each = self._rows(rows, lambda r, g: _spread(t.column, columns, lambda c: some(r, g, c)))
        return wrap(self.around, each)

    @cached_property
    def around(self) -> tuple[Axis, ...]:
        """The axes of the output that no tile walks."""
        assert self.place.scope is not None
        return tuple(a for a in self.place.scope.shared if a not in (self.tile.column, self.row))

    def _columns_outermost(self) -> bool:
        """Whether what all columns read does not stay in the cache from row to row, but that of one tile does."""
        of = [x for x in dict.fromkeys(loads(self.tile.product.body)) if axis_inside(x, self.tile.column)]
        tensors = self.place.kernel.tensors
        if any(axis_inside(x, a) for x in of for a in (*self.around, self.row) if a is not None):
            return False
        return sum(tensors[x.param].type.nbytes for x in of) > self.place.machine.l1 // 2

    def _rows(self, rows: int, body: Callable[[Values, Expr | None], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
        """Tiles of rows from which no window leaves the data; the other rows, and those that are left, one by one."""
        free, every = self.guards
        if self.row is None:
            return body((Const(0),), every)
        first, last = self.inside
        last -= (last - first) % rows
        out = _spread(self.row, rows, lambda r: body(r, free), first, last)
        before, after = first, self.row.extent - last
        if not before + after:
            return out
        bt, most = Axis("bt", before + after), max(before, after)
        # Rows before the others, then those after them: 0, 1, 30, 31.
        row = simplify(bt + (bt + (most - before)) // most * (last - first)) if before else bt + last
        if bt.extent == 1:
            return (*out, *body((simplify(substitute(row, {bt: Const(0)})),), every))
        return (*out, For(bt, Const(0), Const(bt.extent), body((row,), every)))


def _one_sided(g: Expr, axis: Axis) -> bool:
    """Whether a condition that holds for two values of an axis holds for those between."""
    match g:
        case Apply("ge" | "gt" | "le" | "lt", (x, y)):
            form = linear(x - y)
            return form is not None and not any(a != axis and axis_inside(a, axis) for a, _ in form.terms)
        case _:
            return False


def _split(count: int, size: int) -> list[tuple[int, int]]:
    """(size of a tile, how many there are) over so many rows or columns."""
    whole, rest = divmod(count, size)
    return [(size, whole), *([(rest, 1)] if rest else [])]


def _spread(
    axis: Axis,
    size: int,
    body: Callable[[Values], tuple[Stmt, ...]],
    first: int = 0,
    last: int | None = None,
) -> tuple[Stmt, ...]:
    """A loop of tiles of one size over an axis, then what is left."""
    whole, rest = divmod((axis.extent if last is None else last) - first, size)
    at = Axis(f"{axis.name}t", whole)
    out: list[Stmt] = []
    if whole > 1:
        out.append(For(at, Const(0), Const(whole), body(tuple(at * size + (first + v) for v in range(size)))))
    elif whole:
        out += body(tuple(Const(first + v) for v in range(size)))
    if rest:
        out += body(tuple(Const(first + whole * size + v) for v in range(rest)))
    return tuple(out)
