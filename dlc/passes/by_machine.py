"""Passes that estimate cycles: the numbers of the machine that they do it for."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.api.passes import Pass
from dlc.graph.graph import Graph
from dlc.kernel.schedules import Machine
from dlc.spec import Bytes, option


@dataclass(frozen=True)
class ByMachine(Pass[Graph, Graph]):
    """A pass that decides by an estimate of cycles."""

    vector_bytes: int = option(0, "bytes of the machine's vectors; 0: nothing is changed", low=0)
    registers: int = option(16, "number of its vector registers", low=1)
    l1: Bytes = option(32 << 10, "its first-level cache", low=0)
    l2: Bytes = option(512 << 10, "its second-level cache", low=0)
    l2_rate: float = option(32.0, "bytes that it reads from there in a cycle", low=0.01)
    memory_rate: float = option(6.0, "bytes that it reads from beyond in a cycle", low=0.01)

    @property
    def machine(self) -> Machine:
        """What estimates are made for."""
        sizes = self.vector_bytes, self.registers, self.l1, self.l2
        return Machine(*sizes, l2_rate=self.l2_rate, memory_rate=self.memory_rate)


def cycle_count(cycles: float) -> str:
    """A number of cycles in a message."""
    return f"{cycles / 1e6:.2f} M" if cycles >= 1e5 else f"{cycles / 1e3:.1f} k"
