"""How many operations loops execute, counted where they are: what a machine's arithmetic is compared with.

An operation is a scalar function of one element; what is computed for vectors counts once per lane, a sum of products
of a word's elements as its products and additions. Arithmetic of subscripts, conversions and moves are none. Loops
that end at an axis around them are counted as they run. What data decide counts as the shorter way: nothing that is
counted is left out when the program runs, so no time is below what a machine needs for it.

`weight` is the same for a limit that is measured on 32-bit floats: vectors hold four times as many bytes, and half as
many doubles, so these count a quarter and two. Signs, comparisons and choices, which processors do along with other
operations, weigh nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlc.base.types import DType, bf16
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.loops.program import (
    Block,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Pick,
    Set,
    Shuffle,
    Stmt,
    Store,
    Words,
    dtype_of,
    lanes_of,
    parts,
    subexpressions,
    walk_stmts,
)
from dlc.kernel.scalar import SCALARS

ENUMERATED: Final = 128
"""Iterations of loops in each other that are looked at one by one; of more so many, evenly."""
_LEAST: Final = 8
"""Of a loop inside of others that take all of these."""
_ALONG: Final = frozenset(("neg", "abs", "not", "and", "or", "xor", "bitand", "bitor", "bitxor"))
"""Functions that processors do along with others, or on more units than sums."""


class Executed(NamedTuple):
    """Operations of one call."""

    operations: int
    weight: float
    """In operations on 32-bit floats."""


@dataclass
class _Counter:
    tensors: Mapping[str, DType]
    deciding: frozenset[str]
    """Names that decide how often something runs: the values of others are of no interest."""
    known: dict[Expr, DType | None] = field(default_factory=dict[Expr, DType | None])
    counts: dict[Expr, int] = field(default_factory=dict[Expr, int])
    """Lanes by value."""
    once: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[int, float]] = field(
        default_factory=dict[tuple[int, tuple[tuple[str, int], ...]], tuple[int, float]]
    )
    """By a loop, and the values of the axes around it that it depends on."""
    values: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict[tuple[int, int], tuple[int, float]])
    """By an expression and lanes."""
    room: int = ENUMERATED
    """Iterations that a loop may look at."""
    needs: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    """By a loop: names of axes and variables that decide how often something in it runs."""

    def body(self, stmts: Sequence[Stmt], env: Mapping[str, int]) -> tuple[int, float]:
        operations, weight = 0, 0.0
        env = dict(env)
        for s in stmts:
            match s:
                case For():
                    found = self.loop(s, env)
                case If(condition, then, otherwise):
                    found = self.branch(condition, then, otherwise, env)
                case Block(inner):
                    found = self.body(inner, env)
                case Let(local, value) | Set(local, value):
                    found = self.value(value, local.lanes)
                    self._follow(local, value, env)
                case Store(_, _, value, lanes):
                    found = self.value(value, lanes)
                case _:
                    continue
            operations, weight = operations + found[0], weight + found[1]
        return operations, weight

    def branch(
        self, condition: Expr, then: Sequence[Stmt], otherwise: Sequence[Stmt], env: Mapping[str, int]
    ) -> tuple[int, float]:
        taken = _number(condition, env)
        if taken is not None:
            return self.body(then if taken else otherwise, env)
        one, other = self.body(then, env), self.body(otherwise, env)
        return min(one[0], other[0]), min(one[1], other[1])

    def loop(self, s: For, env: Mapping[str, int]) -> tuple[int, float]:
        needed = self._needed(s)
        key = id(s), tuple(sorted((name, n) for name, n in env.items() if name in needed))
        if key not in self.once:
            self.once[key] = self._loop(s, env)
        return self.once[key]

    def _loop(self, s: For, env: Mapping[str, int]) -> tuple[int, float]:
        start, stop = _number(s.start, env), _number(s.stop, env)
        if start is None or stop is None or stop <= start:
            return 0, 0.0  # how often is found by the call
        trips = -(-(stop - start) // s.step)
        inside = {k: n for k, n in env.items() if k != s.axis.name}
        if s.axis.name not in self._inner(s):
            operations, weight = self.body(s.body, inside)
            return trips * operations, trips * weight
        count = min(trips, max(self.room, _LEAST))
        places = (
            range(start, stop, s.step)
            if count == trips
            else [start + k * trips // count * s.step for k in range(count)]
        )
        room, self.room = self.room, self.room // count
        found = [self.body(s.body, {**inside, s.axis.name: place}) for place in places]
        self.room = room
        return sum(f[0] for f in found) * trips // count, sum(f[1] for f in found) * trips / count

    def _inner(self, s: For) -> frozenset[str]:
        """Names that decide how often something in a loop's body runs."""
        if id(s) not in self.needs:
            self.needs[id(s)] = _deciding(s.body)
        return self.needs[id(s)]

    def _needed(self, s: For) -> frozenset[str]:
        return self._inner(s) | _names((s.start, s.stop))

    def _follow(self, local: Local, value: Expr, env: dict[str, int]) -> None:
        if local.name not in self.deciding:
            return
        found = _number(value, env) if local.lanes == 1 else None
        if found is None:
            env.pop(local.name, None)
        else:
            env[local.name] = found

    def lanes(self, e: Expr) -> int:
        """Lanes of a value."""
        if e not in self.counts:
            self.counts[e] = lanes_of(e, self.lanes)
        return self.counts[e]

    def value(self, e: Expr, lanes: int) -> tuple[int, float]:
        """Of an expression that is evaluated for so many lanes; equal parts of it are computed once."""
        key = id(e), lanes
        if key not in self.values:
            self.values[key] = self._value(e, lanes)
        return self.values[key]

    def _value(self, e: Expr, lanes: int) -> tuple[int, float]:
        operations, weight, seen = 0, 0.0, set[Expr]()
        pending = [e]
        while pending:
            now = pending.pop()
            if now in seen or isinstance(now, Load | Lanes | Words | Local | Const | Axis | Shuffle | Pick):
                continue
            seen.add(now)
            pending += parts(now)
            if _is_subscript(now):
                continue
            own = min(lanes, self.lanes(now))
            match now:
                case Dots(_, b):
                    terms = 2 if b.dtype is bf16 else 4
                    operations, weight = operations + 2 * terms * own, weight + 2 * own
                case Fold(_, vector):
                    operations, weight = operations + vector.lanes - 1, weight + vector.lanes - 1
                case Apply(fn, _):
                    scalar = SCALARS[fn]
                    if scalar.rule in ("cast", "bits"):
                        continue
                    operations += own
                    if scalar.rule == "same" and fn not in _ALONG:
                        dtype = dtype_of(now, self.tensors, self.known)
                        weight += own * (dtype.bits if dtype else 32) / 32
                case _:
                    pass
        return operations, weight


def executed(program: LoopProgram) -> Executed:
    """The operations of a call; of loops whose ends a call finds, and of what data decide, the least."""
    return Executed(*_Counter(program.dtypes, _deciding(program.body)).body(program.body, {}))


def _deciding(body: tuple[Stmt, ...]) -> frozenset[str]:
    """Names of axes and variables that decide how often something in a body runs."""
    names: set[str] = set()
    values: dict[str, list[Expr]] = {}
    for each in walk_stmts(body):
        match each:
            case For(_, start, stop):
                names |= _names((start, stop))
            case If(condition):
                names |= _names((condition,))
            case Let(local, value) | Set(local, value):
                values.setdefault(local.name, []).append(value)
            case _:
                pass
    pending = list(names)
    while pending:
        more = _names(values.get(pending.pop(), ())) - names
        names |= more
        pending += more
    return frozenset(names)


def _is_subscript(e: Expr) -> bool:
    """Whether an expression is of axes and numbers alone."""
    return isinstance(e, Axis | Const) or (isinstance(e, Apply) and all(map(_is_subscript, e.args)))


def _names(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset(e.name for e in subexpressions(exprs) if isinstance(e, Axis | Local))


def _number(e: Expr, env: Mapping[str, int]) -> int | None:
    """The value of a subscript where the axes and variables in it have values; None where it has none."""
    match e:
        case Const(value):
            return int(value) if isinstance(value, int | bool) else None
        case Axis() | Local():
            return env.get(e.name)
        case Apply(fn, args):
            given = [_number(a, env) for a in args]
            if any(n is None for n in given):
                return None
            try:
                return int(SCALARS[fn].numpy(*given))
            except (ArithmeticError, TypeError, ValueError, OverflowError):
                return None
        case _:
            return None
