"""What tiles of words have of their own: their dot products, and followers of other types than sums of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.base.types import bf16, i32
from dlc.kernel.expr import Apply, Axis, Expr, Load, loads
from dlc.kernel.loops.program import Dots, Lanes, Let, Local, Set, Stmt, Store, Words
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.byte_lanes import stored_form
from dlc.kernel.schedules.flat import at, axis_inside
from dlc.kernel.schedules.lanes import neighbours
from dlc.kernel.schedules.tile import Spot, Tile, mapping_of
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import linear


def words_step(
    t: Tile, s: Spot, sums: Sequence[Sequence[Local]], at_k: Mapping[Expr, Expr], u: int
) -> tuple[Stmt, ...]:
    """The terms of a word for the whole tile: a word of each row, and one of each column."""
    lane = Axis("lane", t.lanes)
    a, b = (x for f in _factors(t.product) for x in loads(f))
    kind, lanes = (t.dtype, t.lanes) if t.dtype is i32 else (bf16, t.lanes * t.words)
    columns = [Local(f"b{u}_{v}", kind, lanes) for v in range(s.vectors)]
    out: list[Stmt] = []
    for v, column in enumerate(columns):
        first = at(b, {**mapping_of(t, s, 0, s.column + v * t.lanes + lane), **at_k})
        form = linear(first.index[0]) if isinstance(first, Load) else None
        if (
            form is None
            or form.coefficient(lane) != t.words
            or any(axis_inside(e, lane) for e, _ in form.without(lane).terms)
        ):
            raise Unfit(f"words of {t.column.name} do not lie next to each other")
        out.append(Let(column, Words(Load(b.param, (form.without(lane).expr(),)), t.lanes)))
    for r, row in enumerate(sums):
        word = Local(f"a{u}_{r}", kind, lanes)
        place = at(a, {**mapping_of(t, s, r, s.column), **at_k})
        assert isinstance(place, Load)
        out.append(Let(word, Words(place)))
        out += (Set(x, x + Dots(word, column)) for x, column in zip(row, columns, strict=True))
    return tuple(out)


def _factors(product: Nest) -> tuple[Expr, Expr]:
    """What a sum of products of words multiplies: the rows' factor, then that of the columns."""
    assert isinstance(product.body, Apply)
    first, second = product.body.args
    return first, second


def bytes_of(t: Tile, mapping: dict[Expr, Expr], total: Local, suffix: str, lane: Axis) -> list[Stmt] | None:
    """Followers for the lanes of one vector of sums; None where one of them has no vector form."""
    known, out = dict(mapping), list[Stmt]()
    targets: list[tuple[str, Expr, Expr]] = [(t.product.out, t.product.index[0], total)] if t.total is None else []
    if t.total is not None:
        known[t.total] = total
    for n in t.followers:
        value = stored_form(n.body, t.dtypes[n.out], known, lane, t.dtypes)
        if value is None:
            return None
        if n.out in t.scalars:
            name = Local(f"{n.out}_{suffix}", t.dtypes[n.out], t.lanes)
            out.append(Let(name, value))
            known[t.scalars[n.out]] = name
            continue
        targets.append((n.out, n.index[0], value))
    for name, at_, value in targets:
        place = neighbours(name, at_, mapping, lane)
        if not isinstance(place, Lanes):
            return None
        out.append(Store(name, place.first.index[0], value, t.lanes))
    return out
