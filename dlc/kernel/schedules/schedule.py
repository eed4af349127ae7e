"""A kernel becomes loops: groups of nests in order, each by the fastest schedule whose conditions it meets.

Classification is by the roles of axes, never by the name of an op.
"""

from __future__ import annotations

from dlc.kernel.loops import Buffer, Program, Stmt
from dlc.kernel.nest import Kernel
from dlc.kernel.schedules.groups import partition
from dlc.kernel.schedules.machine import STACK_BYTES, Machine
from dlc.kernel.schedules.scalar_loops import fill, scalar_group
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.start import needs_fill
from dlc.types import DType


def schedule(kernel: Kernel, machine: Machine) -> Program:
    """The loops of a kernel for a machine; results and reductions as `kernel.evaluate`, up to the order of sums."""
    body: list[Stmt] = []
    scopes = [open_scope(g, kernel) for g in partition(kernel)]
    narrow = {name: s.tensors[name].type.size for s in scopes for name in s.narrow}
    scalars = {name for s in scopes for name in s.scalars}
    buffers = [buffer(p.name, p.dtype, narrow.get(p.name, p.type.size)) for p in kernel.locals if p.name not in scalars]
    wide = [p for p in (*kernel.results, *kernel.locals) if p.name not in narrow]
    filled = [p for p in wide if needs_fill(kernel, p.name)]
    for p in filled:
        body += fill(p.name, p.type.size, kernel.start_of(p.name))
    written = frozenset(p.name for p in filled)
    for s in scopes:
        body += scalar_group(s, kernel, machine, written)
        written |= {n.out for n in s.nests}
    return Program(kernel.params, kernel.results, tuple(buffers), tuple(body), machine.vector_bytes > 0)


def buffer(name: str, dtype: DType, size: int) -> Buffer:
    """Working memory on the stack when it is small."""
    return Buffer(name, dtype, size, size * dtype.itemsize <= STACK_BYTES)
