"""Affine equations over integer unknowns, solved: every unknown as a form over free ones and the parameters.

Unknowns with a unit coefficient are eliminated first, the largest one first, so that small ones remain as free loops.
An equation that has none is solved by the Smith form of its coefficients, with free unknowns along the null columns.
Conditions `b % s == 0` (s divides all coefficients) and `b == 0` (none is left) are on the parameters alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Axis, Const, Expr, apply
from dlc.kernel.simplify import Linear, simplify
from dlc.kernel.solve.flatten import System
from dlc.kernel.solve.forms import (
    atom,
    cleared,
    combine,
    constant,
    content,
    divided,
    positive_first,
    put,
    sign_of,
    span,
    split,
)
from dlc.kernel.solve.smith import smith


@dataclass(frozen=True)
class Solved:
    """The integer points of a system, up to inequalities.

    Attributes:
        free: Unknowns that are left, each over 0 .. extent - 1.
        values: Every other unknown as a form over the free ones and the parameters.
        rows: Forms over both that are at least zero, ranges of eliminated unknowns included.
        conditions: Over the parameters alone.
        exact: Quotients x // s of parameters for which s divides x under the conditions.
    """

    free: tuple[Axis, ...]
    values: Mapping[Expr, Linear]
    rows: tuple[Linear, ...]
    conditions: tuple[Expr, ...]
    exact: frozenset[Expr] = frozenset()

    def assign(self, values: Mapping[Expr, Linear], free: tuple[Axis, ...]) -> Solved:
        """Unknowns given values over the free ones that remain; their ranges become rows."""
        ranges = [row for e, form in values.items() if isinstance(e, Axis) for row in within(form, e.extent)]
        return replace(
            self,
            free=free,
            values={**{e: put(form, values) for e, form in self.values.items()}, **values},
            rows=settled((*(put(row, values) for row in self.rows), *ranges)),
        )

    def under(self, conditions: Sequence[Expr]) -> Solved:
        """The same under further conditions on the parameters."""
        return replace(self, conditions=(*self.conditions, *(c for c in conditions if c != Const(True))))


def within(form: Linear, extent: int) -> tuple[Linear, Linear]:
    """0 <= form < extent as two forms that are at least zero."""
    return form, combine((-1, form), (extent - 1, constant(1)))


def settled(rows: Sequence[Linear]) -> tuple[Linear, ...]:
    """The rows that the ranges of their atoms do not decide to hold, each once."""
    limits = {row: span(row) for row in rows}
    return tuple(row for row, b in limits.items() if b is None or b[0] < 0)


def solve_equations(system: System) -> Solved | None:
    """The solutions of the equations of a system; None when there is none for any parameters."""
    state = Solved(system.unknowns, {}, settled(system.rows), ())
    pending = list(system.equations)
    while pending:
        pending = [_plainly_divided(e, state.free) for e in pending]
        decided = [e for e in pending if not split(e, state.free)[0].terms]
        pending = [e for e in pending if e not in decided]
        state = state.under([_zero(cleared(e, state.exact)) for e in decided])
        if Const(False) in state.conditions:
            return None
        step = _unit_step(pending, state.free)
        common = [e for e in pending if content(split(e, state.free)[0]) > 1]
        if step is None and common:
            # Only where no unit coefficient is left anywhere: an equation may follow from others and their conditions.
            equation = min(common, key=lambda e: len(e.terms))
            pending.remove(equation)
            left, condition, exact = _reduce(equation, state.free)
            pending.append(left)
            state = replace(state.under([condition]), exact=state.exact | exact)
        elif pending:
            values, free, pending = step or _smith_step(pending, state.free)
            pending = [put(e, values) for e in pending]
            state = state.assign(values, free)
    return state


def _plainly_divided(equation: Linear, unknowns: Sequence[Axis]) -> Linear:
    """An equation whose unknowns' common divisor divides the rest too, without it; any other as it is."""
    divisor = content(split(equation, unknowns)[0])
    whole = divisor > 1 and equation.constant % divisor == 0 and content(equation) % divisor == 0
    return divided(equation, divisor) if whole else equation


def _reduce(equation: Linear, unknowns: Sequence[Axis]) -> tuple[Linear, Expr, frozenset[Expr]]:
    """An equation with coprime coefficients of its unknowns, the condition for that, and what is divided exactly."""
    mine, rest = split(equation, unknowns)
    divisor = content(mine)
    left = Linear(tuple((e, c // divisor) for e, c in mine.terms), 0)
    # b % s and -b % s are zero together; with this sign `divided` divides the number itself.
    sign = sign_of(rest, divisor)
    number = positive_first(combine((sign, rest)))
    quotient = divided(number, divisor)
    exact = frozenset(e for e, _ in quotient.terms if not any(e == x for x, _ in number.terms))
    condition = simplify(apply("eq", number.expr() % divisor, 0))
    return combine((sign, left), (1, quotient)), condition, exact


def _zero(form: Linear) -> Expr:
    """form == 0, without the common divisor of its coefficients."""
    common = content(form)
    if common and form.constant % common:
        return Const(False)
    coprime = Linear(tuple((e, c // common) for e, c in form.terms), form.constant // max(common, 1))
    return simplify(apply("eq", positive_first(coprime).expr(), 0))


_Step = tuple[Mapping[Expr, Linear], tuple[Axis, ...], list[Linear]]
"""Values of unknowns, the unknowns that are free then, and the equations that remain."""


def _unit_step(equations: Sequence[Linear], unknowns: tuple[Axis, ...]) -> _Step | None:
    """Solve one equation for an unknown with coefficient ±1: one that is alone first, then the largest."""
    best: tuple[tuple[bool, int], Linear, Axis, int] | None = None
    for equation in equations:
        mine, _ = split(equation, unknowns)
        for e, c in mine.terms:
            assert isinstance(e, Axis)
            rank = (len(mine.terms) == 1, e.extent)
            if abs(c) == 1 and (best is None or rank > best[0]):
                best = rank, equation, e, c
    if best is None:
        return None
    _, equation, e, c = best
    values: dict[Expr, Linear] = {e: combine((-c, equation.without(e)))}
    return values, tuple(x for x in unknowns if x != e), [x for x in equations if x is not equation]


def _smith_step(equations: Sequence[Linear], unknowns: tuple[Axis, ...]) -> _Step:
    """Solve one equation for as few of its unknowns as have coprime coefficients: x = V·y with y_0 = -rest.

    The other unknowns of the equation stay as they are, like parameters: coprime coefficients need no condition. So
    the unknowns that are replaced are few and large, and the free ones are axes of the nest where that is possible.
    """
    equation = min(equations, key=lambda e: len(_coprime(e, unknowns)))
    old = _coprime(equation, unknowns)
    form = smith([[equation.coefficient(x) for x in old]])
    assert form.factors == (1,)
    y = combine((-form.u[0][0], split(equation, old)[1]))
    fresh: list[Axis] = []
    new: list[Linear] = [y]
    for k, row in enumerate(form.v_inverse[1:], 1):
        low, high = _range(row, old)
        fresh.append(Axis(f"{old[0].name}'{k}", high - low + 1))
        new.append(combine((1, atom(fresh[-1])), (low, constant(1))))
    values: dict[Expr, Linear] = {x: combine(*zip(row, new, strict=True)) for x, row in zip(old, form.v, strict=True)}
    rest = [e for e in equations if e is not equation]
    return values, (*fresh, *(x for x in unknowns if x not in old)), rest


def _coprime(equation: Linear, unknowns: Sequence[Axis]) -> tuple[Axis, ...]:
    """Few unknowns of an equation, large ones first, whose coefficients have no common divisor."""
    mine = sorted((x for x in unknowns if equation.coefficient(x)), key=lambda x: -x.extent)
    for x, y in itertools.combinations(mine, 2):
        if math.gcd(equation.coefficient(x), equation.coefficient(y)) == 1:
            return x, y
    divisor, chosen = 0, list[Axis]()
    for x in mine:
        if math.gcd(divisor, equation.coefficient(x)) != divisor:
            divisor = math.gcd(divisor, equation.coefficient(x))
            chosen.append(x)
    return tuple(chosen)


def _range(coefficients: Sequence[int], unknowns: Sequence[Axis]) -> tuple[int, int]:
    """Bounds of Σ coefficient · unknown."""
    limits = span(Linear(tuple((x, c) for x, c in zip(unknowns, coefficients, strict=True) if c), 0))
    assert limits is not None
    return limits
