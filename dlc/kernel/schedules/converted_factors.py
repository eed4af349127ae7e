"""Factors of products that are stored in narrow types are converted by rows, where there are no vectors.

    for m n k: t[m,n] += f32(x[m,k])·f32(w[n,k])
    →
    for m k: x'[m,k] = x[m,k];   for n: [for k: w'[k] = w[n,k];  for m k: t[m,n] += x'[m,k]·w'[k]]

Compilers turn the loops that convert into vector instructions, but not a sum whose order counts.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dlc.base.types import Type
from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.groups import is_product
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import is_index

SHORTEST = 32
"""Terms of a sum for which a copy pays."""


def converted_factors(kernel: Kernel, machine: Machine) -> tuple[Kernel, frozenset[str]]:
    """An equal kernel (see the module's equation), and the tensors that hold converted factors."""
    if machine.ordered or machine.vector_bytes >= 16 or not any(p.stored for p in kernel.params):
        return kernel, frozenset()
    nests: list[Nest] = []
    locals_ = list(kernel.locals)
    made: set[str] = set()
    for nest in kernel.nests:
        match nest.body:
            case Apply(fn, args) if is_product(nest) and nest.where is None and _long(nest):
                factors: list[Expr] = []
                for factor in args:
                    axes = _copied(factor, nest, kernel)
                    dtype = kernel.dtype_of(factor)
                    if not axes or dtype is None:
                        factors.append(factor)
                        continue
                    name = f"{nest.out}wide{len(locals_)}"
                    locals_.append(Param(name, Type(dtype, tuple(a.extent for a in axes))))
                    nests.append(Nest(name, axes, axes, factor))
                    factors.append(Load(name, axes))
                    made.add(name)
                nests.append(replace(nest, body=Apply(fn, tuple(factors))))
            case _:
                nests.append(nest)
    return replace(kernel, nests=tuple(nests), locals=tuple(locals_)), frozenset(made)


def _long(nest: Nest) -> bool:
    return math.prod(a.extent for a in nest.reduction_axes) >= SHORTEST


def _copied(factor: Expr, nest: Nest, kernel: Kernel) -> tuple[Axis, ...]:
    """The axes of a copy of a factor, those that are summed last; none where it is wide, or a copy would be larger."""
    read = list(loads(factor))
    narrow = [x for x in read if kernel.tensors[x.param].stored is not None]
    if not narrow or not all(is_index(i) for x in read for i in x.index):
        return ()
    inside = set(axes_in(factor))
    kept = tuple(a for a in nest.axes if a in inside and a not in nest.reduction_axes)
    axes = (*kept, *(a for a in nest.axes if a in inside and a in nest.reduction_axes))
    size = math.prod(a.extent for a in axes)
    return axes if size <= max(kernel.tensors[x.param].type.capacity for x in narrow) else ()
