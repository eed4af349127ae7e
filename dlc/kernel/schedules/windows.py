"""Windows that slide over neighbours in rows of vectors: depthwise convolution and pooling with channels innermost.

    for j: for c: t[j,c] = Σₙ x[j + n, c]·w[n, c]    →    for j by rows: for c by vectors: each x[j + n, c] is read once

A tile has several rows j, whose windows overlap: what lies in several of them stays in a register, and so do the
weights. Without weights, as in pooling, columns of windows are added up first, and then joined. The places at the ends
of a row, whose windows leave the data, are written out one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Axis, Const, Expr, axes_in, both, loads, substitute
from dlc.kernel.loops.program import Block, For, Stmt, wrap
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.clip import bound
from dlc.kernel.schedules.contraction import applied_tiles, check_contraction
from dlc.kernel.schedules.flat import at, axis_inside, coefficient, positions
from dlc.kernel.schedules.loop_plan import overwrites, tile_of
from dlc.kernel.schedules.tile import Spot, Tile
from dlc.kernel.schedules.tiles import joined, tile
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import conjuncts, simplify
from dlc.spec import option

VECTORS, TALLEST, WIDEST, MOST_ENDS = 2, 6, 7, 8
"""Vectors and rows of a tile, elements of a window along a row, places at the ends of a row."""


@dataclass(frozen=True)
class _Slide:
    """A window along a row.

    Attributes:
        row: Axis of the output that the window slides over.
        step: Reduction axis along the window.
        guard: What is left of the guard: it moves along neither.
        low, high: From where to where windows lie in the data.
        along: The parts of the guard that move along the row or the window.
        stride: Steps along the window that a step along the row is, where terms are told by their sum; else 0.
    """

    row: Axis
    step: Axis
    guard: Expr | None
    low: int
    high: int
    along: tuple[Expr, ...]
    stride: int

    def positions(self, rows: int) -> int:
        """Rows that are added up for so many rows of a tile."""
        return (rows - 1) * self.stride + self.step.extent


@dataclass(frozen=True)
class Windows(Choice):
    """Rows of windows that overlap, channels as vectors: what several of them read is read once."""

    name = "windows"
    vectors: int = option(0, "vectors of a tile's row", low=0)
    rows: int = option(0, "most rows of a tile", low=0)

    def apply(self, place: Place) -> Applied:
        check_contraction(place)
        scope, machine = place.scope, place.machine
        if scope is None or not scope.shared:
            raise Unfit("it has no rows")
        column = scope.shared[-1]
        require(((coefficient(scope.nests[-1].index[0], column) == 1, "no output axis has unit stride"),))
        tiling = tile_of(scope, place.kernel, machine, None, column)
        slide = _slide(tiling, scope.shared[:-1])
        lanes, extent = tiling.lanes, column.extent
        vectors = self.vectors or min(VECTORS, max(1, extent // lanes))
        middle = slide.high - slide.low
        most = self.rows or _tallest(slide, vectors, machine.registers)
        conditions = (
            (column.limit is None, "the number of columns is known when the program runs"),
            (extent >= vectors * lanes, f"{extent} columns are fewer than {vectors * lanes} columns of a tile"),
            (most > 1, f"{machine.registers} registers are too few"),
            (max(slide.positions(most), most) * vectors <= machine.registers, "registers do not hold such a tile"),
            (middle > 1, "no windows lie in the data"),
            (2 * slide.stride <= slide.step.extent, "its windows overlap by less than half"),
            (slide.row.extent - middle <= MOST_ENDS, "too many windows leave the data"),
            (not (extent % lanes and overwrites(tiling.followers, place.kernel)), "a column may not be computed twice"),
        )
        require(conditions)
        rows = -(-middle // -(-middle // most))
        product = replace(tiling.product, where=slide.guard)
        reduced = (*(a for a in tiling.reduced if a != slide.step), slide.step)
        t = replace(tiling, product=product, row=slide.row, reduced=reduced)
        body = _row(t, slide, rows, _panels(extent, vectors, lanes))
        outer = tuple(a for a in scope.shared if a not in (column, slide.row))
        choice = replace(self, vectors=vectors, rows=rows)
        return applied_tiles(choice, place, tiling, wrap(outer, body))


def _tallest(slide: _Slide, vectors: int, registers: int) -> int:
    """Most rows whose accumulators, and what is added to them, the registers hold."""
    if not slide.stride:
        return min(TALLEST, (registers - 2 - vectors) // (2 * vectors))
    fitting = (r for r in range(TALLEST, 1, -1) if slide.positions(r) * vectors <= registers - 2)
    return next(fitting, 1)


def _slide(t: Tile, shared: Sequence[Axis]) -> _Slide:
    """How windows slide along rows. Raises Unfit where they do not."""
    found = [(row, step) for row in reversed(shared) for step in t.reduced if _overlap(t.product, row, step, t.column)]
    if not found:
        raise Unfit("no windows overlap along its rows")
    row, step = found[0]
    along = tuple(g for g in conjuncts(t.product.where) if {row, step} & set(axes_in(g)))
    guard: Expr | None = None
    for g in conjuncts(t.product.where):
        guard = guard if g in along else both(guard, g)
    if any(set(axes_in(g)) - {row, step} or any(True for _ in loads(g)) for g in along):
        raise Unfit("its guard moves along rows and other axes at once")
    if guard is not None and (axis_inside(guard, t.column) or any(True for _ in loads(guard))):
        raise Unfit("its guard moves along the columns")
    lows: list[Expr] = [Const(0)]
    highs: list[Expr] = [Const(row.extent)]
    for k in range(step.extent):
        for g in along:
            here = simplify(substitute(g, {step: Const(k)}))
            if here != Const(True) and not bound(here, row, lows, highs):
                raise Unfit("its guard bounds no part of a row")
    ends = [e.value for e in (*lows, *highs) if isinstance(e, Const)]
    if len(ends) < len(lows) + len(highs):
        raise Unfit("its guard bounds no part of a row")
    return _Slide(
        row, step, guard, int(max(ends[: len(lows)])), int(min(ends[len(lows) :])), along, _stride(t.product, row, step)
    )


def _stride(nest: Nest, row: Axis, step: Axis) -> int:
    """The row's step in steps of the window, if every load that moves along one moves along both alike; else 0."""
    strides = [(coefficient(p, row), coefficient(p, step)) for p in positions(nest.body)]
    ratios = {a // b if a and b else 0 for a, b in strides if a or b}
    return ratios.pop() if len(ratios) == 1 else 0


def _overlap(nest: Nest, row: Axis, step: Axis, column: Axis) -> bool:
    """Whether a step along the row is a few steps along a window, in all loads that move along the row."""
    if not 1 < step.extent <= WIDEST or row.limit is not None or step.limit is not None:
        return False
    moving = [x.index[0] for x in loads(nest.body) if axis_inside(x.index[0], row)]
    strides = [(coefficient(p, row), coefficient(p, step)) for p in moving]
    contiguous = all(coefficient(p, column) == 1 for p in moving)
    return bool(strides) and contiguous and all(a and b and 0 < a // b < step.extent and a % b == 0 for a, b in strides)


@dataclass(frozen=True)
class _Panel:
    """Columns that a tile has, or those of each tile of a loop.

    Attributes:
        first: The first of them.
        vectors: How many vectors they are.
        loop: The loop and its end; None: there is one tile.
    """

    first: Expr
    vectors: int
    loop: tuple[Axis, int] | None = None

    def around(self, body: tuple[Stmt, ...]) -> Stmt:
        """The statements of a tile for all of its places."""
        return Block(body) if self.loop is None else For(self.loop[0], Const(0), Const(self.loop[1]), body)


def _panels(extent: int, vectors: int, lanes: int) -> list[_Panel]:
    """All columns; the last vector may have some that the one before has."""
    width = vectors * lanes
    full, rest = divmod(extent, width)
    cb = Axis("cb", full)
    found = [_Panel(cb * width, vectors, (cb, full))]
    last, more = divmod(rest, lanes)
    found += [_Panel(Const(full * width), last)] if last else []
    found += [_Panel(Const(extent - lanes), 1)] if more else []
    return found


def _row(t: Tile, slide: _Slide, rows: int, panels: Sequence[_Panel]) -> tuple[Stmt, ...]:
    """One row of windows: from end to end, so that memory is read and written in its order."""

    def places(first: Expr, count: int) -> list[Stmt]:
        spots = ((p, Spot(first, p.first, count, p.vectors, p.vectors * t.lanes)) for p in panels)
        return [p.around(tile(t, s) if part is None else joined(t, s, part, *joining)) for p, s in spots]

    def end(j: int) -> list[Stmt]:
        return [p.around(_end(t, slide, part, j, p)) for p in panels]

    part, joining = _columns(t, slide), (slide.stride, slide.step.extent)
    tiles, rest = divmod(slide.high - slide.low, rows)
    first = Axis("rt", slide.row.extent)
    out: list[Stmt] = [s for j in range(slide.low) for s in end(j)]
    out.append(For(first, Const(slide.low), Const(slide.low + tiles * rows), tuple(places(first, rows)), rows))
    out += places(Const(slide.high - rest), rest) if rest else []
    return (*out, *(s for j in range(slide.high, slide.row.extent) for s in end(j)))


def _columns(t: Tile, slide: _Slide) -> Tile | None:
    """What adds up the columns of windows, its rows their places; None where terms depend on the place in a window."""
    if not slide.stride:
        return None
    place = Axis("rp", slide.positions(slide.row.extent))
    product = _at(t.product, {slide.row: Const(0), slide.step: place})
    axes = tuple(place if a == slide.step else a for a in t.product.axes if a != slide.row)
    return replace(t, product=replace(product, axes=axes), followers=(), row=place, reduced=t.reduced[:-1])


def _end(t: Tile, slide: _Slide, part: Tile | None, j: int, panel: _Panel) -> tuple[Stmt, ...]:
    """A single place of a row: the part of its window that lies in the data."""
    inside = [k for k in range(slide.step.extent) if _holds(slide, {slide.row: Const(j), slide.step: Const(k)})]
    if inside != list(range(inside[0], inside[-1] + 1) if inside else ()):
        raise Unfit("parts of a window leave the data in its middle")
    if part is not None and inside:
        assert part.row is not None
        spot = Spot(Const(j), panel.first, 1, panel.vectors, panel.vectors * t.lanes)
        moved = replace(part, product=_at(part.product, {part.row: part.row + inside[0]}))
        return joined(t, spot, moved, slide.stride, len(inside))
    step = Axis(slide.step.name, len(inside))
    place: dict[Expr, Expr] = {slide.row: Const(j)}
    product = _at(t.product, {**place, slide.step: step + inside[0] if inside else Const(0)})
    axes = tuple(step if a == slide.step else a for a in t.product.axes if a != slide.row)
    single = replace(
        t,
        product=replace(product, axes=axes),
        followers=tuple(_at(n, place) for n in t.followers),
        row=None,
        reduced=(*t.reduced[:-1], step),
    )
    return tile(single, Spot(Const(0), panel.first, 1, panel.vectors, panel.vectors * t.lanes))


def _at(nest: Nest, mapping: Mapping[Expr, Expr]) -> Nest:
    return replace(nest, index=(at(nest.index[0], mapping),), body=at(nest.body, mapping))


def _holds(slide: _Slide, mapping: Mapping[Expr, Expr]) -> bool:
    return all(simplify(substitute(g, mapping)) == Const(True) for g in slide.along)
