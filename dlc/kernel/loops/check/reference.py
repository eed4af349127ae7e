"""What a kernel says that its results are, in the arithmetic of `residues`: some elements where all take long.

Elements are asked for by masks. A nest runs for those values of the axes that its subscripts name plainly at which
elements are asked for, and for all values of the others: sums are always whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.kernel.evaluate import Points, run_nest, slabs
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, loads, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check.operands import room
from dlc.kernel.loops.check.residues import Field
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import conjuncts

_FEWEST: Final = 2
"""Values of an axis that are asked for at least, where there are so many."""


def reference(
    kernel: Kernel,
    numbers: Field,
    args: Mapping[str, Array],
    sizes: Mapping[str, int],
    masks: Mapping[str, Array],
    most: int,
) -> dict[str, Array]:
    """The results at elements that `masks` ask for, as many as `most` points of nests allow.

    They are in the arithmetic of `numbers`. The masks are reduced to the elements that are right; others have any
    value.
    """
    asked, chosen = _asked(kernel, args, sizes, masks)
    fewer = 64
    while _points(kernel, chosen) > most and fewer >= _FEWEST:
        asked, chosen = _asked(kernel, args, sizes, {name: _thinned(mask, fewer) for name, mask in masks.items()})
        fewer //= 2
    env = dict(args)
    for t in (*kernel.results, *kernel.locals):
        env[t.name] = np.full(room(t.type, sizes), numbers.literal(kernel.start_of(t.name), t.dtype))
    with np.errstate(all="ignore"):
        for nest, values in zip(kernel.nests, chosen, strict=True):
            if values is not None:
                run_nest(kernel, nest, env, numbers, values)
    for name, mask in masks.items():
        mask &= asked[name]
    return {r.name: env[r.name] for r in kernel.results}


def _points(kernel: Kernel, chosen: list[dict[Axis, Array] | None]) -> int:
    return sum(
        math.prod(len(values[a]) if a in values else a.extent for a in nest.axes)
        for nest, values in zip(kernel.nests, chosen, strict=True)
        if values is not None
    )


def _thinned(mask: Array, fewer: int) -> Array:
    """The mask at so many subscripts of every dimension, the first and last among them."""
    out = mask.copy()
    for d in range(mask.ndim):
        there = np.flatnonzero(mask.any(axis=tuple(k for k in range(mask.ndim) if k != d)))
        if len(there) > fewer:
            keep = there[np.unique(np.linspace(0, len(there) - 1, fewer).astype(int))]
            gone = np.asarray([k for k in range(mask.shape[d]) if k not in set(keep.tolist())], np.int64)
            out[(slice(None),) * d + (gone,)] = False
    return out


def _asked(
    kernel: Kernel, args: Mapping[str, Array], sizes: Mapping[str, int], masks: Mapping[str, Array]
) -> tuple[dict[str, Array], list[dict[Axis, Array] | None]]:
    """The elements of every tensor that are needed, and the values of axes that each nest runs for (None: none)."""
    asked = {t.name: np.zeros(room(t.type, sizes), bool) for t in (*kernel.results, *kernel.locals)}
    for name, mask in masks.items():
        asked[name] |= mask
    chosen: list[dict[Axis, Array] | None] = []
    for nest in reversed(kernel.nests):
        mask = asked[nest.out]
        if not mask.any():
            chosen.append(None)
            continue
        values = _ended(kernel, nest, args, _values(nest, mask))
        chosen.append(values)
        for name, found in nest.loads.items():
            if name in asked and not asked[name].all():
                for load in found:
                    _ask(kernel, nest, load, values, args, asked[name])
    return asked, chosen[::-1]


def _values(nest: Nest, mask: Array) -> dict[Axis, Array]:
    """Values of the axes that subscripts name plainly, at which elements are asked for."""
    found: dict[Axis, Array] = {}
    for d, index in enumerate(nest.index):
        if isinstance(index, Axis):
            there = np.flatnonzero(mask.any(axis=tuple(k for k in range(mask.ndim) if k != d)))
            there = there[there < index.extent]
            found[index] = np.intersect1d(found[index], there) if index in found else there
    return found


def _ended(kernel: Kernel, nest: Nest, args: Mapping[str, Array], values: dict[Axis, Array]) -> dict[Axis, Array]:
    """Values of the other axes as well, where a guard says that they end at the size of a call."""
    for part in conjuncts(nest.where):
        match part:
            case Apply("lt", (Axis() as axis, end)) if axis not in values and _given(end, args):
                stop = int(Points(kernel, args, {}, Field()).index(end))
                values[axis] = np.arange(min(axis.extent, stop))
            case _:
                pass
    return values


def _given(e: Expr, args: Mapping[str, Array]) -> bool:
    """Whether an expression is of scalar operands alone."""
    return not axes_in(e) and all(x.param in args and not x.index for x in loads(e))


def _ask(
    kernel: Kernel, nest: Nest, load: Load, values: Mapping[Axis, Array], args: Mapping[str, Array], mask: Array
) -> None:
    """Mark what a load reads."""
    if any(isinstance(x, Load) and mask.size and x.param not in args for i in load.index for x in walk(i)):
        mask[...] = True
        return
    if not load.index:
        mask[...] = True
        return
    places = replace(nest, index=load.index, axes=axes_in(*load.index), body=Const(0), where=None, reduce=None)
    for points, shape in slabs(kernel, places, args, Field(), values):
        where = [np.broadcast_to(points.index(i), shape) for i in load.index]
        inside = np.ones(shape, bool)
        for i, d in zip(where, mask.shape, strict=True):
            inside &= (i >= 0) & (i < d)
        mask[tuple(i[inside] for i in where)] = True
