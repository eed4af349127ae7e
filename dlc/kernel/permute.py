"""Kernels on tensors whose dimensions are stored in another order: only subscripts change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.kernel.expr import Expr, Load, axes_in
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param

Permutation = tuple[int, ...]


def permute(kernel: Kernel, orders: Mapping[str, Permutation]) -> Kernel:
    """The kernel on tensors stored in another order of dimensions: new dimension d is old dimension order[d]."""

    def moved(index: tuple[Expr, ...], name: str) -> tuple[Expr, ...]:
        return tuple(index[d] for d in orders[name]) if name in orders else index

    def param(p: Param) -> Param:
        if p.name not in orders:
            return p
        return Param(p.name, p.type.with_shape(tuple(p.type.shape[d] for d in orders[p.name])))

    def nest_of(n: Nest) -> Nest:
        def change(load: Load) -> Expr:
            return Load(load.param, moved(load.index, load.param))

        index = moved(n.index, n.out)
        first = [a for i in index for a in axes_in(i)]
        axes = tuple(dict.fromkeys((*first, *n.axes)))
        return replace(n, index=index, axes=axes).map_loads(change)

    params, results, locals_ = (tuple(map(param, ps)) for ps in (kernel.params, kernel.results, kernel.locals))
    return Kernel.canonical(params, results, tuple(nest_of(n) for n in kernel.nests), locals_)
