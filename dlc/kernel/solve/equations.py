"""Affine equations over integer unknowns, solved: every unknown as a form over free ones and the parameters.

First unknowns with a unit coefficient are eliminated, the largest first, so that small ones remain as free loops; what
has none left is solved by the Smith form: conditions `b % s == 0` and `b == 0` on the parameters alone, and free
unknowns along the null columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Axis, Const, Expr, apply
from dlc.kernel.simplify import Linear, simplify
from dlc.kernel.solve.flatten import System
from dlc.kernel.solve.forms import atom, combine, constant, content, divided, put, span, split
from dlc.kernel.solve.smith import smith


@dataclass(frozen=True)
class Solved:
    """The integer points of a system, up to inequalities.

    Attributes:
        free: Unknowns that are left, each over 0 .. extent - 1.
        values: Every other unknown as a form over the free ones and the parameters.
        rows: Forms over both that are at least zero, ranges of eliminated unknowns included.
        conditions: Over the parameters alone.
    """

    free: tuple[Axis, ...]
    values: Mapping[Expr, Linear]
    rows: tuple[Linear, ...]
    conditions: tuple[Expr, ...]

    def assign(self, values: Mapping[Expr, Linear], free: tuple[Axis, ...]) -> Solved:
        """Unknowns given values over the free ones that remain; their ranges become rows."""
        ranges = [row for e, form in values.items() if isinstance(e, Axis) for row in within(form, e.extent)]
        return Solved(
            free,
            {**{e: put(form, values) for e, form in self.values.items()}, **values},
            settled((*(put(row, values) for row in self.rows), *ranges)),
            self.conditions,
        )


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
    while True:
        reduced: list[Linear] = []
        conditions: list[Expr] = []
        for equation in pending:
            mine, _ = split(equation, state.free)
            left, condition = _reduce(equation, content(mine), state.free)
            conditions += condition
            if left is not None:
                reduced.append(left)
        state = replace(state, conditions=(*state.conditions, *conditions))
        if Const(False) in conditions:
            return None
        if not reduced:
            return state
        values, free, pending = _unit_step(reduced, state.free) or _smith_step(reduced, state.free)
        pending = [put(e, values) for e in pending]
        state = state.assign(values, free)


def _reduce(equation: Linear, divisor: int, unknowns: Sequence[Axis]) -> tuple[Linear | None, list[Expr]]:
    """An equation with coprime coefficients of its unknowns (None: it has none), and the conditions for that."""
    mine, rest = split(equation, unknowns)
    if divisor == 0:
        return None, _conditions(apply("eq", rest.expr(), 0))
    if divisor == 1:
        return equation, []
    left = Linear(tuple((e, c // divisor) for e, c in mine.terms), 0)
    return combine((1, left), (1, divided(rest, divisor))), _conditions(apply("eq", rest.expr() % divisor, 0))


def _conditions(condition: Expr) -> list[Expr]:
    simple = simplify(condition)
    return [] if simple == Const(True) else [simple]


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
    """Replace the unknowns of the equations, x = V·y; the new equations are s·y = U·b, one unknown each."""
    old = tuple(x for x in unknowns if any(e.coefficient(x) for e in equations))
    form = smith([[e.coefficient(x) for x in old] for e in equations])
    fresh: list[Axis] = []
    new: list[Linear] = []
    for k, row in enumerate(form.v_inverse):
        low, high = _range(row, old)
        fresh.append(Axis(f"{old[0].name}'{k}", high - low + 1))
        new.append(combine((1, atom(fresh[-1])), (low, constant(1))))
    values: dict[Expr, Linear] = {x: combine(*zip(row, new, strict=True)) for x, row in zip(old, form.v, strict=True)}
    rest = [split(e, unknowns)[1] for e in equations]
    left: list[Linear] = []
    for k, row in enumerate(form.u):
        b = combine(*zip(row, rest, strict=True))
        left.append(combine((form.factors[k], new[k]), (1, b)) if k < len(form.factors) else b)
    return values, (*fresh, *(x for x in unknowns if x not in old)), left


def _range(coefficients: Sequence[int], unknowns: Sequence[Axis]) -> tuple[int, int]:
    """Bounds of Σ coefficient · unknown."""
    limits = span(Linear(tuple((x, c) for x, c in zip(unknowns, coefficients, strict=True) if c), 0))
    assert limits is not None
    return limits
