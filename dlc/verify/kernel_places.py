"""Where kernels read and write, for the check of plans: results over operands, and results that only show operands.

It is found by evaluating subscripts, of nests with many points at a part of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dlc.base.types import Array
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.evaluate import values_over
from dlc.kernel.expr import Axis, Expr, Load, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.verify.kernel_elements import numbers

POINTS = 1 << 16
"""Points of a nest at which subscripts are compared: all, or so many that are drawn."""


class Part(NamedTuple):
    """Bytes of a value that are those of a parameter of its kernel, or of another value."""

    start: int
    size: int
    of: int | Op
    at: int
    """Their first byte in what they are of."""


def in_place(step: Op, operand: int, result: int) -> bool:
    """Whether a step may write a result over an operand: each element is read before it, and only it, is written."""
    if not isinstance(step, Call):
        return (operand, result) in step.overwrites()
    return _reads_first(step.body, step.body.params[operand].name, step.body.results[result].name)


@lru_cache(maxsize=4096)
def _reads_first(kernel: Kernel, name: str, out: str) -> bool:
    """Whether the only nest that reads a tensor is the only one that writes a result, at equal subscripts."""
    readers = [nest for nest in kernel.nests if name in nest.reads()]
    writers = [nest for nest in kernel.nests if nest.out == out]
    if not readers:
        return True
    if len(readers) != 1 or readers != writers or kernel.tensors[name].type != kernel.tensors[out].type:
        return False
    (nest,) = readers
    # Elements that the nest leaves out start from an identity, which would be written before others are read.
    whole = nest.where is None and nest.reduce is None and nest.points == kernel.tensors[out].type.capacity
    return whole and all(
        _equal(mine, theirs, nest)
        for e in nest.exprs()
        for x in loads(e)
        if x.param == name
        for mine, theirs in zip(nest.index, x.index, strict=True)
    )


def _equal(one: Expr, other: Expr, nest: Nest) -> bool:
    if one == other:
        return True
    if any(True for e in (one, other) for _ in loads(e)):
        return False
    grid = _points(nest.axes)
    return bool((np.asarray(values_over(one, grid)) == np.asarray(values_over(other, grid))).all())


def _points(axes: Sequence[Axis]) -> Mapping[Axis, Array]:
    """Values of axes at the points where a nest is looked at, the first and the last among them."""
    shape = [a.extent for a in axes]
    count = math.prod(shape)
    if not count:
        return {}
    if count <= POINTS:
        return dict(zip(axes, np.unravel_index(np.arange(count), shape), strict=True)) if axes else {}
    rng = np.random.default_rng(0)
    return {a: np.append(rng.integers(0, a.extent, POINTS - 2), [0, a.extent - 1]) for a in axes}


@lru_cache(maxsize=4096)
def copied(kernel: Kernel, result: int) -> tuple[Part, ...] | None:
    """The parts of a result that are bytes of parameters in their order; None if there is anything else."""
    out = kernel.results[result]
    found: list[Part] = []
    for nest in kernel.nests:
        if nest.out != out.name or not nest.points:
            continue
        names = [p.name for p in kernel.params]
        body = nest.body
        if nest.reduce or nest.where is not None or not isinstance(body, Load) or body.param not in names:
            return None
        number = names.index(body.param)
        source = kernel.params[number]
        if source.dtype != out.dtype or any(True for i in (*nest.index, *body.index) for _ in loads(i)):
            return None
        grid = _points(nest.axes)
        places = numbers(nest.index, out.shape, grid), numbers(body.index, source.shape, grid)
        to, at = (np.broadcast_to(each, max((len(v) for v in grid.values()), default=1)) for each in places)
        first, last = int(to.min()), int(to.max())
        if last - first + 1 != nest.points or (at - to != at[0] - to[0]).any():
            return None
        size = out.dtype.itemsize
        found.append(Part(first * size, nest.points * size, number, (first + int(at[0] - to[0])) * size))
    ends = accumulate((part.size for part in sorted(found)), initial=0)
    if [part.start for part in sorted(found)] != [*ends][:-1] or sum(p.size for p in found) != out.type.nbytes:
        return None
    return tuple(sorted(found))
