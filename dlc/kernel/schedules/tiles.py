"""Register tiles: rows × vectors of accumulators in named variables, with the reduction inside.

for r<R c<V·L: t[r,c] = Σₖ a[r,k]·b[k,c]; out = f(t)
→
c00 = … = 0;  for k: b0, b1 = Lanes(b);  a = a[r,k];  c_r0 += a·b0; …;  out = f(c)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

from dlc.base.types import i32
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, substitute
from dlc.kernel.loops.program import Block, For, Lanes, Let, Local, Set, Stmt, Store, loop, wrap
from dlc.kernel.nest import zero
from dlc.kernel.schedules.ahead import hints
from dlc.kernel.schedules.block_scales import Blocks, blocks_of
from dlc.kernel.schedules.byte_tiles import bytes_of, words_step
from dlc.kernel.schedules.clip import guarded
from dlc.kernel.schedules.digit_tiles import sums_of_digits
from dlc.kernel.schedules.flat import at, axis_inside, flat_simplify
from dlc.kernel.schedules.lanes import Known, has_lanes, vectorise
from dlc.kernel.schedules.levels import Levels, levels
from dlc.kernel.schedules.prefetch import prefetches
from dlc.kernel.schedules.tile import Parts, Spot, Tile, mapping_of
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.window_rows import by_loads, overlap
from dlc.kernel.simplify import simplify

UNROLL = 4


def tile(t: Tile, s: Spot) -> tuple[Stmt, ...]:
    """One tile; raises Unfit when an operand has no vector form there."""
    sums = [[Local(f"c{r}_{v}", t.dtype, t.lanes) for v in range(s.vectors)] for r in range(s.rows)]
    inner = () if t.parts and t.parts.finish else _reduction(t, s, sums)
    if t.parts is None or t.parts.result:
        start = tuple(Let(x, Const(t.start)) for row in sums for x in row)
    else:
        start = tuple(Let(x, Lanes(place, t.lanes)) for x, place in _waiting(t, s, sums, t.parts))
    if t.parts is not None and not t.parts.finish and not (t.parts.result and s.columns < s.vectors * t.lanes):
        hints = prefetches(t, s) if t.parts.result else ()
        return (*hints, *start, *inner, *_put_back(t, s, sums, t.parts))
    if t.dtype is i32 and not (t.parts and t.parts.result):
        return (*start, *inner, *_narrowed(t, s, sums))
    after = None if t.parts and t.parts.result else _in_registers(t, s, sums)
    if after is None:
        return (*start, *inner, *_through_memory(t, s, sums))
    return (*prefetches(t, s), *start, *inner, *after)


def joined(t: Tile, s: Spot, part: Tile, stride: int, taps: int) -> tuple[Stmt, ...]:
    """A tile whose row r joins the rows stride·r … stride·r + taps - 1 of the tile `part`; raises as `tile`."""
    rows = (s.rows - 1) * stride + taps
    parts = [[Local(f"u{q}_{v}", t.dtype, t.lanes) for v in range(s.vectors)] for q in range(rows)]
    start = tuple(Let(x, Const(t.start)) for row in parts for x in row)
    inner = _reduction(part, replace(s, row=s.row * stride, rows=rows), parts)
    sums = [[Local(f"c{r}_{v}", t.dtype, t.lanes) for v in range(s.vectors)] for r in range(s.rows)]
    joins: list[Stmt] = []
    for r, row in enumerate(sums):
        for v, x in enumerate(row):
            value: Expr = parts[r * stride][v]
            for n in range(1, taps):
                value = Apply(t.product.reduce or "add", (value, parts[r * stride + n][v]))
            joins.append(Let(x, value))
    return (*start, *inner, *joins, *(_in_registers(t, s, sums) or _through_memory(t, s, sums)))


def _waiting(t: Tile, s: Spot, sums: Sequence[Sequence[Local]], parts: Parts) -> list[tuple[Local, Load]]:
    """Every vector of sums with its place in memory."""
    return [
        (x, Load(parts.buffer, (at(parts.place, mapping_of(t, s, r, s.column)) + v * t.lanes,)))
        for r, row in enumerate(sums)
        for v, x in enumerate(row)
    ]


def _put_back(t: Tile, s: Spot, sums: Sequence[Sequence[Local]], parts: Parts) -> tuple[Stmt, ...]:
    """Sums stored where they wait; in the result itself they are added, so that reading it need not come first."""
    return tuple(
        Store(p.param, p.index[0], Lanes(p, t.lanes) + x if parts.result else x, t.lanes)
        for x, p in _waiting(t, s, sums, parts)
    )


def _reduction(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...]:
    if t.product.where is not None or not t.reduced:
        if t.product.where is not None and axis_inside(t.product.where, t.column):
            raise Unfit(f"its guard depends on {t.column.name}: one test cannot stand for all lanes")
        guard = None if t.product.where is None else at(t.product.where, mapping_of(t, s, 0, s.column))
        if guard is not None and t.row is not None and t.reduced and _written_out(t.reduced[-1], guard):
            *outer, k = t.reduced
            return guarded(outer, guard, _unrolled(t, s, sums, [Const(u) for u in range(k.extent)], k))
        return guarded(t.reduced, guard, _step(t, s, sums, {}, 0))
    # Tiles of one row wait for memory, so that a second level costs nothing.
    sums_of_floats = t.row is None and t.product.reduce == "add" and t.dtype.is_float
    if sums_of_floats and (found := blocks_of(t)) is not None:
        return _in_blocks(t, s, sums, found)
    cut = levels(t.reduced, unit=UNROLL) if sums_of_floats else None
    if cut is None:
        return _running(t, s, sums)
    return in_two_levels(t, sums, cut, lambda part, of: _running(part, s, of))


def _in_blocks(t: Tile, s: Spot, sums: Sequence[Sequence[Local]], found: Blocks) -> tuple[Stmt, ...]:
    """The terms of a block summed by themselves; what they share is applied to their sum."""
    (row,) = sums
    parts = [replace(x, name=f"{x.name}_part") for x in row]
    whole = Local("whole", t.dtype, t.lanes)
    if t.digits:
        terms = sums_of_digits(t, s, parts, whole if found.zero is not None else None)
    else:
        start = [Let(x, zero(x.dtype)) for x in (*parts, *([whole] if found.zero is not None else ()))]
        beside = (whole, found.shared) if found.zero is not None else None
        part = replace(t, product=replace(t.product, body=found.terms), reduced=found.inner, beside=beside)
        terms = (*start, *_running(part, s, [parts]))
    lane = Axis("lane", t.lanes)
    end: list[Stmt] = []
    for v, (sum, x) in enumerate(zip(row, parts, strict=True)):
        mapping = mapping_of(t, s, 0, s.column + v * t.lanes + lane)
        value: Expr = x
        for e, fn in ((found.zero, "sub"), (found.scale, "mul")):
            if e is not None:
                vector = vectorise(e, mapping, lane, t.dtypes, t.dtype, None, t.packed)
                if vector is None:
                    raise Unfit(f"what blocks share has no form for {t.lanes} values of {t.column.name} at once")
                value = Apply(fn, (value, vector if fn == "mul" else Apply("mul", (whole, vector))))
        end.append(Set(sum, sum + value))
    return wrap(found.outer, (Block((*terms, *end)),))


def _written_out(k: Axis, guard: Expr) -> bool:
    """Whether every step of a reduction axis is to be a statement, as those of a window along a row."""
    return k.limit is None and k.extent <= 2 * UNROLL and not axis_inside(guard, k)


def in_two_levels(
    t: Tile,
    sums: Sequence[Sequence[Local]],
    cut: Levels,
    running: Callable[[Tile, Sequence[Sequence[Local]]], tuple[Stmt, ...]],
) -> tuple[Stmt, ...]:
    """Parts of the reduction summed by themselves and then added: rounding grows with the terms of one sum.

    `running` gives what adds all terms of a tile to sums.
    """
    parts = [[replace(x, name=f"{x.name}_part") for x in row] for row in sums]
    start = tuple(Let(x, zero(x.dtype)) for row in parts for x in row)
    add = tuple(Set(x, x + y) for a, b in zip(sums, parts, strict=True) for x, y in zip(a, b, strict=True))
    out: list[Stmt] = []
    for piece in cut.pieces:
        body = flat_simplify(substitute(t.product.body, {cut.axis: piece.value}))
        inner = running(replace(t, product=replace(t.product, body=body), reduced=piece.inner), parts)
        out += wrap(piece.blocks, (Block((*start, *inner, *add)),))
    return wrap(cut.outer, tuple(out))


def _running(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...]:
    """Every term added to the sums, one after another."""
    if s.rows > 1 and overlap(t):
        return _written(t, s, sums)
    *outer, k = t.reduced
    if k.limit is not None:
        return _limited(t, s, sums)
    main = k.extent - k.extent % UNROLL
    body: list[Stmt] = []
    if main > (2 * UNROLL if t.packed else UNROLL):  # which of the elements of a word is known where it is written
        steps = _unrolled(t, s, sums, [k + u for u in range(UNROLL)], k)
        body.append(For(k, Const(0), Const(main), (*hints(t, s, k, UNROLL), *steps), UNROLL))
    else:
        main = 0
    if k.extent - main:
        steps = _unrolled(t, s, sums, [Const(u) for u in range(main, k.extent)], k)
        body += steps
    out = tuple(body)
    for axis in reversed(outer):
        out = (loop(axis, *out),)
    return out


def _written(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...]:
    """All terms in one piece; each vector that several rows read is loaded once."""
    known: dict[Expr, Local] = {}
    spots = product(*(map(Const, range(a.extent)) for a in t.reduced))
    points: list[dict[Expr, Expr]] = [dict(zip(t.reduced, spot, strict=True)) for spot in spots]
    return by_loads([x for u, at_k in enumerate(points) for x in _step(t, s, sums, at_k, u, known)])


def _limited(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...]:
    """The same up to a limit that is known when the program runs."""
    *outer, k = t.reduced
    several = _unrolled(t, s, sums, [k + u for u in range(UNROLL)], k)
    single = _unrolled(t, s, sums, [k], k)
    main = simplify(k.stop // UNROLL * UNROLL)
    return wrap(tuple(outer), (For(k, Const(0), main, several, UNROLL), For(k, main, k.stop, single)))


def _unrolled(t: Tile, s: Spot, sums: Sequence[Sequence[Local]], values: Sequence[Expr], k: Axis) -> tuple[Stmt, ...]:
    return tuple(x for u, value in enumerate(values) for x in _step(t, s, sums, {k: value}, u))


def _step(
    t: Tile,
    s: Spot,
    sums: Sequence[Sequence[Local]],
    at_k: Mapping[Expr, Expr],
    u: int,
    loaded: dict[Expr, Local] | None = None,
) -> tuple[Stmt, ...]:
    """One value of the reduction for the whole tile; every element is loaded once, and not what is `loaded` already."""
    if t.words:
        return words_step(t, s, sums, at_k, u)
    lane = Axis("lane", t.lanes)
    names: dict[Expr, Local] = {} if loaded is None else loaded
    known: Known = {}
    out: list[Stmt] = []

    def once(e: Expr, r: int) -> Expr:
        match e:
            case Lanes(_, _, step) if step > 1:
                return e
            case Lanes() | Load() | Apply("i32", (Lanes() | Load(),)):
                if e not in names:
                    names[e] = Local(f"{'b' if has_lanes(e) else 'a'}{u}_{r}_{len(names)}", t.dtype, t.lanes)
                    out.append(Let(names[e], e))
                return names[e]
            case Apply(fn, args):
                return Apply(fn, tuple(once(a, r) for a in args))
            case _:
                return e

    for r in range(s.rows):
        for v in range(s.vectors):
            mapping = {**mapping_of(t, s, r, s.column + v * t.lanes + lane), **at_k}
            value = vectorise(t.product.body, mapping, lane, t.dtypes, t.dtype, known, t.packed)
            if value is None or not has_lanes(value):
                raise Unfit(f"its terms have no form for {t.lanes} values of {t.column.name} at once")
            out.append(Set(sums[r][v], Apply(t.product.reduce or "add", (sums[r][v], once(value, r)))))
    if t.beside is not None:
        sum, e = t.beside
        out.append(Set(sum, sum + once(at(e, at_k), 0)))
    return tuple(out)


def _in_registers(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...] | None:
    """Followers lane by lane and whole vectors stored; None when that is not possible."""
    if s.columns != s.vectors * t.lanes or any(n.where is not None for n in t.followers):
        return None
    lane = Axis("lane", t.lanes)
    out: list[Stmt] = []
    for r in range(s.rows):
        for v in range(s.vectors):
            mapping = mapping_of(t, s, r, s.column + v * t.lanes + lane)
            found = element(t, mapping, sums[r][v], f"{r}_{v}", lane)
            if found is None:
                return None
            out += found
    return tuple(out)


def element(t: Tile, mapping: dict[Expr, Expr], total: Local, suffix: str, lane: Axis) -> list[Stmt] | None:
    """Followers and stores of neighbouring elements, of which `total` are the sums; None when they have no vectors."""
    out: list[Stmt] = []
    known = dict(mapping)
    if t.total is not None:
        known[t.total] = total
    else:
        place = vectorise(Load(t.product.out, t.product.index), mapping, lane, t.dtypes, t.dtype)
        if not isinstance(place, Lanes):
            return None
        out.append(Store(t.product.out, place.first.index[0], total, t.lanes))
    for n in t.followers:
        value = vectorise(n.body, known, lane, t.dtypes, t.dtype)
        if value is None or t.dtypes[n.out] != t.dtype:
            return None
        if n.out in t.scalars:
            name = Local(f"{n.out}_{suffix}", t.dtype, t.lanes)
            out.append(Let(name, value))
            known[t.scalars[n.out]] = name
            continue
        place = vectorise(Load(n.out, n.index), mapping, lane, t.dtypes, t.dtype)
        if not isinstance(place, Lanes):
            return None
        out.append(Store(n.out, place.first.index[0], value, t.lanes))
    return out


def _narrowed(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...]:
    """Followers of sums in i32, whatever types they have: whole vectors in registers, single columns through memory."""
    lane = Axis("lane", t.lanes)
    whole = s.columns // t.lanes if all(n.where is None for n in t.followers) else 0
    out: list[Stmt] = []
    for r in range(s.rows):
        for v in range(whole):
            found = bytes_of(t, mapping_of(t, s, r, s.column + v * t.lanes + lane), sums[r][v], f"{r}_{v}", lane)
            if found is None:
                return _through_memory(t, s, sums)
            out += found
    if whole * t.lanes < s.columns:
        rest = replace(
            s, column=s.column + whole * t.lanes, vectors=s.vectors - whole, columns=s.columns - whole * t.lanes
        )
        out += _through_memory(t, rest, [row[whole:] for row in sums])
    return tuple(out)


def _through_memory(t: Tile, s: Spot, sums: Sequence[Sequence[Local]]) -> tuple[Stmt, ...]:
    """The tile written to a small buffer, and followers as scalar loops over its existing columns."""
    width = s.vectors * t.lanes
    out: list[Stmt] = [
        Store("tile", Const(r * width + v * t.lanes), sums[r][v], t.lanes)
        for r in range(s.rows)
        for v in range(s.vectors)
    ]
    r, j = Axis("tr", s.rows), Axis("tj", s.columns)
    mapping = mapping_of(t, s, r, s.column + j)
    more = t.parts is not None and t.parts.result
    return (*out, loop(r, loop(j, *scalar_element(t, mapping, Load("tile", (r * width + j,)), more))))


def scalar_element(t: Tile, mapping: Mapping[Expr, Expr], value: Expr, more: bool = False) -> tuple[Stmt, ...]:
    """Followers and stores of a single element of which `value` is the sum; `more` is added to what is stored."""
    body: list[Stmt] = []
    if t.total is None:
        place = at(t.product.index[0], mapping)
        body.append(Store(t.product.out, place, Load(t.product.out, (place,)) + value if more else value))
    else:
        body.append(Let(t.total, value))
    for n in t.followers:
        if n.out in t.scalars:
            body.append(Let(t.scalars[n.out], at(n.body, mapping)))
            continue
        write = Store(n.out, at(n.index[0], mapping), at(n.body, mapping))
        body += guarded((), None if n.where is None else at(n.where, mapping), (write,))
    return tuple(body)
