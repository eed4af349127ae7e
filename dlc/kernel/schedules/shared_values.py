"""Values of functions that take long and that several nests of a group need are computed once.

    s[i] += exp(x[i,k]); r[i,j] = exp(x[i,j])/s[i]     →     e[i,k] = exp(x[i,k]); s[i] += e[i,k]; r[i,j] = e[i,j]/s[i]

Only where all that touches them shares loops, so that a row or an element of them exists at a time. The bits are the
same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

from dlc.base.types import Type, f32, f64
from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.groups import partition
from dlc.kernel.simplify import is_index

DEAR = 16.0
"""Cycles of a value from which on it is kept rather than computed again."""


def with_shared_values(kernel: Kernel) -> Kernel:
    """An equal kernel (see the module's equation)."""
    users: dict[Hashable, dict[int, list[tuple[Expr, tuple[Axis, ...]]]]] = {}
    for k, nest in enumerate(kernel.nests):
        for e in _dear(nest, kernel):
            axes = lying(e)
            key = substitute(e, {a: a.named(f"{d}") for d, a in enumerate(axes)}), tuple(a.extent for a in axes)
            users.setdefault(key, {}).setdefault(k, []).append((e, axes))
    for uses in users.values():
        changed = _kept(kernel, uses) if len(uses) > 1 else None
        if changed is not None:
            return with_shared_values(changed)
    return kernel


def _dear(nest: Nest, kernel: Kernel) -> Iterator[Expr]:
    """The largest values of a nest that take long, but for what the whole nest computes."""
    closed = not any(kernel.tensors[name].type.is_open for name in (nest.out, *nest.reads()))
    if nest.where is not None or not closed or any(a.limit is not None or a.extent < 1 for a in nest.axes):
        return
    stack = [nest.body]
    while stack:
        e = stack.pop()
        if not isinstance(e, Apply) or is_index(e):
            continue
        takes = SCALARS[e.fn].cycles >= DEAR and kernel.dtype_of(e) in (f32, f64)
        if takes and (e is not nest.body or nest.reduce is not None):
            yield e
        else:
            stack += e.args


def lying(e: Expr) -> tuple[Axis, ...]:
    """The axes of a value as its largest operand has them, so that it lies like that."""
    largest = max(loads(e), key=lambda x: len(set(axes_in(*x.index))), default=None)
    found = axes_in(*(largest.index if largest is not None else ()), e)
    return tuple(dict.fromkeys(found))


def _kept(kernel: Kernel, uses: dict[int, list[tuple[Expr, tuple[Axis, ...]]]]) -> Kernel | None:
    """The kernel with a value in a local; None where it would be a tensor, or changes between its uses."""
    first = min(uses)
    value, axes = uses[first][0]
    if any(max(kernel.writers.get(x.param, (-1,))) >= first for x in loads(value)) or not axes:
        return None
    dtype = kernel.dtype_of(value)
    assert dtype is not None
    made = Param(f"{kernel.nests[first].out}_value{len(kernel.locals)}", Type(dtype, tuple(a.extent for a in axes)))
    nests = list(kernel.nests)
    for k, found in uses.items():
        loaded: dict[Expr, Expr] = {e: Load(made.name, own) for e, own in found}
        nests[k] = replace(nests[k], body=substitute(nests[k].body, loaded))
    nests.insert(first, Nest(made.name, axes, axes, value))
    changed = replace(kernel, nests=tuple(nests), locals=(*kernel.locals, made))
    touching = len(uses) + 1
    together = any(
        sum(made.name in (n.out, *n.reads()) for n in g.nests) == touching and len(g.shared) <= len(axes)
        for g in partition(changed)
    )
    return changed if together else None
