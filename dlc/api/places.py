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

from dlc.api.plan import Plan, Slot, results_of
from dlc.base.extents import Extent, bounds
from dlc.graph.op import Op
from dlc.placement import Buffer, check_placement
from dlc.placement.stacked import resting, stacked

ALIGN: Final = 64
"""Bytes that every offset is a multiple of."""
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


def places_of(plan: Plan) -> Places | None:
    """The places of a plan; None if some of its values share bytes in another way than one after the other."""
    lives: dict[str, tuple[Slot, int, int]] = {i.digest: (plan.slots[i.digest], 0, 0) for i in plan.kept}
    for digest, (step, _) in plan.values.items():
        if digest in plan.slots:
            lives[digest] = plan.slots[digest], step, step
    for digest, (slot, birth, death) in lives.items():
        lives[digest] = slot, birth, max(death, plan.last_uses.get(digest, death))
    owners: list[list[int]] = []  # offset, size, birth, death
    values: dict[str, int] = {}
    open_: dict[int, int] = {}  # offset → the buffer that a value is in last
    for digest, (slot, birth, death) in sorted(lives.items(), key=lambda each: each[1][1]):
        if not slot.size:
            continue
        last = open_.get(slot.offset)
        if last is None or owners[last][3] < birth:
            last = open_[slot.offset] = len(owners)
            owners.append([slot.offset, slot.size, birth, death])
        values[digest] = last
        owners[last][1] = max(owners[last][1], slot.size)
        owners[last][3] = max(owners[last][3], death)
    workspaces: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        slot = plan.workspaces.get(step.digest)
        if slot is not None and slot.size:
            workspaces[step.digest] = len(owners)
            owners.append([slot.offset, slot.size, number, number])
    buffers = tuple(Buffer(k, size, birth, death + 1) for k, (_, size, birth, death) in enumerate(owners))
    offsets = tuple(offset for offset, *_ in owners)
    if check_placement(buffers, offsets, ALIGN):
        return None
    for op in plan.graph.ops:  # views, after what they are views of
        _view(op, plan, values)
    return Places(buffers, offsets, values, workspaces)


def _view(op: Op, plan: Plan, values: dict[str, int]) -> None:
    for value in results_of(op) if op.runs else ():
        if value.digest in plan.slots and value.digest not in values and op.operands:
            base = values.get(op.operands[0].digest)
            if base is not None:
                values[value.digest] = base


def _largest(terms: Sequence[Extent]) -> tuple[Extent, ...]:
    """Those that are the largest for some sizes, as far as bounds tell."""
    found: list[Extent] = []
    for e in dict.fromkeys(terms):
        if any(bounds(e - f)[1] <= 0 for f in found):
            continue
        found = [f for f in found if bounds(f - e)[1] > 0]
        found.append(e)
    return tuple(found)
