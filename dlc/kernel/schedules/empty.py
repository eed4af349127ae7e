"""Kernels without what has no points: empty loops, and tensors without elements.

    for i<0: t[…] = …                →   nothing
    for i<4 k<0: r[i] max= p[i,k]    →   for i<4: r[i] = -inf       what the first writer would have started from
    … select(i < 0, p[i], x) …       →   … select(i < 0, 0, x) …    p: f32[0], whose loads are guarded off

Schedules then never meet an empty loop, and nothing needs a tensor that has no memory.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.kernel.define import grid
from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest


def without_empty(kernel: Kernel) -> Kernel:
    """The same kernel; the same object when nothing is empty."""
    none = {p.name for p in kernel.tensors.values() if not p.type.capacity}
    if not none and all(n.points for n in kernel.nests):
        return kernel

    def change(load: Load) -> Expr:
        dtype = kernel.dtypes[load.param]
        return Apply(dtype.name, (Const(0),)) if load.param in none else load

    nests: list[Nest] = []
    started: set[str] = set()
    for n in kernel.nests:
        first = n.out not in started
        started.add(n.out)
        if n.points and n.out not in none:
            nests.append(n.map_loads(change))
        elif first and n.out not in none:
            over = grid(kernel.tensors[n.out].shape, "e")
            nests.append(Nest(n.out, over, over, Const(kernel.start_of(n.out))))
    return replace(kernel, nests=tuple(nests))
