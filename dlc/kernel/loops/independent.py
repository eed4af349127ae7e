"""Which loops may run their iterations at the same time, and what each iteration then needs for itself.

for i: for j: r[64*i + j] = p[i]            iterations write elements of their own: 64*i to 64*i + 63
for i: t[0] = p[i]; r[i] = t[0]*t[0]        the same if each iteration has a `t` of its own
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from dlc.kernel.expr import Axis, Expr, Load
from dlc.kernel.loops.accesses import Access, Walk, most_iterations, numbers_inside
from dlc.kernel.loops.apart import apart, apart_by_digits
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Let,
    Set,
    Stmt,
    Store,
    exprs_of,
    subexpressions,
    walk_stmts,
    writes,
)


def own_buffers(loop: For, local: Collection[str]) -> tuple[str, ...] | None:
    """The buffers that each iteration must have to itself so that all may run at the same time; None: they may not.

    Args:
        loop: Its axis and those inside have ranges of their own; what it uses from outside does not change meanwhile.
        local: Buffers that nothing outside of the loop's group of statements touches.
    """
    declared = {s.local.name for s in walk_stmts(loop.body) if isinstance(s, Let)}
    if any(isinstance(s, Set) and s.local.name not in declared for s in walk_stmts(loop.body)):
        return None
    count = most_iterations(loop.start, loop.stop, loop.step, loop.axis.extent)
    if count is None:
        return None
    number = Axis("#", count)
    written = writes(loop.body)
    found = _by_tensor(loop, number, written, None)
    shared = {name for name, accesses in found.items() if not apart(accesses, number)}
    if shared - set(local) and (inner := numbers_inside(loop, number)):
        digits = _by_tensor(loop, number, shared - set(local), inner)
        shared -= {name for name, accesses in digits.items() if apart_by_digits(accesses, inner[0], number)}
    if not shared <= set(local) or not all(defined_first(loop.body, name) for name in shared):
        return None
    return tuple(name for name in found if name in shared)


def _by_tensor(
    loop: For, number: Axis, tensors: Collection[str], inner: tuple[Axis, Expr, int] | None
) -> dict[str, list[Access]]:
    """What one iteration of a loop does with some tensors; with `inner`, in terms of such numbers."""
    found: dict[str, list[Access]] = {}
    values = {loop.axis: loop.start + number * loop.step}
    for access in Walk(inner).accesses(loop.body, values, frozenset({number}), ()):
        if access.tensor in tensors:
            found.setdefault(access.tensor, []).append(access)
    return found


GRAIN: Final = 64
"""Iterations of a short loop that stay together: several vectors and whole lines of cache, whatever their size."""


def grain(loop: For) -> int:
    """How many iterations of a parallel loop run on one thread at least, the last ones aside; their number is fixed.

    Compilers make vectors of statements on scalars, and compute what is left behind the last vector by itself, perhaps
    rounded in another way: where threads share the iterations, that must be the same elements as on one thread.
    """
    return GRAIN if rounds(loop.body) <= GRAIN and not any(map(_wide, walk_stmts(loop.body))) else 1


def rounds(body: tuple[Stmt, ...]) -> int:
    """How often the innermost statements run, each time that the outermost do."""
    return max(map(_rounds, body), default=1)


def _rounds(s: Stmt) -> int:
    match s:
        case For(axis, _, _, inner):
            return axis.extent * rounds(inner)
        case If(_, then, otherwise):
            return max(rounds(then), rounds(otherwise))
        case Block(inner):
            return rounds(inner)
        case _:
            return 1


def _wide(s: Stmt) -> bool:
    """Whether a statement is about vectors."""
    match s:
        case Let(local, _) | Set(local, _):
            return local.lanes > 1
        case Store(_, _, _, lanes):
            return lanes > 1
        case _:
            return False


def defined_first(body: tuple[Stmt, ...], name: str) -> bool:
    """Whether statements write a buffer before they read it; what loops have to themselves is no concern of others."""
    return _defined(body, name, False) is not None


def _defined(body: tuple[Stmt, ...], name: str, before: bool) -> bool | None:
    """Whether a buffer has been written when statements have run, if it was `before`; None: one reads it earlier."""
    for s in body:
        if not before and any(isinstance(e, Load) and e.param == name for e in subexpressions(exprs_of(s))):
            return None
        after: bool | None = before
        match s:
            case For(own=own) if name in own:
                pass
            case For(_, _, _, inner) | Block(inner):
                after = _defined(inner, name, before)
            case If(_, then, otherwise):
                ends = _defined(then, name, before), _defined(otherwise, name, before)
                after = None if None in ends else all(ends)
            case Store(out, _, _, _) if out == name:
                after = True
            case _:
                pass
        if after is None:
            return None
        before = after
    return before
