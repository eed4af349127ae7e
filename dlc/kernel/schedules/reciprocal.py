"""Divisions of a loop's elements by one number are products with its reciprocal.

    for j<1000: r[j] = t[j]/s   →   c = |s| < 2^-64 ? 2^64 : 1;  i = 1/(s*c);  for j<1000: r[j] = t[j]*c*i

A processor divides a vector in the time of ten products. Without the factor c, which is exact, the reciprocal of a
subnormal number would be infinite where the quotient is not. Quotients are rounded twice instead of once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dlc.base.types import DType, f32, f64
from dlc.kernel.expr import Apply, Const, Expr, Load, apply, select, substitute, walk
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Let,
    Local,
    Stmt,
    Store,
    dtype_of,
    exprs_of,
    subexpressions,
    writes,
)
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.schedules.lanes import has_lanes
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import simplify

LONG: Final = 64
"""Elements from which on a reciprocal is worth its time."""
FACTOR: Final[Mapping[DType, float]] = {f32: 2.0**64, f64: 2.0**512}
"""What makes the reciprocal of every number finite: about the root of the largest number."""


def by_reciprocals(body: tuple[Stmt, ...], dtypes: Mapping[str, DType], machine: Machine) -> tuple[Stmt, ...]:
    """Statements with products in place of the divisions of long loops (see the module's equation)."""
    if machine.ordered or machine.vector_bytes < 16:
        return body
    return _Reciprocals(dtypes).body(body)


@dataclass(frozen=True)
class _Reciprocals:
    dtypes: Mapping[str, DType]

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self._stmt(s) for s in body)

    def _stmt(self, s: Stmt) -> Stmt:
        match s:
            case For(_, start, stop, inner):
                count = simplify(stop - start)
                long = isinstance(count, Const) and count.value >= LONG
                simple = all(isinstance(x, Let | Store) for x in inner)
                return self._loop(s) if simple and long else replace(s, body=self.body(inner))
            case Block(inner):
                return Block(self.body(inner))
            case If(condition, then, otherwise):
                return If(condition, self.body(then), self.body(otherwise))
            case _:
                return s

    def _loop(self, loop: For) -> Stmt:
        divisions = list(self._divisions(loop))
        before: list[Stmt] = []
        mapping: dict[Expr, Expr] = {}
        for k, (divisor, dtype) in enumerate(dict.fromkeys((d.args[1], t) for d, t in divisions)):
            by, factor, inverse = (Local(f"{loop.axis.name}_{word}{k}", dtype) for word in ("by", "factor", "inverse"))
            most = FACTOR[dtype]
            size = select(apply("lt", apply("abs", by), 1.0 / most), most, 1.0)
            before += (Let(by, divisor), Let(factor, size), Let(inverse, apply("div", 1.0, by * factor)))
            mapping |= {d: d.args[0] * factor * inverse for d, _ in divisions if d.args[1] == divisor}
        if not before:
            return loop
        return Block((*before, replace(loop, body=tuple(_mapped(s, mapping) for s in loop.body))))

    def _divisions(self, loop: For) -> Iterator[tuple[Apply, DType]]:
        """Quotients of elements by a number that does not change in the loop, with its type."""
        own = writes(loop.body) | {s.local.name for s in loop.body if isinstance(s, Let)}
        for x in subexpressions(e for s in loop.body for e in exprs_of(s)):
            match x:
                case Apply("div", (dividend, divisor)) if not any(isinstance(e, Const) for e in (dividend, divisor)):
                    dtype = dtype_of(divisor, self.dtypes, {})
                    if dtype in FACTOR and not has_lanes(divisor) and _is_fixed(divisor, loop, own):
                        yield x, dtype
                case _:
                    pass


def _is_fixed(e: Expr, loop: For, own: Container[str]) -> bool:
    """Whether a value is the same in all iterations of a loop that changes its `own` variables and tensors."""
    names = {x.name if isinstance(x, Local) else x.param for x in walk(e) if isinstance(x, Local | Load)}
    return not axis_inside(e, loop.axis) and not any(name in own for name in names)


def _mapped(s: Stmt, mapping: Mapping[Expr, Expr]) -> Stmt:
    match s:
        case Let(local, value):
            return Let(local, substitute(value, mapping))
        case Store():
            return replace(s, value=substitute(s.value, mapping))
        case _:
            return s
