"""Placement in the order of steps: a buffer takes the first gap at its birth and leaves one at its death.

The linear scan of register allocation (Poletto and Sarkar 1999), over bytes. It needs no table of the buffers that
are live together, of which a wide graph of n values has n²/2 pairs.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from dlc.placement.buffers import Buffer, aligned

Event = tuple[int, bool, int]  # step, whether the buffer is born, its position


def events(buffers: Sequence[Buffer]) -> Iterator[Event]:
    """Births and deaths of the buffers that are not empty: by step, deaths first, then large buffers first."""
    filled = [k for k, b in enumerate(buffers) if b.size]
    ends = sorted((buffers[k].death, k) for k in filled)
    starts = sorted((buffers[k].birth, -buffers[k].size, k) for k in filled)
    at = 0
    for birth, _, k in starts:
        while at < len(ends) and ends[at][0] <= birth:
            yield ends[at][0], False, ends[at][1]
            at += 1
        yield birth, True, k


def pairs(buffers: Sequence[Buffer]) -> int:
    """The number of pairs of buffers that are live at some common step; empty buffers form none."""
    live = found = 0
    for _, born, _ in events(buffers):
        found += live if born else 0
        live += 1 if born else -1
    return found


def place_by_steps(buffers: Sequence[Buffer], align: int) -> tuple[list[int], int]:
    """Offsets and arena in bytes; n log n steps where gaps are few."""
    offsets = [0] * len(buffers)
    gaps = _Gaps()
    for _, born, k in events(buffers):
        size = aligned(buffers[k].size, align)
        if born:
            offsets[k] = gaps.take(size)
        else:
            gaps.give(offsets[k], size)
    return offsets, gaps.top


class _Gaps:
    """Free ranges of bytes below the highest byte that was ever taken."""

    def __init__(self) -> None:
        self.top = 0
        self._free: list[tuple[int, int]] = []  # [start, end), ascending; no two touch

    def take(self, size: int) -> int:
        """The start of the first gap that holds `size` bytes; the arena grows if none does."""
        for k, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[k : k + 1] = [(start + size, end)] if end - start > size else []
                return start
        start = self._free.pop()[0] if self._free and self._free[-1][1] == self.top else self.top
        self.top = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Make the bytes [start, start + size) free again."""
        end = start + size
        k = bisect_left(self._free, (start, end))
        if k < len(self._free) and self._free[k][0] == end:
            end = self._free.pop(k)[1]
        if k and self._free[k - 1][1] == start:
            k -= 1
            start = self._free.pop(k)[0]
        self._free.insert(k, (start, end))
