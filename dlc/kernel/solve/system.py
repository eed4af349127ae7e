"""The solution of subscript equations: what the axes are, given the element that is written.

For a subscript function g over a box with guards, `solve` gives a bijection between the points with g(v) = u and the
points (u, w) of a set of loops. The steps: `flatten` (quotients and remainders become unknowns), `solve_equations`
(elimination and Smith form), then in `ranges`: one-point rules, Fourier-Motzkin ranges, guards that remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.kernel.expr import Axis, Const, Expr, apply, substitute
from dlc.kernel.simplify import Linear, simplify, simplify_guard
from dlc.kernel.solve.equations import solve_equations
from dlc.kernel.solve.flatten import Unsolvable, flatten
from dlc.kernel.solve.forms import condition, positive_first
from dlc.kernel.solve.ranges import narrow, needed, outer_bounds, pin, shift, wrap

MAX_AXES = 16
MAX_UNKNOWNS = 40


@dataclass(frozen=True)
class Solution:
    """All points of a system, each once.

    Attributes:
        values: Every axis of the system over the parameters and the free axes.
        free: Loops that remain, outermost first; none of their names is an identifier.
        guard: Condition over both under which a point of the loops is a point of the system; None: always.
    """

    values: Mapping[Axis, Expr]
    free: tuple[Axis, ...]
    guard: Expr | None


def solve(
    axes: Sequence[Axis], targets: Sequence[tuple[Expr, Expr]], where: Expr | None
) -> Solution | Unsolvable | None:
    """The points v over `axes`, where the guard holds, with `subscript(v) == target` for all targets.

    Args:
        axes: The unknowns; the order of those that stay free is kept.
        targets: Subscripts over the axes, and index expressions over other axes (the parameters) that they equal.
        where: A guard over the axes; parts of it that are no index arithmetic may load.

    Returns:
        The solution; None when there are no points at all; the reason when a subscript is not affine after
        flattening, or the system is too large.
    """
    if any(a.extent <= 0 for a in axes):
        return None
    if len(axes) > MAX_AXES:
        return Unsolvable(f"{len(axes)} axes, more than {MAX_AXES}")
    system = flatten(axes, targets, where)
    if isinstance(system, Unsolvable):
        return system
    if len(system.unknowns) > MAX_UNKNOWNS:
        return Unsolvable(f"{len(system.unknowns)} unknowns, more than {MAX_UNKNOWNS}")
    if Const(False) in system.guards:
        return None
    solved = solve_equations(system)
    if solved is None:
        return None
    solved = narrow(pin(solved))
    if solved is None:
        return None
    solved = narrow(shift(pin(solved)))
    if solved is None:
        return None
    solved = wrap(solved)
    rows = needed(solved)
    rows = (*outer_bounds(solved.free, rows), *rows)
    values = {a: _value(a, solved.values) for a in axes}
    left = [simplify(substitute(g, values)) for g in system.guards]
    guards = (*solved.conditions, *map(condition, rows), *left)
    simple = simplify_guard(_all(guards))
    if simple == Const(False):
        return None
    return Solution(values, solved.free, simple)


def _value(axis: Axis, values: Mapping[Expr, Linear]) -> Expr:
    return simplify(positive_first(values[axis]).expr()) if axis in values else axis


def _all(guards: Sequence[Expr]) -> Expr | None:
    out: Expr | None = None
    for g in guards:
        out = g if out is None else apply("and", out, g)
    return out
