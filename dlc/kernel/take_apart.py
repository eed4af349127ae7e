"""Reduction axes that subscripts take apart by a constant become two: quotients and remainders become loops.

    for k<272: t += x[k % 4 * 68 + k // 4]·w[k]    →    for q<68, r<4: t += x[r·68 + q]·w[q·4 + r]

Terms keep their order. A shuffle that a contraction reads through has this form, and so have windows of one subscript.
"""

from __future__ import annotations

from dlc.kernel.expr import Apply, Axis, Const, loads, walk
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import simplify_nest


def take_apart(nest: Nest) -> Nest:
    """An equal nest (see the module's equation) as far as divisors divide the extents of its reduction axes."""
    if nest.reduce is None:
        return nest
    while (found := _divided(nest)) is not None:
        axis, divisor = found
        outer, inner = Axis(f"{axis.name}q", axis.extent // divisor), Axis(f"{axis.name}r", divisor)
        axes = tuple(x for a in nest.axes for x in ((outer, inner) if a == axis else (a,)))
        nest = simplify_nest(nest.substitute({axis: outer * divisor + inner}, axes))
    return nest


def _divided(nest: Nest) -> tuple[Axis, int] | None:
    """A reduction axis with the largest constant that divides it in a subscript."""
    reduced = set(nest.reduction_axes)
    best: tuple[Axis, int] | None = None
    for load in loads(nest.body):
        for x in (x for i in load.index for x in walk(i)):
            match x:
                case Apply("floordiv" | "mod", (Axis() as a, Const(int() as c))) if a in reduced and a.limit is None:
                    if 1 < c < a.extent and a.extent % c == 0 and (best is None or c > best[1]):
                        best = (a, c)
                case _:
                    pass
    return best
