"""Axes that subscripts take apart by a constant become two: quotients and remainders become loops.

    for k<272: t += x[k % 4 * 68 + k // 4]·w[k]    →    for q<68, r<4: t += x[r·68 + q]·w[q·4 + r]

Terms keep their order. A shuffle that a contraction reads through has this form, and so have windows of one subscript.
In every nest those axes are taken apart that are added up; loops of an assignment may be taken apart as well, and all
axes of a scatter, whose left side is solved for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.kernel.expr import Apply, Axis, Const, axes_in, loads, walk
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import conjuncts, simplify_nest


def take_apart(nest: Nest) -> Nest:
    """An equal nest (see the module's equation) as far as divisors divide the extents of its reduction axes."""
    return nest if nest.reduce is None else _apart(nest, lambda n: n.reduction_axes)


def assignment_apart(nest: Nest) -> Nest:
    """An equal assignment (see the module's equation) as far as divisors divide axes that its guard does not have."""
    inside = axes_in(*conjuncts(nest.where))
    return _apart(nest, lambda n: tuple(a for a in n.axes if a not in inside))


def scatter_apart(nest: Nest) -> Nest:
    """An equal nest (see the module's equation) as far as divisors divide axes."""
    return _apart(nest, lambda n: n.axes)


def _apart(nest: Nest, among: Callable[[Nest], tuple[Axis, ...]]) -> Nest:
    while (found := _divided(nest, among(nest))) is not None:
        axis, divisor = found
        outer, inner = Axis(f"{axis.name}q", axis.extent // divisor), Axis(f"{axis.name}r", divisor)
        axes = tuple(x for a in nest.axes for x in ((outer, inner) if a == axis else (a,)))
        nest = simplify_nest(nest.substitute({axis: outer * divisor + inner}, axes))
    return nest


def _divided(nest: Nest, among: Sequence[Axis]) -> tuple[Axis, int] | None:
    """One of these axes with the largest constant that divides it in a subscript."""
    best: tuple[Axis, int] | None = None
    subscripts = (*nest.index, *(i for load in loads(nest.body) for i in load.index))
    for x in (x for i in subscripts for x in walk(i)):
        match x:
            case Apply("floordiv" | "mod", (Axis() as a, Const(int() as c))) if a in among and a.limit is None:
                if 1 < c < a.extent and a.extent % c == 0 and (best is None or c > best[1]):
                    best = (a, c)
            case _:
                pass
    return best
