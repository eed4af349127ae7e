"""How much a kernel computes, and how much it reads and writes: what a machine's limits are compared with."""

from __future__ import annotations

from dlc.kernel.expr import Apply, Expr
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest


def applied(body: Expr) -> set[Apply]:
    """The functions applied in a body, equal ones once; what stands inside subscripts is left out."""
    found: set[Apply] = set()
    pending = [body]
    while pending:
        e = pending.pop()
        if isinstance(e, Apply) and e not in found:
            found.add(e)
            pending += e.args
    return found


def work(kernel: Kernel) -> tuple[int, int]:
    """(multiply-accumulates, operations) of one call.

    An operation is one scalar function at one point; additions of a reduction count, index arithmetic does not.
    """
    flops = sum(nest.points * (len(applied(nest.body)) + (nest.reduce is not None)) for nest in kernel.nests)
    return sum(map(macs_of, kernel.nests)), flops


def macs_of(nest: Nest) -> int:
    """Multiply-accumulates of a nest."""
    is_sum = nest.reduce == "add" and isinstance(nest.body, Apply) and nest.body.fn == "mul"
    return nest.points if is_sum else 0


def bytes_read(kernel: Kernel) -> tuple[int, ...]:
    """Bytes that one call reads of each parameter, every element once; not more than there are loads of it."""
    found: list[int] = []
    for p in kernel.params:
        loads = sum(nest.points * len(nest.loads.get(p.name, ())) for nest in kernel.nests)
        found.append(min(p.type.packed_bytes, loads * p.type.dtype.itemsize))
    return tuple(found)
