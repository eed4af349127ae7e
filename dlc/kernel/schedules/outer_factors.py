"""Factors that are the same along a row are multiplied with each other first, once for the row.

    r[i,j] = 2·(s[i]·x[i,j])   →   r[i,j] = (2·s[i])·x[i,j]

Products are rounded in another order; numbers that are rounded to whole ones or compared later keep theirs.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.kernel.expr import Apply, Axis, Expr, axes_in, combined, operands_of
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.reciprocals import smooth
from dlc.kernel.simplify import is_index

MOST_NODES = 200
"""Of a body that is looked at: long ones may share parts of theirs."""


def with_outer_factors_first(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equation), but for the rounding of products."""
    if not machine.reciprocals:
        return kernel
    changed = [_changed(n) for n in kernel.nests]
    nests = tuple(
        new if new is n or smooth(kernel, k) else n
        for k, (n, new) in enumerate(zip(kernel.nests, changed, strict=True))
    )
    return kernel if nests == kernel.nests else replace(kernel, nests=nests)


def _changed(nest: Nest) -> Nest:
    axes = [i for i in nest.index if isinstance(i, Axis)]
    if nest.reduce is not None or nest.where is not None or len(axes) < 2:
        return nest
    body = _reordered(nest.body, axes[-1]) if nest.nodes <= MOST_NODES else nest.body
    return nest if body == nest.body else replace(nest, body=body)


def _reordered(e: Expr, row: Axis) -> Expr:
    match e:
        case Apply("mul", args) if not is_index(e):
            found = list(operands_of("mul", e))
            outer = [x for x in found if row not in axes_in(x)]
            inner = [x for x in found if row in axes_in(x)]
            if inner and len(outer) > 1:
                return combined("mul", [*outer, *(_reordered(x, row) for x in inner)])
            return Apply("mul", tuple(_reordered(a, row) for a in args))
        case Apply("add" | "sub" | "neg" as fn, args) if not is_index(e):
            return Apply(fn, tuple(_reordered(a, row) for a in args))
        case _:
            return e
