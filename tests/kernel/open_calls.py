"""Calls of kernels with open sizes: what callers pass at some sizes, and what results mean then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlc.base.extents import value
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import Machine
from dlc.kernel.loops.memory import Memory
from dlc.kernel.loops.program import LoopProgram
from dlc.kernel.nest import Param

Array = Any


class Partly(Memory):
    """Memory whose results may have elements that nobody wrote: NaN."""

    def result(self, name: str) -> Array:
        found = self.tensors[name]
        return np.where(self.written[name], found, np.nan if found.dtype.kind == "f" else -1)


def arguments(kernel: Kernel, sizes: Mapping[str, int]) -> list[Array]:
    """Elements that there are at these sizes; behind them NaN, or integers that are no subscripts."""
    out: list[Array] = []
    rng = np.random.default_rng(0)
    for p in kernel.params:
        if p.type.symbol is not None:
            out.append(np.asarray(sizes[p.type.symbol.name], np.int64))
            continue
        kind = p.dtype.numpy
        room = np.full(p.type.room, np.nan if p.dtype.is_float else 0 if p.dtype.name == "bool" else 1 << 20, kind)
        kept = there(p, sizes)
        shape = room[kept].shape
        room[kept] = (rng.standard_normal(shape) if p.dtype.is_float else rng.integers(0, 2, shape)).astype(kind)
        out.append(room)
    return out


def there(p: Param, sizes: Mapping[str, int]) -> tuple[slice, ...]:
    """The elements of a tensor that have a meaning."""
    if p.type.dense:
        return (slice(value(p.type.size, sizes)),)
    return tuple(slice(value(d, sizes)) for d in p.type.shape)


def meant(kernel: Kernel, sizes: Mapping[str, int]) -> list[Array]:
    """The elements of the results that there are, as the kernel says."""
    found = run_kernel(kernel, arguments(kernel, sizes))
    return [a[there(r, sizes)] for a, r in zip(found, kernel.results, strict=True)]


def called(program: LoopProgram, kernel: Kernel, sizes: Mapping[str, int]) -> list[Array]:
    """The elements of the results that there are, as loops compute them.

    Raises:
        LoopFault: the program does what C leaves undefined.
    """
    args = zip(program.params, arguments(kernel, sizes), strict=True)
    given = {p.name: np.ravel(np.asarray(a, p.storage.numpy)) for p, a in args}
    empty = {r.name: np.zeros(r.type.capacity, r.storage.numpy) for r in program.results}
    empty |= {b.name: np.zeros(b.size, b.dtype.numpy) for b in program.buffers}
    dtypes = {p.name: p.dtype for p in (*program.params, *program.results, *program.buffers)}
    stored = {p.name: p.stored for p in (*program.params, *program.results) if p.stored is not None}
    machine = Machine(Partly(given, empty), dtypes, stored)
    machine.start(program.body)
    found = [machine.memory.result(r.name).reshape(r.type.room) for r in program.results]
    return [a[there(r, sizes)] for a, r in zip(found, kernel.results, strict=True)]
