"""Reductions that are written more than once are computed once.

    t[i] += f(i, k);  u[j] += f(j, l);  r[i] = g(t[i], u[i])     →     t[i] += f(i, k);  r[i] = g(t[i], t[i])

Statements that are equal up to the names of their axes and the order of the operands of sums and products have the same
bits. A result that repeats a local is copied from it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from dlc.kernel.expr import Apply, Axis, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.coefficients import multiplies_constants
from dlc.kernel.schedules.groups import plain_write

COMMUTE: Final = ("add", "mul")
"""Functions whose operands may stand in any order, with the same bits."""
MOST_NODES: Final = 200
"""Of an expression whose operands are brought into an order."""


def without_repeated(kernel: Kernel) -> Kernel:
    """An equal kernel (see the module's equation)."""
    known: dict[Hashable, str] = {}
    names: dict[str, str] = {}
    nests: list[Nest] = []
    local = {p.name for p in kernel.locals}
    for k, nest in enumerate(kernel.nests):
        nest = nest.rename(names)
        key = _key(nest, k, kernel)
        first = None if key is None else known.get(key)
        if first is not None and nest.out in local:
            names[nest.out] = first
        elif first is not None and plain_write(nest, kernel.tensors[nest.out].shape):
            axes = tuple(a for a in nest.axes if a not in nest.reduction_axes)
            nests.append(Nest(nest.out, nest.index, axes, Load(first, nest.index)))
        else:
            nests.append(nest)
            if key is not None and nest.out in local:
                known[key] = nest.out
    if not names and tuple(nests) == kernel.nests:
        return kernel
    return replace(kernel, nests=tuple(nests), locals=tuple(p for p in kernel.locals if p.name not in names))


def _key(nest: Nest, number: int, kernel: Kernel) -> Hashable | None:
    """What tells a reduction from others; None of other statements, and where operands or the result change later."""
    read = nest.reads()
    alone = kernel.writers[nest.out] == (number,) and min(kernel.readers.get(nest.out, (number,))) >= number
    if nest.reduce is None or not nest.reduction_axes or not alone or nest.out in read or multiplies_constants(nest):
        return None
    if any(max(kernel.writers.get(name, (-1,))) >= number for name in read):
        return None
    axes = {a: a.named(f"{k}") for k, a in enumerate(nest.axes)}
    same = nest.substitute(dict(axes), tuple(axes.values()))
    of = kernel.tensors[nest.out].type
    parts = (*same.index, same.body, *([] if same.where is None else [same.where]))
    # Long expressions may share parts of theirs, and are as they stand.
    found = tuple(map(_unordered, parts)) if nest.nodes <= MOST_NODES else parts
    return of, kernel.start_of(nest.out), nest.reduce, same.axes, found


def _unordered(e: Expr) -> Hashable:
    """The same for expressions that differ in the order of operands alone."""
    match e:
        case Apply(fn, args):
            found = [_unordered(a) for a in args]
            return fn, frozenset(found) if fn in COMMUTE and len(set(found)) > 1 else tuple(found)
        case Load(name, index):
            return name, tuple(map(_unordered, index))
        case Axis():
            return e
        case _:
            return repr(e)
