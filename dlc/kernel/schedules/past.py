"""Results that no cache holds are stored past them, by vectors.

    for j<1000: r[j] = t[j]/s   →   for j<992 step 16: r[j .. +16] = t[j .. +16]/s past caches; for j = 992 .. 1000: …

A store into a cache reads the line first, so that it moves twice the bytes; and what the cache held is read again soon,
as the rest of the result is not. What such a loop reads and no cache holds either is fetched ahead of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dlc.base.types import f32, f64
from dlc.kernel.expr import Const, apply, walk
from dlc.kernel.loops.program import Block, For, If, Lanes, Prefetch, Stmt, Store, exprs_of, reads, walk_stmts
from dlc.kernel.schedules.by_vectors import Wide
from dlc.kernel.schedules.choice import NONE, Applied, Choice, Place
from dlc.kernel.schedules.flat import coefficient
from dlc.kernel.schedules.groups import has_reuse
from dlc.kernel.schedules.prefetch import LINE
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import simplify

AHEAD: Final = 2048
"""Bytes from where a stream is read to where it is wanted soon. Streams often lie alike in their pages: a page further
on, they would want the same places of a cache."""


def stored_past(found: Applied, wanted: Choice, place: Place) -> Applied:
    """A group's loops with results that are too large for caches stored past them.

    Args:
        found: The loops.
        wanted: The choice that they come from: its `past` says which results, or leaves it open.
        place: The group.

    Raises:
        Unfit: a result that is wanted is none of the group, or no loop stores vectors of it.
    """
    names = wanted.past or _too_large(place)
    if not names or names == NONE:
        return replace(found, choice=replace(found.choice, past=wanted.past))
    past = frozenset(names) - reads(found.body)
    dtypes = {**place.kernel.dtypes, **{b.name: b.dtype for b in found.buffers}}
    body = _changed(found.body, _Streams(Wide(dtypes, place.machine, apart=False, past=past), place))
    stored = {s.out for s in walk_stmts(body) if isinstance(s, Store) and s.past}
    for name in wanted.past:
        if name not in stored:
            raise Unfit(f"no loop stores vectors of {name}")
    return replace(found, body=body, choice=replace(found.choice, past=tuple(n for n in names if n in stored)))


def _too_large(place: Place) -> tuple[str, ...]:
    """The results of a group that no cache holds, and that nothing reads; none where arithmetic takes longer."""
    kernel, machine = place.kernel, place.machine
    if not machine.past or machine.vector_bytes < 16 or any(map(has_reuse, place.group.nests)):
        return ()
    written = {n.out for n in place.group.nests}
    large = (r for r in kernel.results if r.name in written and r.type.nbytes >= machine.past)
    plain = (r.name for r in large if r.dtype in (f32, f64) and r.stored is None)
    return tuple(name for name in plain if name not in kernel.readers)


@dataclass(frozen=True)
class _Streams:
    """What makes loops store past the caches, and fetch what they read ahead."""

    wide: Wide
    place: Place

    @cached_property
    def far(self) -> Mapping[str, int]:
        """The last element of each parameter that no cache holds and that one nest of the group reads."""
        kernel, machine = self.place.kernel, self.place.machine
        readers = Counter(name for n in self.place.group.nests for name in n.reads())
        large = (p for p in kernel.params if p.stored is None and not p.packed and p.type.nbytes >= machine.past)
        return {p.name: p.type.capacity - 1 for p in large if readers[p.name] == 1 and not p.type.is_open}

    def ahead(self, loop: For) -> For:
        """A loop over vectors with hints for what it reads, if it is long enough to read that itself."""
        hints: dict[Prefetch, None] = {}
        count = simplify(loop.stop - loop.start)
        for x in (x for s in loop.body for e in exprs_of(s) for x in walk(e) if isinstance(x, Lanes)):
            name, first = x.first.param, x.first.index[0]
            item = self.wide.dtypes[name].itemsize
            long = isinstance(count, Const) and count.value * item >= AHEAD and 2 * x.span * item >= LINE
            if name in self.far and long and coefficient(first, loop.axis) == 1:
                hints[Prefetch(name, apply("min", simplify(first + AHEAD // item), Const(self.far[name])))] = None
        return replace(loop, body=(*hints, *loop.body))


def _changed(body: tuple[Stmt, ...], streams: _Streams) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    past = streams.wide.past
    for s in body:
        match s:
            case For(_, _, _, inner) if any(isinstance(x, Store) and x.out in past for x in inner):
                loops = streams.wide.loop(s) or (replace(s, body=_changed(inner, streams)),)
                found += (streams.ahead(x) if isinstance(x, For) else x for x in loops)
            case For(_, _, _, inner):
                found.append(replace(s, body=_changed(inner, streams)))
            case Block(inner):
                found.append(Block(_changed(inner, streams)))
            case If(condition, then, otherwise):
                found.append(If(condition, _changed(then, streams), _changed(otherwise, streams)))
            case Store(out, _, _, lanes) if lanes > 1 and out in past:
                found.append(replace(s, past=True))
            case _:
                found.append(s)
    return tuple(found)
