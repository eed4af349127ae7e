"""Cycles of the array, the link and the post-processing unit, under two readings of how a PE computes.

- `parallel`: an element that is broadcast is multiplied for all its outputs in one cycle; the steps are the cycles.
- `serial`: a PE makes one product a cycle.

In both, elements that are zero may be skipped: `density` is the part that is left; of several parts (rows, columns)
the largest counts, as all wait for the slowest. The link moves one beat of 64 bits a cycle in each direction.
Source: cycle model of the S2Train compiler, section 6.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dlc.base.diagnostics import error
from dlc_backend_s2train.cost.work import Work
from dlc_backend_s2train.frames.sizes import BEAT
from dlc_backend_s2train.program import Target

REGISTER_BEATS = 2
"""Burst of one configuration register."""
REGISTERS = 10
"""Configuration registers of a column."""

Reading = Literal["parallel", "serial"]
Bound = Literal["compute", "load", "store", "configuration"]


@dataclass(frozen=True)
class Assumptions:
    """What the published material leaves open."""

    reading: Reading = "parallel"
    density: tuple[float, ...] = (1.0,)
    """Parts of the broadcast elements (serial: of the products) that are not zero; one for all, or one per row, per
    column. The largest counts."""
    overlapped: bool = True
    """Double buffers: loads, computation and stores of different tiles at the same time."""
    partial_bytes: int = 4
    """Of a sum that leaves the array between two loads of weights: 4, 2, or 0 if a column has room for all."""

    def __post_init__(self) -> None:
        """Refuse densities outside 0 to 1."""
        if not self.density or not all(0.0 <= d <= 1.0 for d in self.density):
            raise error(
                "bad-density",
                f"densities lie between 0 and 1, not {', '.join(map(str, self.density)) or 'none at all'}",
                help="give the part of the elements that are not zero",
            )


@dataclass(frozen=True)
class Times:
    """Cycles of one instruction."""

    configuration: int = 0
    """Before anything else."""
    load: int = 0
    """Beats in."""
    compute: int = 0
    store: int = 0
    """Beats out."""
    chunks: int = 1
    """Parts that follow each other through load, compute and store."""
    latency: int = 0
    """Until the last tile has passed the post-processing unit."""
    overlapped: bool = True

    @property
    def total(self) -> int:
        """Cycles from begin to end.

        With double buffers, max(load, compute, store) + fill, where fill is the time of a first and last chunk in the
        other two; without, their sum.
        """
        parts = self.load + self.compute + self.store
        if self.overlapped:
            longest = max(self.load, self.compute, self.store)
            parts = longest + -(-(parts - longest) // self.chunks)
        return self.configuration + parts + self.latency

    @property
    def bound(self) -> Bound:
        """What takes longest."""
        named: tuple[tuple[Bound, int], ...] = (
            ("compute", self.compute + self.latency),
            ("load", self.load),
            ("store", self.store),
            ("configuration", self.configuration),
        )
        return max(named, key=lambda item: item[1])[0]


def compute_cycles(work: Work, assumptions: Assumptions | None = None) -> int:
    """Cycles that the array computes. Never fewer in the parallel reading than `macs * density` over all its lanes."""
    assumptions = assumptions or Assumptions()
    steps = work.steps if assumptions.reading == "parallel" else work.serial_steps
    return math.ceil(steps * Fraction(max(assumptions.density)))


def ideal_serial(work: Work, target: Target | None = None, density: float = 1.0) -> int:
    """Cycles of the serial reading if all PEs were busy all the time: macs·density / PEs."""
    target = target or Target()
    return math.ceil(work.macs * Fraction(density) / (target.cores * target.columns * target.rows))


def utilisation(macs: int, steps: int, target: Target | None = None) -> Fraction:
    """Part of the accumulators that work in a step, on average: macs / (4096·steps)."""
    target = target or Target()
    return Fraction(macs, target.cores * target.columns * target.rows * target.lanes * steps) if steps else Fraction(0)


def beats(count: int) -> int:
    """Link cycles of `count` bytes."""
    return -(-count // BEAT)


def configuration_cycles(columns: int) -> int:
    """Link cycles that set up `columns` columns, each once per pass."""
    return REGISTER_BEATS * REGISTERS * columns


def ppu_latency(target: Target) -> int:
    """Cycles of one tile through the post-processing unit of a column, an element a cycle."""
    return target.rows * target.lanes
