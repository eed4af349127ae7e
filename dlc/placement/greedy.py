"""Greedy placement: take buffers in some order and give each the first or the tightest gap.

Orders and gap rules are those of the field: by size (TFLite; Pisarchyk and Lee 2020), by
breadth (the same paper), by conflicts (TVM), by urgency (Vela), by area.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from dlc.placement.buffers import Buffer, aligned, live_profile

Span = tuple[int, int]  # the bytes a placed buffer takes, [start, end)


@dataclass(frozen=True)
class Problem:
    """Buffers reduced to what placing them needs; indices are positions in the sequence given."""

    buffers: tuple[Buffer, ...]
    sizes: tuple[int, ...]  # bytes, rounded up to the alignment
    conflicts: tuple[tuple[int, ...], ...]  # per buffer, the others that are live at some common step
    pick: tuple[Callable[[Sequence[Span | None]], tuple[Span | None, ...]], ...]  # the spans of a buffer's conflicts

    def unplaced(self) -> list[Span | None]:
        """A table of spans in which only fixed buffers are; its last entry stays empty: every pick has an item."""
        spans: list[Span | None] = [None] * (len(self.sizes) + 1)
        for index, buffer in enumerate(self.buffers):
            if buffer.fixed is not None:
                spans[index] = (buffer.fixed, buffer.fixed + self.sizes[index])
        return spans

    def free(self, order: Sequence[int]) -> list[int]:
        """An order without the buffers that are fixed."""
        return [index for index in order if self.buffers[index].fixed is None]

    def taken(self, index: int, spans: Sequence[Span | None]) -> list[Span]:
        """The placed spans that the buffer must not meet, sorted by start."""
        return sorted(filter(None, self.pick[index](spans)))


def problem(buffers: Sequence[Buffer], align: int) -> Problem:
    """Round the sizes and find which buffers are live together. Empty ones conflict with none."""
    sizes = tuple(aligned(buffer.size, align) for buffer in buffers)
    conflicts: list[list[int]] = [[] for _ in buffers]
    live: list[int] = []
    by_birth = sorted((i for i in range(len(buffers)) if sizes[i]), key=lambda i: (buffers[i].birth, i))
    for new in by_birth:
        birth = buffers[new].birth
        live = [old for old in live if buffers[old].death > birth]
        conflicts[new] += live
        for old in live:
            conflicts[old].append(new)
        live.append(new)
    # itemgetter gathers in C, which halves the time of a placement; two extra items make it return a tuple always.
    none = len(buffers)
    pick = tuple(itemgetter(*others, none, none) for others in conflicts)
    return Problem(tuple(buffers), sizes, tuple(tuple(others) for others in conflicts), pick)


Fit = Callable[[list[Span], int], int]


def first_fit(taken: list[Span], size: int) -> int:
    """The lowest offset with `size` free bytes; `taken` are (start, end) ranges sorted by start."""
    floor = 0
    for start, end in taken:
        if start - floor >= size:
            break
        if end > floor:
            floor = end
    return floor


def best_fit(taken: list[Span], size: int) -> int:
    """The start of the smallest gap that holds `size` bytes, else the end of what is taken."""
    floor, best, tightest = 0, -1, -1
    for start, end in taken:
        gap = start - floor
        if gap >= size and (best < 0 or gap < tightest):
            best, tightest = floor, gap
        if end > floor:
            floor = end
    return floor if best < 0 else best


def place_in_order(task: Problem, order: Sequence[int], fit: Fit) -> tuple[list[int], int]:
    """Offsets and arena in bytes when buffers are placed one after another by a gap rule."""
    spans = task.unplaced()
    for index in order:
        start = fit(task.taken(index, spans), task.sizes[index])
        spans[index] = (start, start + task.sizes[index])
    return offsets_of(spans)


def offsets_of(spans: Sequence[Span | None]) -> tuple[list[int], int]:
    """Offsets and arena in bytes of a table in which every buffer is placed."""
    placed = [span for span in spans if span is not None]
    return [start for start, _ in placed], max((end for _, end in placed), default=0)


def by_size(task: Problem) -> list[int]:
    """Largest first, longer lifetimes first among equals."""
    return _ranked(task, lambda i: (-task.sizes[i], task.buffers[i].birth - task.buffers[i].death))


def by_area(task: Problem) -> list[int]:
    """Largest product of size and lifetime first."""
    return _ranked(task, lambda i: (task.sizes[i] * (task.buffers[i].birth - task.buffers[i].death), -task.sizes[i]))


def by_lifetime(task: Problem) -> list[int]:
    """Longest lifetime first, larger ones first among equals."""
    return _ranked(task, lambda i: (task.buffers[i].birth - task.buffers[i].death, -task.sizes[i]))


def by_conflicts(task: Problem) -> list[int]:
    """Most conflicting bytes first."""
    return _ranked(task, lambda i: (-sum([task.sizes[j] for j in task.conflicts[i]]) - task.sizes[i], -task.sizes[i]))


def by_urgency(task: Problem) -> list[int]:
    """Those whose lifetime meets the highest live total first, larger first among equals."""
    steps, totals = live_profile([b for b, size in zip(task.buffers, task.sizes, strict=True) if size], 1)
    position = {step: index for index, step in enumerate(steps)}
    highest = [
        max(totals[position[buffer.birth] : position[buffer.death]]) if size else 0
        for buffer, size in zip(task.buffers, task.sizes, strict=True)
    ]
    return _ranked(task, lambda i: (-highest[i], -task.sizes[i]))


def by_breadth(task: Problem) -> list[int]:
    """Steps by falling live total, and at each step the buffers not yet taken, largest first."""
    events: dict[int, list[int]] = {}
    for index, buffer in enumerate(task.buffers):
        events.setdefault(buffer.birth, []).append(index)
    live: list[int] = []
    breadth: list[tuple[int, list[int]]] = []
    for step in sorted(events):
        live = [index for index in live if task.buffers[index].death > step] + events[step]
        breadth.append((-sum([task.sizes[index] for index in live]), live))
    breadth.sort(key=lambda entry: entry[0])
    order: dict[int, None] = {}
    for _, together in breadth:
        fresh = [index for index in together if index not in order]
        fresh.sort(key=lambda i: (-task.sizes[i], task.buffers[i].id, i))
        order.update(dict.fromkeys(fresh))
    return list(order)


def _ranked(task: Problem, key: Callable[[int], tuple[int, int]]) -> list[int]:
    return sorted(range(len(task.sizes)), key=lambda i: (key(i), task.buffers[i].id, i))


ORDERS: tuple[tuple[str, Callable[[Problem], list[int]]], ...] = (
    ("size", by_size),
    ("area", by_area),
    ("conflicts", by_conflicts),
    ("urgency", by_urgency),
    ("breadth", by_breadth),
)
FEW_ORDERS: tuple[tuple[str, Callable[[Problem], list[int]]], ...] = (
    ("size", by_size),
    ("lifetime", by_lifetime),
    ("area", by_area),
)
FITS: tuple[tuple[str, Fit], ...] = (("first-fit", first_fit), ("best-fit", best_fit))
