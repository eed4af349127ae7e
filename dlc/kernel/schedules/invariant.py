"""Reductions that do not depend on an axis of their output are computed once for all of it.

    for i k: t[i, k] += f(i)                 for i: t[i] += f(i)
    for i k: r[i, k]  = g(t[i, k], k)   →    for i k: r[i, k] = g(t[i], k)

Sums of x · w with a w of equal elements are of this kind: every output channel is the same sum.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.kernel.expr import Axis, Expr, Load, axes_in
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.groups import plain_write


def without_invariant_axes(kernel: Kernel) -> Kernel:
    """An equal kernel in which every reduction depends on all axes of what it writes, where that can be had."""
    for nest in kernel.nests:
        dims = _invariant(nest, kernel)
        if dims and any(p.name == nest.out for p in kernel.locals):
            kernel = _narrowed(kernel, nest.out, dims)
        elif dims:
            kernel = _through_local(kernel, nest.out, dims)
    return kernel


def _invariant(nest: Nest, kernel: Kernel) -> tuple[int, ...]:
    """Dimensions of the output that the nest's value does not depend on."""
    alone = len(kernel.writers[nest.out]) == 1 and nest.out not in nest.reads()
    if nest.reduce is None or not alone or not plain_write(nest, kernel.tensors[nest.out].shape):
        return ()
    used = set(axes_in(nest.body, *([] if nest.where is None else [nest.where])))
    return tuple(d for d, i in enumerate(nest.index) if isinstance(i, Axis) and i.extent > 1 and i not in used)


def _narrowed(kernel: Kernel, name: str, dims: tuple[int, ...]) -> Kernel:
    """The kernel with a local that lacks these dimensions."""

    def rest(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(i for d, i in enumerate(index) if d not in dims)

    def change(load: Load) -> Expr:
        return Load(name, rest(load.index)) if load.param == name else load

    def nest_of(n: Nest) -> Nest:
        n = n.map_loads(change)
        if n.out != name:
            return n
        gone = {n.index[d] for d in dims}
        return replace(n, index=rest(n.index), axes=tuple(a for a in n.axes if a not in gone))

    locals_ = tuple(_smaller(p, dims) if p.name == name else p for p in kernel.locals)
    return replace(kernel, nests=tuple(nest_of(n) for n in kernel.nests), locals=locals_)


def _through_local(kernel: Kernel, result: str, dims: tuple[int, ...]) -> Kernel:
    """The kernel with a result's reduction in a local of its own, which a nest behind it spreads over the result."""
    number = next(k for k, n in enumerate(kernel.nests) if n.out == result)
    nest = kernel.nests[number]
    local = Param(f"{nest.out}_once", kernel.tensors[nest.out].type)
    kept = tuple(i for i in nest.index if isinstance(i, Axis))
    spread = Nest(nest.out, nest.index, kept, Load(local.name, nest.index))
    nests = (*kernel.nests[:number], replace(nest, out=local.name), spread, *kernel.nests[number + 1 :])
    return _narrowed(replace(kernel, nests=nests, locals=(*kernel.locals, local)), local.name, dims)


def _smaller(param: Param, dims: tuple[int, ...]) -> Param:
    return Param(param.name, param.type.with_shape(tuple(s for d, s in enumerate(param.type.extents) if d not in dims)))
