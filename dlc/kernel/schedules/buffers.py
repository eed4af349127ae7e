"""Working memory of loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc.base.types import Type
from dlc.kernel.loops.program import Buffer
from dlc.kernel.schedules.machine import STACK_BYTES


def within(buffers: Sequence[Buffer], limit: int) -> tuple[Buffer, ...]:
    """The buffers of a function with as many on its stack, smallest first, as take no more bytes than the limit."""
    taken = 0
    kept: set[str] = set()
    for b in sorted((b for b in buffers if b.stack), key=lambda b: b.size * b.dtype.itemsize):
        taken += b.size * b.dtype.itemsize
        if taken <= limit:
            kept.add(b.name)
    return tuple(replace(b, stack=b.name in kept) for b in buffers)


def buffer(name: str, of: Type) -> Buffer:
    """Working memory on the stack when it is small."""
    return Buffer(name, of, of.capacity * of.dtype.itemsize <= STACK_BYTES)
