"""What lies on what in a placement, so that it can be made again for buffers of other sizes.

    [a········][b····]        [a··][b····]
    [c····][d········]   →    [c····][d··]        d begins where b and c end, of those it is live together with

Every buffer begins where the highest one below it ends. That is a placement for whatever sizes, as two buffers that are
live together keep their order; with no buffer larger than it was, none lies higher than it did.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.placement.buffers import Buffer
from dlc.placement.tasks import bits


def resting(buffers: Sequence[Buffer], offsets: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For every buffer, those that it rests on: live together with it, below it, and with none between.

    Args:
        buffers: Of sizes above 0, none of which share bytes while they are live together.
        offsets: Where each of them begins.
    """
    below = [0] * len(buffers)  # sets as bits
    live: list[int] = []
    for new in sorted(range(len(buffers)), key=lambda k: buffers[k].birth):
        live = [old for old in live if buffers[old].death > buffers[new].birth]
        for old in live:
            low, high = (old, new) if offsets[old] < offsets[new] else (new, old)
            below[high] |= 1 << low
        live.append(new)
    under: dict[int, int] = {}
    found: list[tuple[int, ...]] = [()] * len(buffers)
    for k in sorted(range(len(buffers)), key=lambda k: offsets[k]):
        direct: list[int] = []
        covered = 0
        for low in sorted(bits(below[k]), key=lambda j: -offsets[j]):
            if not covered >> low & 1:
                direct.append(low)
                covered |= under[low] | 1 << low
        under[k] = covered
        found[k] = tuple(sorted(direct))
    return tuple(found)


def stacked(order: Sequence[int], rests: Sequence[Sequence[int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """(offsets, bytes of all) for sizes that are multiples of the alignment.

    Args:
        order: The buffers so that each comes after those that it rests on.
        rests: What each of them rests on.
        sizes: Bytes of each of them.
    """
    offsets = [0] * len(sizes)
    for k in order:
        offsets[k] = max((offsets[j] + sizes[j] for j in rests[k]), default=0)
    return offsets, max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)
