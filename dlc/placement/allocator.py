"""What decides whether buffers fit into a memory: the interface of solvers, and the search for the least that suffices.

    capacity   →   offsets | refuted | unknown

Deciding one capacity is much easier than minimising, so the least capacity is found by questions: the lower bound
first, then half-way between what is refuted and what is known to suffice.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from dlc.placement.buffers import Buffer, aligned
from dlc.placement.check import check_placement

LARGEST: Final = 1 << 60
"""Bytes and steps beyond which no allocator is asked: theirs are numbers of 64 bits."""


@dataclass(frozen=True)
class Instance:
    """Buffers to be placed, for an allocator: none is empty, and sizes have no common divisor."""

    births: tuple[int, ...]
    """First step at which each is live."""
    deaths: tuple[int, ...]
    """First step at which it no longer is, after its birth."""
    sizes: tuple[int, ...]
    """In units: bytes divided by what divides all sizes and the alignment."""
    most: int
    """The largest sum of sizes that are live at one step; no smaller capacity is ever asked about."""


@dataclass(frozen=True)
class Decision:
    """What an allocator found about one capacity."""

    offsets: tuple[int, ...] | None
    """Where each buffer begins, in units; None where it found no placement."""
    refuted: bool
    """There is none: everything was searched."""
    work: int
    """What it took of the work allowed."""


class Allocator(ABC):
    """Decides whether buffers fit. What it finds depends on the arguments only, except where a deadline ends it."""

    name: ClassVar[str]
    """What the option `allocator` of plan-memory calls it."""

    @classmethod
    def lacks(cls) -> str:
        """What it needs and does not find on this machine, as a clause; "" where it can be used."""
        return ""

    @abstractmethod
    def decide(self, instance: Instance, capacity: int, work: int, deadline: float | None) -> Decision:
        """Whether the instance fits into a capacity.

        Args:
            instance: What is to be placed.
            capacity: Units, at least `instance.most`.
            work: What it may do, in units of its own that do not depend on the machine: 10^9 take a few seconds.
            deadline: The value of time.monotonic() at which it gives up; None for no such limit.
        """


@dataclass(frozen=True)
class Least:
    """What is known of the least arena."""

    offsets: tuple[int, ...] | None
    """In bytes, of a placement smaller than the one known before; None where there is none or none was found."""
    arena: int
    """Bytes of the smallest placement known."""
    floor: int
    """Bytes: every smaller arena is refuted."""
    late: bool
    """The deadline ended it: with more time, another result is possible."""


def least_arena(
    allocator: Allocator,
    buffers: Sequence[Buffer],
    align: int,
    *,
    bound: int,
    arena: int,
    work: int,
    deadline: float | None = None,
) -> Least:
    """The smallest arena between a lower bound and what is known to suffice, all in bytes.

    Each question gets at most half of the work that is left, so that the first cannot use up all. Raises ValueError
    where an allocator gives offsets that are no placement.
    """
    filled = [k for k, b in enumerate(buffers) if b.size]
    sizes = [aligned(buffers[k].size, align) for k in filled]
    steps = [s for k in filled for s in (buffers[k].birth, buffers[k].death)]
    if bound >= arena or max(arena, max(steps) - min(steps)) > LARGEST:
        return Least(None, arena, bound, late=False)
    unit = math.gcd(*sizes)
    begin = min(steps)
    instance = Instance(
        tuple(buffers[k].birth - begin for k in filled),
        tuple(buffers[k].death - begin for k in filled),
        tuple(s // unit for s in sizes),
        bound // unit,
    )
    # Every offset is a sum of sizes, so only multiples of the unit are worth a question.
    low, high = bound // unit, -(-arena // unit)  # below low all is refuted; high suffices
    asked, silent = low, low - 1  # nothing is known of any capacity from low to silent
    best: tuple[int, ...] | None = None
    late = False
    while asked < high and work > 0 and not late:
        found = allocator.decide(instance, asked, -(-work // 2), deadline)
        work -= max(found.work, 1)
        if found.offsets is not None:
            best, high = _checked(allocator, instance, asked, found.offsets)
        elif found.refuted:
            low = asked + 1
        else:
            silent = asked
            late = deadline is not None and time.monotonic() >= deadline
        next_low = max(low, silent + 1)
        asked = next_low + (high - next_low) // 2
    if best is None:
        return Least(None, arena, low * unit, late)
    offsets = [0] * len(buffers)
    for k, offset in zip(filled, best, strict=True):
        offsets[k] = offset * unit
    return Least(tuple(offsets), high * unit, low * unit, late)


def _checked(
    allocator: Allocator, instance: Instance, capacity: int, offsets: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """Offsets with the capacity that they need, which may be less than was asked for."""
    placed = [
        Buffer(k, size, birth, death)
        for k, (size, birth, death) in enumerate(zip(instance.sizes, instance.births, instance.deaths, strict=True))
    ]
    faults = check_placement(placed, offsets, 1, capacity)
    if faults:
        raise ValueError(f"the allocator {allocator.name} gave no placement: {faults[0]}")
    return offsets, max(o + s for o, s in zip(offsets, instance.sizes, strict=True))
