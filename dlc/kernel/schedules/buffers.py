"""Working memory of loops."""

from __future__ import annotations

from dlc.base.types import Type
from dlc.kernel.loops.program import Buffer
from dlc.kernel.schedules.machine import STACK_BYTES


def buffer(name: str, of: Type) -> Buffer:
    """Working memory on the stack when it is small."""
    return Buffer(name, of, of.capacity * of.dtype.itemsize <= STACK_BYTES)
