"""The statements of one register tile of scalars: sums in variables, the reduction, what follows element by element.

c0_0 = … = 0;  for k: a = x[r,k]; b = w[k,c]; …;  c0_0 = c0_0 + a·b; …;  out[r,c] = f(c0_0); …
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, loads
from dlc.kernel.loops.program import Block, Dots, For, Let, Local, Set, Stmt, Store, Words
from dlc.kernel.schedules.clip import guarded
from dlc.kernel.schedules.flat import at
from dlc.kernel.schedules.levels import levels
from dlc.kernel.schedules.tile import Tile
from dlc.kernel.schedules.tiles import in_two_levels
from dlc.kernel.simplify import conjuncts

STEPS = 16
"""Terms that the body of the innermost loop adds at most, unless a tile has more elements."""

Sums = Sequence[Sequence[Local]]


@dataclass(frozen=True)
class Cells:
    """The elements of a tile: values of its row axis and its column axis, and what holds for terms that are added."""

    rows: tuple[Expr, ...]
    columns: tuple[Expr, ...]
    guard: Expr | None = None


def scalar_tile(t: Tile, cells: Cells, *, ordered: bool = False) -> tuple[Stmt, ...]:
    """One tile. The guard may depend on the row or the column only where there is one.

    `ordered`: the terms of every sum are added one after another.
    """
    sums = [[Local(f"c{r}_{v}", t.dtype) for v in range(len(cells.columns))] for r in range(len(cells.rows))]
    start = tuple(Let(x, Const(t.start)) for row in sums for x in row)
    # As tiles of vectors do it: those of one row wait for memory, so that a second level costs little.
    long = len(cells.rows) == 1 and t.product.reduce == "add" and t.dtype.is_float and cells.guard is None
    cut = levels(t.reduced) if long and not ordered else None
    inner = _terms(t, sums, cells) if cut is None else in_two_levels(t, sums, cut, lambda p, s: _terms(p, s, cells))
    return (Block((*start, *inner, *_followers(t, sums, cells))),)


def _places(t: Tile, sums: Sums, cells: Cells) -> list[tuple[Local, dict[Expr, Expr]]]:
    """Every sum of a tile, with what replaces its axes."""
    return [
        (x, {t.column: c} if t.row is None else {t.row: r, t.column: c})
        for r, line in zip(cells.rows, sums, strict=True)
        for c, x in zip(cells.columns, line, strict=True)
    ]


@dataclass(frozen=True)
class Unrolled:
    """Loops over a reduction.

    Attributes:
        outer: Axes with loops of single steps.
        part: The axis of the innermost loop, `some` steps of it at a time; None: there is none.
        whole: Axes inside of it without loops.
    """

    outer: tuple[Axis, ...]
    part: Axis | None
    some: int
    whole: tuple[Axis, ...]

    @property
    def steps(self) -> int:
        """In the body of the innermost loop."""
        return self.some * math.prod(a.extent for a in self.whole)


def unrolled(reduced: Sequence[Axis], guard: Expr | None, elements: int) -> Unrolled:
    """Short axes inside unrolled whole, of the next one as many steps as fit, for a tile of so many elements."""
    outer, whole = list(reduced), list[Axis]()
    room = max(1, STEPS // elements)
    while outer and _free(outer[-1], guard) and outer[-1].extent <= room:
        whole.insert(0, outer.pop())
        room //= whole[0].extent
    if not outer or not _free(outer[-1], guard):
        return Unrolled(tuple(outer), None, 1, tuple(whole))
    part = outer.pop()
    some = next(n for n in range(room, 0, -1) if part.extent % n == 0)
    return Unrolled(tuple(outer), part, some, tuple(whole))


def _terms(t: Tile, sums: Sums, cells: Cells) -> tuple[Stmt, ...]:
    places = _places(t, sums, cells)
    guard = None if cells.guard is None else at(cells.guard, places[0][1])
    u = unrolled(t.reduced, guard, len(places) * (1 + bool(t.words)))
    ranges = [[(u.part, u.part + k) for k in range(u.some)]] if u.part is not None else []
    ranges += [[(a, Const(k)) for k in range(a.extent)] for a in u.whole]
    body: list[Stmt] = []
    for number, values in enumerate(product(*ranges)):
        body += _step(t, places, dict(values), number)
    if u.part is not None:
        body = [For(u.part, Const(0), u.part.stop, tuple(body), u.some)]
    return guarded(u.outer, guard, tuple(body))


def _free(axis: Axis, guard: Expr | None) -> bool:
    return axis.limit is None and not any(axis in axes_in(g) for g in conjuncts(guard))


def _step(
    t: Tile, places: Sequence[tuple[Local, Mapping[Expr, Expr]]], values: Mapping[Expr, Expr], number: int
) -> list[Stmt]:
    """One term for every sum, or the four of a word; what several of them read is loaded once."""
    names: dict[Load, Local] = {}
    out: list[Stmt] = []

    def once(e: Expr) -> Expr:
        match e:
            case Load(param):
                if e not in names:
                    names[e] = Local(f"b{number}_{len(names)}", t.dtypes[param])
                    out.append(Let(names[e], e))
                return names[e]
            # Of these, arguments may be skipped.
            case Apply(fn, args) if fn not in ("select", "and", "or"):
                return Apply(fn, tuple(once(a) for a in args))
            case _:
                return e

    def word(e: Load) -> Local:
        if e not in names:
            names[e] = Local(f"b{number}_{len(names)}", t.dtype)
            out.append(Let(names[e], Words(e)))
        return names[e]

    for x, mapping in places:
        if t.words:
            a, b = (at(f, {**mapping, **values}) for f in loads(t.product.body))
            assert isinstance(a, Load) and isinstance(b, Load)
            out.append(Set(x, x + Dots(word(a), word(b))))
            continue
        term = once(at(t.product.body, {**mapping, **values}))
        out.append(Set(x, Apply(t.product.reduce or "add", (x, term))))
    return out


def _followers(t: Tile, sums: Sums, cells: Cells) -> list[Stmt]:
    """The element-wise nests on the sums, element by element."""
    out: list[Stmt] = []
    for x, mapping in _places(t, sums, cells):
        known: dict[Expr, Expr] = dict(mapping)
        if t.total is None:
            out.append(Store(t.product.out, at(t.product.index[0], known), x))
        else:
            known[t.total] = x
        for n in t.followers:
            value = at(n.body, known)
            if n.out in t.scalars:
                name = Local(f"{n.out}_{x.name}", t.dtypes[n.out])
                out.append(Let(name, value))
                known[t.scalars[n.out]] = name
                continue
            store = Store(n.out, at(n.index[0], known), value)
            out += guarded((), None if n.where is None else at(n.where, known), (store,))
    return out
