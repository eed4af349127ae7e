"""What loops touch, without what they compute: each access alone, within only those loops that its subscript needs.

    for y in 0..56:                                  p0[y*64+k]    for y, for k
      for f in 0..4:                         →       p1[k*64+f*16 .. +16]    for f, for k
        for k in 0..64:                              r0[y*64+f*16 .. +16]    for y, for f
          c = c + p0[y*64+k]*p1[…]
        r0[y*64+f*16 .. +16] = c

So all places that a statement reaches are enumerated in far fewer steps than it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.base.types import DType
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Lanes,
    Let,
    Local,
    Prefetch,
    Set,
    Stmt,
    Store,
    Words,
    subexpressions,
    walk_stmts,
)


@dataclass(frozen=True)
class Loop:
    """Around an access: a loop without its body."""

    axis: Axis
    start: Expr
    stop: Expr
    step: int


@dataclass(frozen=True)
class Guard:
    """Around an access: a condition, and whether it holds."""

    condition: Expr
    holds: bool


Around: TypeAlias = Loop | Guard | Let


@dataclass(frozen=True)
class Access:
    """Elements that a statement reads or writes.

    Attributes:
        at: The first of them, but for a constant.
        places: Constants to add: one for each access that differs in nothing else.
        around: What decides whether it happens, and where; outermost first.
    """

    tensor: str
    at: Expr
    lanes: int
    write: bool
    around: tuple[Around, ...]
    places: tuple[int, ...] = (0,)


class Unclear(Exception):
    """Where an access goes, or whether it happens, depends on values that are computed."""


def accesses(body: tuple[Stmt, ...], known: Mapping[str, DType]) -> tuple[Access, ...] | None:
    """Every access of some statements, each once; None where one depends on more than `known` tensors.

    Args:
        body: The statements.
        known: Tensors whose elements may decide: parameters of integers.
    """
    changed = frozenset(s.local.name for s in walk_stmts(body) if isinstance(s, Set))
    try:
        found = list(_Finder(known, changed).body(body, ()))
    except Unclear:
        return None
    alike: dict[Access, set[int]] = {}
    for a in found:
        base, place = _split(a.at)
        alike.setdefault(replace(a, at=base), set()).add(place)
    return tuple(replace(a, places=tuple(sorted(places))) for a, places in alike.items())


def _split(at: Expr) -> tuple[Expr, int]:
    """A subscript as one without a constant, and the constant."""
    total = 0
    while True:
        match at:
            case Apply("add", (rest, Const(int(k)))):
                at, total = rest, total + k
            case Apply("sub", (rest, Const(int(k)))):
                at, total = rest, total - k
            case Const(int(k)):
                return Const(0), total + k
            case _:
                return at, total


def path_to(body: tuple[Stmt, ...], number: int) -> tuple[Stmt, ...]:
    """The statements that the statement of this number, in the order of `walk_stmts`, is inside, and itself."""
    wanted = next(s for k, s in enumerate(walk_stmts(body)) if k == number)

    def search(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for s in body:
            if s is wanted:
                return (s,)
            if found := search(_inside(s)):
                return (s, *found)
        return ()

    return search(body)


def store_at(body: tuple[Stmt, ...], path: tuple[Stmt, ...], known: Mapping[str, DType]) -> Access | None:
    """The write of the store at the end of a path; None where it is not clear from loops and `known` tensors."""
    around: list[Around] = []
    for s in path:
        place = next(k for k, x in enumerate(body) if x is s)
        around += [x for x in body[:place] if isinstance(x, Let) and x.local.lanes == 1 and not x.local.dtype.is_float]
        match s:
            case For(axis, start, stop, inner, step):
                around.append(Loop(axis, start, stop, step))
                body = inner
            case If(condition, then, otherwise):
                holds = any(x is path[path.index(s) + 1] for x in then)
                around.append(Guard(condition, holds))
                body = then if holds else otherwise
            case Block(inner):
                body = inner
            case Store(out, at, _, lanes):
                changed = frozenset(x.local.name for x in walk_stmts(body) if isinstance(x, Set))
                try:
                    return _Finder(known, changed).access(out, at, lanes, True, tuple(around))
                except Unclear:
                    return None
            case _:
                pass
    return None


def _inside(s: Stmt) -> tuple[Stmt, ...]:
    match s:
        case For(_, _, _, inner) | Block(inner):
            return inner
        case If(_, then, otherwise):
            return (*then, *otherwise)
        case _:
            return ()


@dataclass(frozen=True)
class _Finder:
    known: Mapping[str, DType]
    changed: frozenset[str]

    def body(self, body: tuple[Stmt, ...], around: tuple[Around, ...]) -> Iterator[Access]:
        for s in body:
            yield from self._stmt(s, around)
            if isinstance(s, Let):
                around = (*around, s)

    def _stmt(self, s: Stmt, around: tuple[Around, ...]) -> Iterator[Access]:
        match s:
            case For(axis, start, stop, inner, step):
                yield from self._reads(start, around)
                yield from self._reads(stop, around)
                yield from self.body(inner, (*around, Loop(axis, start, stop, step)))
            case If(condition, then, otherwise):
                yield from self._reads(condition, around)
                yield from self.body(then, (*around, Guard(condition, True)))
                yield from self.body(otherwise, (*around, Guard(condition, False)))
            case Let(_, value) | Set(_, value):
                yield from self._reads(value, around)
            case Store(out, at, value, lanes):
                yield from self._reads(at, around)
                yield from self._reads(value, around)
                yield self.access(out, at, lanes, True, around)
            case Prefetch(tensor, at, _):
                del tensor
                yield from self._reads(at, around)
            case Block(inner):
                yield from self.body(inner, around)

    def _reads(self, e: Expr, around: tuple[Around, ...]) -> Iterator[Access]:
        match e:
            case Load(name, (at,)):
                yield from self._reads(at, around)
                yield self.access(name, at, 1, False, around)
            case Lanes(Load(name, (at,))):
                yield from self._reads(at, around)
                yield self.access(name, at, e.span, False, around)
            case Words(Load(name, (at,))):
                yield from self._reads(at, around)
                yield self.access(name, at, e.span(1), False, around)
            case Apply("select", (condition, then, otherwise)):
                yield from self._reads(condition, around)
                yield from self._reads(then, (*around, Guard(condition, True)))
                yield from self._reads(otherwise, (*around, Guard(condition, False)))
            case Apply("and" | "or", (first, second)):
                yield from self._reads(first, around)
                yield from self._reads(second, (*around, Guard(first, e.fn == "and")))
            case Apply(_, args):
                for a in args:
                    yield from self._reads(a, around)
            case _:
                pass

    def access(self, name: str, at: Expr, lanes: int, write: bool, around: tuple[Around, ...]) -> Access:
        """With what is around it, as far as it has a say."""
        used = self._names(at)
        kept: list[Around] = []
        for item in reversed(around):
            match item:
                case Loop(axis, start, stop, _) if axis.name in used:
                    used |= self._names(start) | self._names(stop)
                    kept.append(item)
                case Loop(_, start, stop, _):
                    if not (isinstance(start, Const) and isinstance(stop, Const) and start.value < stop.value):
                        used |= self._names(start) | self._names(stop)
                        kept.append(Guard(Apply("lt", (start, stop)), True))
                case Guard(condition, _):
                    used |= self._names(condition)
                    kept.append(item)
                case Let(local, value) if local.name in used:
                    used |= self._names(value)
                    kept.append(item)
                case Let():
                    pass
        return Access(name, at, lanes, write, tuple(reversed(kept)))

    def _names(self, e: Expr) -> set[str]:
        """Axes and variables in an expression that decides; raises Unclear."""
        found: set[str] = set()
        for x in subexpressions((e,)):
            match x:
                case Axis(name, _):
                    found.add(name)
                case Local(name, dtype, _):
                    if dtype.is_float or name in self.changed:
                        raise Unclear
                    found.add(name)
                case Load(name, _) if name not in self.known:
                    raise Unclear
                case _:
                    pass
        return found
