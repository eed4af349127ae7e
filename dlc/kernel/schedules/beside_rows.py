"""Sums over the rows that other nests run along are added up while the rows are there, block by block.

    for i: t[i] += x[i,k]; r[i,k] = f(t[i], x[i,k])             for i: t = …; r[i,k] = …; u[i//16,k] += g(t, x[i,k])
    for k i: s[k] += g(t[i], x[i,k])                    →       for k b: s[k] += u[b,k]

Gradients of what all rows share, as of the factor of a norm or of a bias, are such sums: what they add up is read from
memory once. Parts of blocks keep the rounding small, and let threads share the blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dlc.base.types import Type, f32, f64
from dlc.kernel.expr import Axis, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.groups import SHORTEST, has_reuse, partition, plain_write
from dlc.kernel.schedules.machine import Machine

BLOCKS: Final = (64, 32, 16, 8)
"""Rows of a block, the first of these that divides all rows into several."""
MOST_ROOM: Final = 256 << 10
"""Bytes of the sums of all blocks."""


def beside_rows(kernel: Kernel, machine: Machine) -> Kernel:
    """An equal kernel (see the module's equation), but for the rounding of sums."""
    if machine.ordered or not machine.vector_bytes or len(kernel.nests) < 3:
        return kernel
    for name in [r.name for r in kernel.results]:
        kernel = _beside(kernel, name) or kernel
    return kernel


def _beside(kernel: Kernel, name: str) -> Kernel | None:
    """The kernel with the sums of a result added up beside what runs along their rows; None where nothing does."""
    places = kernel.writers.get(name, ())
    if len(places) != 1 or name in kernel.readers:
        return None
    nest = kernel.nests[places[0]]
    p = kernel.tensors[name]
    row = _row(nest, kernel)
    count = row and next((b for b in BLOCKS if row.extent % b == 0 and row.extent > b), 0)
    if row is None or not count or p.type.nbytes * (row.extent // count) > MOST_ROOM:
        return None
    parts = Param(f"{name}_parts", Type(p.dtype, (row.extent // count, *p.shape)))
    block = Axis("b", row.extent // count)
    inner = tuple(a for a in nest.axes if a != row)
    first = Nest(parts.name, (row // count, *nest.index), (row, *inner), nest.body, "add")
    last = Nest(name, nest.index, (*inner, block), parts[(block, *nest.index)], "add")
    others = [n for n in kernel.nests if n.out != name]
    ends = [n for n in others if n.out in {r.name for r in kernel.results} and _is_sum_of(n, kernel)]
    rest = [n for n in others if n not in ends]
    changed = replace(kernel, nests=(*rest, first, *ends, last), locals=(*kernel.locals, parts))
    for group in partition(changed):
        if any(n.out == parts.name for n in group.nests):
            fits = len(group.nests) > 1 and not any(map(has_reuse, group.nests))
            return changed if fits else None
    return None


def _is_sum_of(nest: Nest, kernel: Kernel) -> bool:
    """Whether a nest adds up the parts of blocks."""
    return any(x.param == f"{nest.out}_parts" for x in loads(nest.body)) and nest.out in kernel.tensors


def _row(nest: Nest, kernel: Kernel) -> Axis | None:
    """The axis that a nest adds up across rows of contiguous elements; None for any other nest."""
    p = kernel.tensors[nest.out]
    floats = all(kernel.tensors[x].storage in (f32, f64) and not kernel.tensors[x].type.is_open for x in nest.reads())
    plain = plain_write(nest, p.shape) and nest.where is None and p.storage in (f32, f64) and not p.type.is_open
    if not (plain and floats) or nest.reduce != "add" or len(nest.reduction_axes) != 1 or len(nest.axes) < 2:
        return None
    (row,) = nest.reduction_axes
    column = nest.index[-1]
    if not isinstance(column, Axis) or column.extent < SHORTEST or row.limit is not None:
        return None
    rows = all(x.index and x.index[-1] in (row, column) and row in (*x.index[:1], column) for x in loads(nest.body))
    return row if rows and any(x.index[-1] == column and row in x.index for x in loads(nest.body)) else None
