"""Several rows of a group at the same time, where each of them waits long for its own sums.

    for i: s = Σₖ x[i,k]; t = 1/√s; for k: r[i,k] = x[i,k]·t
    →
    for i += 2: s₀ = Σₖ x[i,k]; s₁ = Σₖ x[i+1,k]; t₀ = 1/√s₀; t₁ = 1/√s₁; for k: r[i,k] = …; for k: r[i+1,k] = …

Between the loops of a row there are sums of lanes, roots and quotients, each of which waits for the one before. What a
processor may begin of the next row meanwhile is bounded by the instructions that it keeps track of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dlc.base.types import Type
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops.independent import own_buffers
from dlc.kernel.loops.program import (
    Block,
    Buffer,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    Set,
    Stmt,
    Store,
    exprs_of,
    parts,
    subexpressions,
    walk_stmts,
)
from dlc.kernel.loops.rename import Renaming
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Place
from dlc.kernel.schedules.estimate import estimate, sizes_of
from dlc.kernel.schedules.machine import Machine

TOGETHER: Final = 2
"""Rows at the same time: with more, hardly anything waits any longer."""
WAITS: Final = 0.25
"""Of what a row takes in the nearest cache, what it waits for at least where rows run at the same time."""
NEAR: Final = 1e9
"""Bytes in a cycle of a memory that takes no time."""


def abreast(found: Applied, rows: int, place: Place) -> tuple[Applied, int]:
    """Loops with so many rows at the same time, and how many these are: 1 where it has no such rows.

    Args:
        found: Loops over rows, one at a time.
        rows: Rows at the same time; 0: several where that is faster.
        place: The group.
    """
    if place.scope is None or place.machine.vector_bytes < 16:
        return found, 1
    scope = place.scope
    types = {b.name: b.type for b in found.buffers}
    types |= {name: scope.tensors[name].type for name in scope.narrow if name not in scope.scalars}
    work = _Rows(rows, types, place, found.buffers)
    body = tuple(s for stmt in found.body for s in work.changed(stmt))
    if not work.most:
        return found, 1
    return replace(found, body=body, buffers=(*found.buffers, *work.copies.values())), work.most


class _Rows:
    """Loops over rows, as they are found.

    Attributes:
        most: Rows at the same time; 0: there is no such loop yet.
        copies: Buffers of the rows behind the first.
    """

    def __init__(self, rows: int, types: dict[str, Type], place: Place, buffers: Sequence[Buffer]) -> None:
        self.most = 0
        self.copies: dict[str, Buffer] = {}
        self._rows, self._types, self._machine = rows, types, place.machine
        self._sizes = sizes_of(place.kernel, buffers)

    def changed(self, s: Stmt) -> tuple[Stmt, ...]:
        """A statement with several rows at the same time in the loops that it has."""
        match s:
            case For(body=(For() as inner,)):
                return (replace(s, body=self.changed(inner)),)
            case For(axis, Const(0), Const(int() as stop), body, 1) if stop > 1 and _waits(body, self._machine):
                own = own_buffers(s, self._types)
                rows = self._rows or (TOGETHER if self._worth(s, stop) else 1)
                if own is None or not 1 < rows <= stop or not _only_places(body, axis):
                    return (s,)
                self.most = rows
                whole = stop // rows * rows
                both = tuple(x for each in body for x in self._copied(each, body, axis, rows, own))
                main = replace(s, stop=Const(whole), body=both, step=rows)
                return (main,) if whole == stop else (main, replace(s, start=Const(whole)))
            case _:
                return (s,)

    def _worth(self, s: For, count: int) -> bool:
        machine = replace(self._machine, l2_rate=NEAR, memory_rate=NEAR)
        return _waits(s.body, machine) >= WAITS * estimate((s,), self._sizes, machine).cycles / count

    def _copied(self, s: Stmt, body: Sequence[Stmt], axis: Axis, rows: int, own: Sequence[str]) -> tuple[Stmt, ...]:
        """A statement for each row."""
        out: list[Stmt] = [s]
        declared = [x.local.name for x in body if isinstance(x, Let)]
        for r in range(1, rows):
            self.copies |= {f"{n}_{r}": buffer(f"{n}_row{r}", self._types[n]) for n in own}
            names = {n: f"{n}_row{r}" for n in declared}
            out += Renaming({n: f"{n}_row{r}" for n in own}, names, axes={axis: axis + r}).body((s,))
        return tuple(out)


def _only_places(body: tuple[Stmt, ...], axis: Axis) -> bool:
    """Whether an axis says nothing but where elements are."""
    for s in walk_stmts(body):
        values = exprs_of(s)[1:] if isinstance(s, Store) else exprs_of(s)
        stack = list(values)
        while stack:
            e = stack.pop()
            if e == axis:
                return False
            stack += () if isinstance(e, Load | Lanes) else parts(e)
    return True


def _waits(body: tuple[Stmt, ...], machine: Machine) -> float:
    """Cycles from the first element of a row until the last value is known that some of its elements need.

    0 where nothing adds up lanes of vectors and is needed later.
    """
    known: dict[str, float] = {}
    longest = 0.0
    for s in body:
        inside = list(walk_stmts((s,)))
        read = [e.name for e in subexpressions(e for x in inside for e in exprs_of(x)) if isinstance(e, Local)]
        start = max((known.get(name, 0.0) for name in read), default=0.0)
        longest = max(longest, start)
        match s:
            case Let(local, value) if local.lanes == 1:
                known[local.name] = start + (_latency(value, machine) if start else 0.0)
            case Block():
                for x in inside:
                    folds = [e for e in subexpressions(exprs_of(x)) if isinstance(e, Fold)]
                    if isinstance(x, Set) and folds:
                        known[x.local.name] = start + machine.latency * (1 + folds[0].vector.lanes.bit_length())
            case If():
                return 0.0
            case _:
                pass
    return longest


def _latency(e: Expr, machine: Machine) -> float:
    """Cycles from the operands of an expression to its value."""
    match e:
        case Apply(fn, args):
            return max(machine.latency, SCALARS[fn].cycles) + max(_latency(a, machine) for a in args)
        case _:
            return 0.0
