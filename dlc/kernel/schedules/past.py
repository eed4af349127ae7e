"""Results that no cache holds are stored past them, by vectors.

    for j<1000: r[j] = t[j]/s   →   for j<992 step 16: r[j .. +16] = t[j .. +16]/s past caches; for j = 992 .. 1000: …

A store into a cache reads the line first, so that it moves twice the bytes; and what the cache held is read again soon,
as the rest of the result is not.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.base.types import f32, f64
from dlc.kernel.loops.program import Block, For, If, Stmt, Store, reads, walk_stmts
from dlc.kernel.schedules.by_vectors import Wide
from dlc.kernel.schedules.choice import NONE, Applied, Choice, Place
from dlc.kernel.schedules.groups import has_reuse
from dlc.kernel.schedules.unfit import Unfit


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
    body = _changed(found.body, Wide(dtypes, place.machine, apart=False, past=past))
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
    read = {name for n in kernel.nests for name in n.reads()}
    large = (r for r in kernel.results if r.dtype in (f32, f64) and r.stored is None and r.type.nbytes >= machine.past)
    return tuple(r.name for r in large if r.name in written and r.name not in read)


def _changed(body: tuple[Stmt, ...], wide: Wide) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for s in body:
        match s:
            case For(_, _, _, inner):
                stores = any(isinstance(x, Store) and x.out in wide.past for x in inner)
                found += (wide.loop(s) if stores else ()) or (replace(s, body=_changed(inner, wide)),)
            case Block(inner):
                found.append(Block(_changed(inner, wide)))
            case If(condition, then, otherwise):
                found.append(If(condition, _changed(then, wide), _changed(otherwise, wide)))
            case Store(out, _, _, lanes) if lanes > 1 and out in wide.past:
                found.append(replace(s, past=True))
            case _:
                found.append(s)
    return tuple(found)
