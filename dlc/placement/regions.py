"""Several memories of limited sizes, the fastest first: which one each buffer lies in, and where.

    buffers, accessed bytes   →   (memory, offset) of each; those with most accesses per live byte in fast memory

A memory is filled with the densest buffers (accessed bytes over size times lifetime) as long as the bytes that are live
together fit, then they are placed; where offsets cannot be found within its size, the least dense of those that stick
out move on to the next. If the last memory overflows, the others are filled anew with as much as they hold, the largest
areas first, and then with what is live at the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlc.placement.buffers import Buffer, Placement, aligned, live_profile, max_live

Placer = Callable[[Sequence[Buffer], int | None], Placement]
"""(buffers, bytes that suffice; None: the fewer, the better) → their offsets."""


@dataclass(frozen=True)
class Region:
    """A memory."""

    name: str
    size: int  # bytes
    since: int = 0  # the first step at which its bytes are free


@dataclass(frozen=True)
class Regional:
    """Where buffers lie in several memories, whether or not they fit."""

    of: tuple[int, ...]  # per buffer, the number of its memory
    offsets: tuple[int, ...]  # per buffer, bytes from the beginning of its memory
    placements: tuple[Placement, ...]  # per memory, of its buffers in their order
    fits: bool  # whether every arena is within the size of its memory

    def members(self, region: int) -> list[int]:
        """The buffers of a memory, by position."""
        return [k for k, r in enumerate(self.of) if r == region]


def place_in_regions(
    buffers: Sequence[Buffer], regions: Sequence[Region], accesses: Sequence[int], align: int, placer: Placer
) -> Regional:
    """Places in several memories: the densest buffers in the first, what it does not hold in the next.

    Args:
        buffers: Sizes in bytes.
        regions: At least one, the fastest first.
        accesses: Bytes of each buffer that are read and written in all its life.
        align: Bytes.
        placer: Gives offsets for the buffers of one memory.
    """
    size = [aligned(b.size, align) for b in buffers]
    area = [s * (b.death - b.birth) for s, b in zip(size, buffers, strict=True)]
    step = max_live(buffers, align)[1]
    at_peak = [b.birth <= step < b.death for b in buffers]
    everyone = range(len(buffers))
    orders: list[Callable[[int], tuple[float, ...]]] = [
        lambda k: (-accesses[k] / max(area[k], 1), -accesses[k], k),
        lambda k: (-area[k], k),
        lambda k: (not at_peak[k], -size[k], k),
    ]
    first: Regional | None = None
    for key in orders:
        found = _filled(buffers, regions, sorted(everyone, key=key), align, placer)
        if found.fits:
            return found
        first = first or found
    assert first is not None
    return first


def placed_in(buffers: Sequence[Buffer], of: Sequence[int], regions: Sequence[Region], placer: Placer) -> Regional:
    """Places of buffers whose memories are known."""
    offsets = [0] * len(buffers)
    placements: list[Placement] = []
    for number, region in enumerate(regions):
        members = [k for k, r in enumerate(of) if r == number]
        found = placer([buffers[k] for k in members], region.size)
        for k, offset in zip(members, found.offsets, strict=True):
            offsets[k] = offset
        placements.append(found)
    fits = all(p.arena <= r.size for p, r in zip(placements, regions, strict=True))
    return Regional(tuple(of), tuple(offsets), tuple(placements), fits)


def place_beside(buffers: Sequence[Buffer], free: Sequence[Region], align: int, placer: Placer) -> Regional:
    """Places in memories that are there anyway, each free from some step on, and in one more that is to be small.

    Of several ways to choose who lies in the former, that with the smallest last memory; none if that helps nothing.
    """
    whole = Region("", sum(aligned(b.size, align) for b in buffers))
    step = max_live(buffers, align)[1]
    size = [aligned(b.size, align) for b in buffers]
    orders: list[Callable[[int], tuple[float, ...]]] = [
        lambda k: (not buffers[k].birth <= step < buffers[k].death, -size[k], k),
        lambda k: (-size[k] * (buffers[k].death - buffers[k].birth), k),
        lambda k: (-size[k], k),
    ]
    everyone = range(len(buffers))
    empty = [Region(r.name, 0, r.since) for r in free]
    found = [_filled(buffers, [*empty, whole], list(everyone), align, placer)]
    found += [_filled(buffers, [*free, whole], sorted(everyone, key=key), align, placer) for key in orders]
    return min(found, key=lambda each: each.placements[-1].arena)


def bound_beside(buffers: Sequence[Buffer], free: Sequence[Region], align: int) -> tuple[int, int]:
    """(bytes that the last memory of `place_beside` needs at least, the first step where)."""
    steps, totals = live_profile(buffers, align)
    beyond = [n - sum(r.size for r in free if r.since <= step) for step, n in zip(steps, totals, strict=True)]
    most = max(beyond, default=0)
    return (most, steps[beyond.index(most)]) if most > 0 else (0, 0)


def _filled(
    buffers: Sequence[Buffer], regions: Sequence[Region], order: Sequence[int], align: int, placer: Placer
) -> Regional:
    """Every memory but the last filled in an order, the last with what is left."""
    of, offsets = [len(regions) - 1] * len(buffers), [0] * len(buffers)
    placements: list[Placement] = []
    left = list(order)
    for number, region in enumerate(regions):
        last = number == len(regions) - 1
        able = [k for k in left if buffers[k].birth >= region.since] if region.since else left
        inside = left if last else _chosen(buffers, able, region.size, align)
        inside, placement = _placed(buffers, inside, None if last else region.size, align, placer)
        for k, offset in zip(inside, placement.offsets, strict=True):
            of[k], offsets[k] = number, offset
        placements.append(placement)
        taken = set(inside)
        left = [k for k in left if k not in taken]
    fits = all(p.arena <= r.size for p, r in zip(placements, regions, strict=True))
    return Regional(tuple(of), tuple(offsets), tuple(placements), fits)


def _chosen(buffers: Sequence[Buffer], order: Iterable[int], size: int, align: int) -> list[int]:
    """The buffers in order, without those with which more bytes would be live at some step than there are."""
    live = _Profile(buffers)
    return [k for k in order if live.take(buffers[k], aligned(buffers[k].size, align), size)]


class _Profile:
    """Live bytes by step; steps between which nothing begins or ends are one."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        steps = sorted({s for b in buffers for s in (b.birth, b.death)})
        self._place = {step: k for k, step in enumerate(steps)}
        self._live = [0] * len(steps)

    def take(self, buffer: Buffer, size: int, limit: int) -> bool:
        """Add a buffer, if no more than `limit` bytes are then live."""
        first, behind = self._place[buffer.birth], self._place[buffer.death]
        live = self._live[first:behind]
        if max(live) + size > limit:
            return False
        self._live[first:behind] = [n + size for n in live]
        return True


def _placed(
    buffers: Sequence[Buffer], inside: Sequence[int], size: int | None, align: int, placer: Placer
) -> tuple[list[int], Placement]:
    """(the buffers that stay, in their own order; their offsets): within a size, if one is given.

    `inside` has the least dense buffers last: of those that end above the size, the last half leaves at a time.
    """
    rank = {k: n for n, k in enumerate(inside)}
    while True:
        members = sorted(rank)
        found = placer([buffers[k] for k in members], size)
        if size is None or found.arena <= size:
            return members, found
        ends = zip(members, found.offsets, strict=True)
        above = sorted((k for k, o in ends if o + aligned(buffers[k].size, align) > size), key=lambda k: -rank[k])
        for k in above[: (len(above) + 1) // 2]:
            del rank[k]
