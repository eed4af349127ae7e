"""Where the values of a plan lie at other sizes than the largest: what lies on what, and a formula for the arena.

    x: 64·n bytes at 0, y: 64·n bytes at 64·n, z: 4,096 bytes on both    →    arena: max(128·n, …) + 4,096 bytes

A plan places every value as if its dimensions had their largest sizes. What a call of smaller sizes needs of each value
is less, so that what lies above may move down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dlc.api.plan import Plan
from dlc.api.region_memory import ALIGN
from dlc.base.extents import Extent, bounds
from dlc.placement import Buffer, check_placement
from dlc.placement.stacked import resting, stacked

MOST_TERMS: Final = 12
"""Of which the largest decides, in the formula of an arena."""


@dataclass(frozen=True)
class Places:
    """The buffers of a plan: values that lie in one place one after the other, and workspaces.

    Attributes:
        buffers: Live while a value of theirs is.
        offsets: Where the plan has them.
        values: Digest of a value or of a view of one → the number of its buffer.
        workspaces: Digest of a step → the number of the buffer that it works in.
    """

    buffers: tuple[Buffer, ...]
    offsets: tuple[int, ...]
    values: Mapping[str, int]
    workspaces: Mapping[str, int]

    @cached_property
    def rests(self) -> tuple[tuple[int, ...], ...]:
        """For every buffer, those that it rests on."""
        return resting(self.buffers, self.offsets)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The buffers from the lowest to the highest."""
        return tuple(sorted(range(len(self.buffers)), key=lambda k: self.offsets[k]))

    def stacked(self, sizes: Sequence[int]) -> tuple[list[int], int]:
        """(offsets, bytes of all) for buffers of these sizes, multiples of `ALIGN`."""
        return stacked(self.order, self.rests, sizes)

    def terms(self, sizes: Sequence[Extent]) -> tuple[Extent, ...] | None:
        """Sizes of the whole, of which the largest decides; None if they are too many to be told."""
        ends: list[tuple[Extent, ...]] = [()] * len(sizes)
        for k in self.order:
            found = _largest([e for j in self.rests[k] for e in ends[j]] or [0])
            if len(found) > MOST_TERMS:
                return None
            ends[k] = tuple(e + sizes[k] for e in found)
        whole = _largest([e for some in ends for e in some] or [0])
        return whole if len(whole) <= MOST_TERMS else None


def places_of(plan: Plan, align: int = ALIGN) -> Places | None:
    """The places of a plan; None if some of its values share bytes in another way than one after the other."""
    buffers: list[Buffer] = []
    offsets: list[int] = []
    values: dict[str, int] = {}
    latest: dict[int, int] = {}  # offset → the last buffer there
    for digest, (birth, death) in sorted(plan.lives.items(), key=lambda each: each[1][0]):
        slot = plan.slots[digest]
        if not slot.size:
            continue
        k = latest.get(slot.offset)
        if k is None or buffers[k].death <= birth:
            k = latest[slot.offset] = len(buffers)
            buffers.append(Buffer(k, slot.size, birth, death))
            offsets.append(slot.offset)
        else:  # written over a value that is read for the last time
            b = buffers[k]
            buffers[k] = Buffer(k, max(b.size, slot.size), b.birth, max(b.death, death))
        values[digest] = k
    workspaces: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        slot = plan.workspaces.get(step.digest)
        if slot is not None and slot.size:
            workspaces[step.digest] = len(buffers)
            buffers.append(Buffer(len(buffers), slot.size, number, number + 1))
            offsets.append(slot.offset)
    if check_placement(buffers, offsets, align):
        return None
    for op in plan.graph.ops:  # views, after what they are views of
        if op.digest in plan.slots and op.digest not in values and op.operands and op.operands[0].digest in values:
            values[op.digest] = values[op.operands[0].digest]
    return Places(tuple(buffers), tuple(offsets), values, workspaces)


def _largest(terms: Sequence[Extent]) -> tuple[Extent, ...]:
    """Those that are the largest for some sizes, as far as bounds tell."""
    found: list[Extent] = []
    for e in dict.fromkeys(terms):
        if any(bounds(e - f)[1] <= 0 for f in found):
            continue
        found = [f for f in found if bounds(f - e)[1] > 0]
        found.append(e)
    return tuple(found)
