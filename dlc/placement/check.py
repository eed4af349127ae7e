"""An independent judge of placements: it shares no code with the planners it judges."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol


class Interval(Protocol):
    """What the judge needs to know about a buffer."""

    @property
    def id(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def birth(self) -> int: ...
    @property
    def death(self) -> int: ...


def check_placement(
    buffers: Sequence[Interval], offsets: Sequence[int], align: int, arena: int | None = None
) -> list[str]:
    """Everything wrong with the offsets, one sentence each; an empty list means the placement is sound.

    Checks the number of offsets, that none is negative or misaligned, that no two buffers
    live at the same step share a byte, and, if an arena size is given, that all fit in it.
    """
    if len(offsets) != len(buffers):
        return [f"{len(buffers)} buffers but {len(offsets)} offsets"]
    faults: list[str] = []
    for buffer, offset in zip(buffers, offsets, strict=True):
        if offset < 0:
            faults.append(f"buffer {buffer.id} has the negative offset {offset}")
        if offset % align:
            faults.append(f"buffer {buffer.id} at offset {offset} is not aligned to {align} bytes")
        if arena is not None and offset + buffer.size > arena:
            faults.append(f"buffer {buffer.id} ends at {offset + buffer.size}, beyond the arena of {arena} bytes")
    return faults + (_overlaps(buffers, offsets) if _any_overlap(buffers, offsets) else [])


def check_regions(
    buffers: Sequence[Interval],
    places: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    align: int,
) -> list[str]:
    """The same of buffers in several memories, each of which has a size: places are (number of a memory, offset)."""
    if len(places) != len(buffers):
        return [f"{len(buffers)} buffers but {len(places)} places"]
    wrong = [
        f"buffer {b.id} is in memory {r} of {len(sizes)}"
        for b, (r, _) in zip(buffers, places, strict=True)
        if not 0 <= r < len(sizes)
    ]
    for region, size in enumerate(sizes):
        inside = [k for k, (r, _) in enumerate(places) if r == region]
        faults = check_placement([buffers[k] for k in inside], [places[k][1] for k in inside], align, size)
        wrong += [f"memory {region}: {fault}" for fault in faults]
    return wrong


def _any_overlap(buffers: Sequence[Interval], offsets: Sequence[int]) -> bool:
    """Whether two buffers that are live together share bytes, in n log n.

    Up to the first overlap the live buffers are disjoint, so a new one need only be compared with its two neighbours in
    the order of addresses.
    """
    filled = [k for k, b in enumerate(buffers) if b.size > 0 and b.death > b.birth]
    events = sorted([(buffers[k].death, 0, k) for k in filled] + [(buffers[k].birth, 1, k) for k in filled])
    live: list[tuple[int, int]] = []  # first byte and the byte behind the last, ascending
    for _, born, k in events:
        span = (offsets[k], offsets[k] + buffers[k].size)
        place = bisect_left(live, span)
        if not born:
            del live[place]
        elif (place > 0 and live[place - 1][1] > span[0]) or (place < len(live) and live[place][0] < span[1]):
            return True
        else:
            live.insert(place, span)
    return False


def _overlaps(buffers: Sequence[Interval], offsets: Sequence[int]) -> list[str]:
    faults: list[str] = []
    live: list[int] = []
    for new in sorted(range(len(buffers)), key=lambda index: buffers[index].birth):
        born, low = buffers[new], offsets[new]
        live = [index for index in live if buffers[index].death > born.birth]
        for old in live:
            start = max(low, offsets[old])
            end = min(low + born.size, offsets[old] + buffers[old].size)
            if start < end:
                faults.append(
                    f"buffers {buffers[old].id} and {born.id} share bytes [{start}, {end}) at step {born.birth}"
                )
        if born.death > born.birth:
            live.append(new)
    return faults
