"""Long sums are stored with their columns innermost first, and by themselves, so that parts of them can be added up.

    r[f,c,k] += g[n,f]·x[n+k,c]         →      t[f,k,c] += g[n,f]·x[n+k,c];  r[f,c,k] = t[f,k,c]

The gradient of a convolution's weights has this form. What follows such a sum reads it from memory: compared with the
sum that is nothing, and the panels of a reduction that runs through would not fit a cache.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dlc.base.types import f32, f64
from dlc.kernel.expr import Axis, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.blocked import LONG, columns_of
from dlc.kernel.schedules.groups import is_product, plain_write, single
from dlc.kernel.schedules.machine import Machine


def columns_innermost(kernel: Kernel, machine: Machine) -> tuple[Kernel, frozenset[str]]:
    """An equal kernel (see the module's equation), and the tensors whose sums stay by themselves."""
    if machine.strict or machine.vector_bytes < 16:
        return kernel, frozenset()
    nests: list[Nest] = []
    locals_ = list(kernel.locals)
    alone: set[str] = set()
    for nest in kernel.nests:
        run = _run(nest, kernel, machine)
        kept = tuple(i for i in nest.index if isinstance(i, Axis))
        if not run:
            nests.append(nest)
        elif kept[len(kept) - len(run) :] == run:
            nests.append(nest)
            alone.add(nest.out)
        else:
            target = kernel.tensors[nest.out]
            index = (*(i for i in kept if i not in run), *run)
            name = f"{nest.out}turned{len(locals_)}"
            dims = dict(zip(nest.index, target.type.shape, strict=True))
            locals_.append(Param(name, target.type.with_shape(tuple(dims[a] for a in index))))
            rest = tuple(a for a in nest.axes if a not in index)
            nests.append(replace(nest, out=name, index=index, axes=(*index, *rest)))
            nests.append(Nest(nest.out, nest.index, index, Load(name, index)))
            alone.add(name)
    return replace(kernel, nests=tuple(nests), locals=tuple(locals_)), frozenset(alone)


def _run(nest: Nest, kernel: Kernel, machine: Machine) -> tuple[Axis, ...]:
    """The axes of the columns of a long sum on copies; none for any other nest."""
    out = kernel.tensors[nest.out]
    if not is_product(nest) or out.dtype not in (f32, f64) or not plain_write(nest, out.shape):
        return ()
    if math.prod(a.extent for a in nest.reduction_axes) <= LONG:
        return ()
    if sum(n.out == nest.out for n in kernel.nests) != 1:
        return ()
    group = single(nest)
    names = dict(zip((a.name for a in group.nests[0].axes), nest.axes, strict=True))
    return tuple(names[x.name] for x in columns_of(group, kernel, machine))
