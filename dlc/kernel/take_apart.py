"""Axes that subscripts take apart by a constant become two: quotients and remainders become loops.

    for k<272: t += x[k % 4 * 68 + k // 4]·w[k]    →    for q<68, r<4: t += x[r·68 + q]·w[q·4 + r]

Terms keep their order. A shuffle that a contraction reads through has this form, and so have windows of one subscript.
In every nest those axes are taken apart that are added up; loops of an assignment may be taken apart as well, all axes
of a scatter, whose left side is solved for them, and those of a result whose places read the same in groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, loads, walk
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import conjuncts, simplify_nest


def take_apart(nest: Nest) -> Nest:
    """An equal nest (see the module's equation) as far as divisors divide the extents of its reduction axes."""
    return nest if nest.reduce is None else _apart(nest, lambda n: n.reduction_axes)


def assignment_apart(nest: Nest) -> Nest:
    """An equal assignment (see the module's equation) as far as divisors divide axes that its guard does not have."""
    inside = axes_in(*conjuncts(nest.where))
    return _apart(nest, lambda n: tuple(a for a in n.axes if a not in inside))


def groups_apart(nest: Nest) -> Nest:
    """An equal sum in which the places of a group are an axis by themselves, as rows of a tile share what they read.

    for i<32: t[i, j] += x[i, k]·y[i // 4, k, j]    →    for g<8, m<4: t[4g + m, j] += x[4g + m, k]·y[g, k, j]

    Only axes before the innermost of the result, along which the operand of a group has to lie as well: of other
    operands each place adds up products of its own. It is left as it is where other quotients or remainders stay, and
    where nothing is read by place, as by transforms of tiles.
    """
    if nest.reduce is None or not nest.index or not isinstance(column := nest.index[-1], Axis):
        return nest
    outer = [a for a in nest.index[:-1] if isinstance(a, Axis)]
    read = list(loads(nest.body))
    divided = [load for load in read if any(_divides(i) for i in load.index)]
    if len(divided) in (0, len(read)) or any(load.index[-1] != column for load in divided):
        return nest
    found = _apart(nest, lambda n: [a for a in n.axes if a in outer])
    return nest if any(_divides(e) for e in found.exprs()) else found


def _divides(e: Expr) -> bool:
    return any(isinstance(x, Apply) and x.fn in ("floordiv", "mod") for x in walk(e))


def scatter_apart(nest: Nest) -> Nest:
    """An equal nest (see the module's equation) as far as divisors divide axes."""
    return _apart(nest, lambda n: n.axes)


def _apart(nest: Nest, among: Callable[[Nest], Sequence[Axis]]) -> Nest:
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
