"""What the iterations of a loop touch: elements of tensors, in terms of numbers that each iteration has for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, substitute
from dlc.kernel.loops.program import Block, For, If, Lanes, Stmt, Store, exprs_of, subexpressions, walk_stmts
from dlc.kernel.simplify import Linear, bounds, conjuncts, linear, simplify


@dataclass(frozen=True)
class Access:
    """Elements that one iteration touches: `lanes` from `at` on, in terms of what moves inside of the loop, where
    certain linear forms are not above 0."""

    tensor: str
    at: Expr
    lanes: int
    moving: frozenset[Axis]
    guards: tuple[Linear, ...]


def most_iterations(start: Expr, stop: Expr, step: int, extent: int) -> int | None:
    """How often a loop runs at most; None where that is not known."""
    match stop:
        case Apply("min", (a, b)):
            found = [n for x in (a, b) if (n := most_iterations(start, x, step, extent)) is not None]
            return min(found, default=None)
        case _:
            span, first = bounds(simplify(stop - start)), bounds(start)
            lengths = [*([span[1]] if span else []), *([extent - first[0]] if first else [])]
            return max(0, -(-min(lengths) // step)) if lengths else None


def numbers_inside(loop: For, number: Axis) -> tuple[Axis, Expr, int] | None:
    """(numbers of which each iteration of a loop has some of its own, the first of an iteration, how many these are).

    None where there is no loop inside over such numbers.
    """
    for s in walk_stmts(loop.body):
        match s:
            case For(axis, start, stop, _, 1) if loop.axis in axes_in(start):
                count = most_iterations(start, stop, 1, axis.extent)
                first = simplify(substitute(start, {loop.axis: loop.start + number * loop.step}))
                form = linear(first)
                if form and count and not form.without(number).terms and count <= form.coefficient(number):
                    return Axis("##", axis.extent), first, count
            case _:
                pass
    return None


@dataclass
class Walk:
    """What statements read or write; loops over `inner` (see `numbers_inside`) have one axis."""

    inner: tuple[Axis, Expr, int] | None
    loops: int = 0

    def accesses(
        self,
        body: tuple[Stmt, ...],
        values: Mapping[Axis, Expr],
        moving: frozenset[Axis],
        guards: tuple[Linear, ...],
    ) -> Iterator[Access]:
        """Everything that statements touch; `values` are those of axes in terms of the `moving` ones."""
        for s in body:
            for e in subexpressions(exprs_of(s)):
                match e:
                    case Lanes(Load(tensor, (at,))):
                        yield Access(tensor, substitute(at, values), e.span, moving, guards)
                    case Load(tensor, (at,)):
                        yield Access(tensor, substitute(at, values), 1, moving, guards)
                    case _:
                        pass
            match s:
                case For(axis, _, _, inner):
                    value, number = self._values(s, values)
                    yield from self.accesses(inner, {**values, axis: value}, moving | {number}, guards)
                case If(condition, then, otherwise):
                    more = tuple(_not_above(condition, values))
                    yield from self.accesses(then, values, moving, (*guards, *more))
                    yield from self.accesses(otherwise, values, moving, guards)
                case Block(inner):
                    yield from self.accesses(inner, values, moving, guards)
                case Store(tensor, at, _, lanes):
                    yield Access(tensor, substitute(at, values), lanes, moving, guards)
                case _:
                    pass

    def _values(self, s: For, values: Mapping[Axis, Expr]) -> tuple[Expr, Axis]:
        """(the value of a loop's variable, what moves in it)."""
        first, last = (substitute(e, values) for e in (s.start, s.stop))
        count = most_iterations(first, last, s.step, s.axis.extent)
        if self.inner and s.step == 1 and count is not None:
            axis, start, most = self.inner
            if count <= most and simplify(first) == start:
                return axis, axis
        self.loops += 1
        # Of unknown length it reaches anywhere.
        number = Axis(f"#{self.loops}", count if count is not None else 1 << 40)
        return first + number * s.step, number


def _not_above(condition: Expr, values: Mapping[Axis, Expr]) -> Iterator[Linear]:
    """Linear forms that are not above 0 where a condition holds."""
    for c in conjuncts(condition):
        match c:
            case Apply("lt" | "le" | "gt" | "ge" as fn, (x, y)):
                less = x - y if fn in ("lt", "le") else y - x
                if (form := linear(substitute(less + (1 if fn in ("lt", "gt") else 0), values))) is not None:
                    yield form
            case _:
                pass
