"""Sums are stored with their columns innermost first where that is not how their result lies.

    r[f,c,k] += g[n,f]·x[n+k,c]         →      t[f,k,c] += g[n,f]·x[n+k,c];  r[f,c,k] = t[f,k,c]

The gradient of a convolution's weights has this form. Vectors are then read and stored as they lie, and parts of a long
sum can be added up. What follows such a sum and stores it in another order reads it from memory, which is little
compared with the sum. So does what follows a long sum on copies: the panels of a reduction that runs through would not
fit a cache.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dlc.base.types import f32, f64
from dlc.kernel.expr import Axis, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.blocked import LONG, columns_of
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.groups import Group, is_product, plain_write, single
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.product_axes import product_axes
from dlc.kernel.schedules.unfit import Unfit

TURNED = 64
"""Terms of a sum from which on its columns are worth to be stored twice."""


def columns_innermost(kernel: Kernel, machine: Machine) -> tuple[Kernel, frozenset[str]]:
    """An equal kernel (see the module's equation), and the tensors whose sums stay by themselves."""
    if machine.ordered or machine.vector_bytes < 16:
        return kernel, frozenset()
    nests: list[Nest] = []
    locals_ = list(kernel.locals)
    alone: set[str] = set()
    for nest in kernel.nests:
        run, long = _run(nest, kernel, machine)
        kept = tuple(i for i in nest.index if isinstance(i, Axis))
        if not run:
            nests.append(nest)
        elif kept[len(kept) - len(run) :] == run:
            nests.append(nest)
            alone |= {nest.out} if long or _moved(nest.out, kernel) else set()
        else:
            target = kernel.tensors[nest.out]
            index = (*(i for i in kept if i not in run), *run)
            name = f"{nest.out}turned{len(locals_)}"
            dims = dict(zip(nest.index, target.type.extents, strict=True))
            locals_.append(Param(name, target.type.with_shape(tuple(dims[a] for a in index))))
            rest = tuple(a for a in nest.axes if a not in index)
            nests.append(replace(nest, out=name, index=index, axes=(*index, *rest)))
            nests.append(Nest(nest.out, nest.index, index, Load(name, index)))
            alone.add(name)
    return replace(kernel, nests=tuple(nests), locals=tuple(locals_)), frozenset(alone)


def _run(nest: Nest, kernel: Kernel, machine: Machine) -> tuple[tuple[Axis, ...], bool]:
    """The axes of the columns of a sum, and whether it is a long one on copies; none where they are of no matter."""
    out = kernel.tensors[nest.out]
    if not is_product(nest) or out.dtype not in (f32, f64) or not plain_write(nest, out.shape):
        return (), False
    terms = math.prod(a.extent for a in nest.reduction_axes)
    if terms < TURNED or sum(n.out == nest.out for n in kernel.nests) != 1:
        return (), False
    group = single(nest)
    names = dict(zip((a.name for a in group.nests[0].axes), nest.axes, strict=True))
    long = terms > LONG
    found = columns_of(group, kernel, machine) if long else ()
    if not found:
        long, found = False, _columns(group, nest, kernel, machine)
    return tuple(names[x.name] for x in found), long


def _moved(name: str, kernel: Kernel) -> bool:
    """Whether something that follows a sum stores its elements in another order."""
    readers = (kernel.nests[k] for k in kernel.readers.get(name, ()))
    return any(load.index[-1] != n.index[-1] for n in readers if n.index for load in n.loads.get(name, ()))


def _columns(group: Group, nest: Nest, kernel: Kernel, machine: Machine) -> tuple[Axis, ...]:
    """The axis of the columns of a product that copies nothing, if it has whole vectors of them and they matter.

    They do not where what follows has vectors of a factor along another axis.
    """
    try:
        axes = product_axes(group, kernel)
    except Unfit:
        return ()
    lanes = machine.lanes(kernel.tensors[nest.out].dtype.itemsize)
    final = _final(nest, kernel)
    places = (offset(x.index, kernel.tensors[x.param].shape) for xs in nest.loads.values() for x in xs)
    if final is None or (final.extent >= lanes and any(coefficient(p, final) == 1 for p in places)):
        return ()
    return axes.run[-1:] if axes.run[-1].extent % lanes == 0 else ()


def _final(nest: Nest, kernel: Kernel) -> Axis | None:
    """The axis of a sum along which the elements of what follows it are neighbours; None where that is unknown."""
    readers = [kernel.nests[k] for k in kernel.readers.get(nest.out, ())]
    last: Expr = nest.index[-1]
    if len(readers) == 1 and readers[0].index:
        (reader,) = readers
        places = {x.index for x in reader.loads[nest.out]}
        if len(places) != 1 or reader.index[-1] not in (place := next(iter(places))):
            return None
        last = nest.index[place.index(reader.index[-1])]
    return last if isinstance(last, Axis) else None
