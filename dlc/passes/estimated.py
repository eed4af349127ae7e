"""Passes that estimate cycles: the machine that they do it for.

Each declares its numbers itself, because listings read the declaration of a pass and import nothing.
"""

from __future__ import annotations

from typing import Protocol

from dlc.kernel.schedules.machine import Machine


class Numbers(Protocol):
    """Options of a pass that are numbers of a machine."""

    @property
    def vector_bytes(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def l1(self) -> int: ...
    @property
    def l2(self) -> int: ...
    @property
    def l2_rate(self) -> float: ...
    @property
    def memory_rate(self) -> float: ...


def machine_of(options: Numbers) -> Machine:
    """What estimates are made for."""
    sizes = options.vector_bytes, options.registers, options.l1, options.l2
    return Machine(*sizes, l2_rate=options.l2_rate, memory_rate=options.memory_rate)


def cycle_count(cycles: float) -> str:
    """A number of cycles in a message."""
    return f"{cycles / 1e6:.2f} M" if cycles >= 1e5 else f"{cycles / 1e3:.1f} k"
