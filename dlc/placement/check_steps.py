"""An independent judge of schedules with repeated tasks: it runs them on a memory of tags.

In the natural order every storage passes through versions, one per write. A byte of the memory holds which version of
which storage was last written there. A step is right if every byte that it reads holds the version that the task reads
in the natural order: no lifetime was cut short, nothing needed was overwritten, no task ran again with others. The
judge shares no code with the planners.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Step(Protocol):
    """What the judge needs to know about a task."""

    @property
    def reads(self) -> Sequence[int]: ...
    @property
    def writes(self) -> Sequence[int]: ...
    @property
    def workspace(self) -> int: ...
    @property
    def inplace(self) -> Sequence[tuple[int, int]]: ...
    @property
    def after(self) -> Sequence[int]: ...


Tag = tuple[int, int] | None
"""A storage and its version, from 0 before its first write; None for bytes that nobody may read."""


@dataclass
class Memory:
    """Bytes with tags."""

    ranges: list[tuple[int, int, Tag]] = field(default_factory=list[tuple[int, int, Tag]])
    """Ascending and disjoint."""
    empty: dict[int, Tag] = field(default_factory=dict[int, Tag])
    """Tags of storages that have no bytes."""

    def write(self, start: int, size: int, tag: Tag) -> None:
        """Overwrite bytes."""
        if not size and tag:
            self.empty[tag[0]] = tag
        if not size:
            return
        end = start + size
        first, last = self._met(start, end)
        met = self.ranges[first:last]
        kept = [(low, start, old) for low, _, old in met[:1] if low < start]
        kept += [(start, end, tag)]
        kept += [(end, high, old) for _, high, old in met[-1:] if high > end]
        self.ranges[first:last] = kept

    def holds(self, start: int, size: int, tag: tuple[int, int]) -> bool:
        """Whether all bytes have the tag."""
        if not size:
            return self.empty.get(tag[0]) == tag
        first, last = self._met(start, start + size)
        met = [(max(low, start), min(high, start + size)) for low, high, old in self.ranges[first:last] if old == tag]
        return sum(high - low for low, high in met) == size

    def _met(self, start: int, end: int) -> tuple[int, int]:
        """The ranges that share bytes with these: the number of the first, and that of the one behind the last."""
        first = bisect_right(self.ranges, start, key=lambda r: r[1])
        return first, bisect_left(self.ranges, end, first, key=lambda r: r[0])


@dataclass(frozen=True)
class Versions:
    """What the natural order says: the version of each storage that a task reads, and that it makes."""

    reads: tuple[dict[int, int], ...]
    makes: tuple[dict[int, int], ...]
    last: dict[int, int]

    @classmethod
    def of(cls, tasks: Sequence[Step]) -> Versions:
        """Run the tasks in order."""
        now: Counter[int] = Counter()
        reads: list[dict[int, int]] = []
        makes: list[dict[int, int]] = []
        for task in tasks:
            reads.append({s: now[s] for s in task.reads})
            now.update(dict.fromkeys(task.writes, 1))
            makes.append({s: now[s] for s in task.writes})
        return cls(tuple(reads), tuple(makes), dict(now))


def check_steps(
    tasks: Sequence[Step],
    sizes: Sequence[int],
    steps: Sequence[int],
    places: Sequence[Mapping[int, int]],
    *,
    arena: int,
    keep: Mapping[int, int] | None = None,
    workspaces: Mapping[int, int] | None = None,
) -> list[str]:
    """Everything wrong with a schedule in an arena, one sentence each; an empty list means that it is right.

    Args:
        tasks: In their natural order, which defines what each reads.
        sizes: Bytes per storage.
        steps: The task that runs in each step; every task at least once.
        places: Per step, the first byte of each storage that its task touches.
        arena: Bytes that there are.
        keep: Storages that are read after the last step → their first byte.
        workspaces: Step → the first byte of what its task works in, where it works in any.
    """
    if len(places) != len(steps):
        return [f"{len(steps)} steps, but places for {len(places)}"]
    if unknown := [k for k in steps if not 0 <= k < len(tasks)]:
        return [f"there is no task {unknown[0]}"]
    faults = [f"task {k} never runs" for k in sorted(set(range(len(tasks))) - set(steps))]
    faults += _lost(tasks, steps)
    versions = Versions.of(tasks)
    memory = Memory()
    for storage, start in _given(tasks, steps, places, keep or {}):
        memory.write(start, sizes[storage], (storage, 0))
    for number, (k, place) in enumerate(zip(steps, places, strict=True)):
        task, own = tasks[k], (workspaces or {}).get(number) if tasks[k].workspace else None
        if missing := [s for s in (*task.reads, *task.writes) if s not in place]:
            return [*faults, f"step {number} (task {k}) has no place for storage {missing[0]}"]
        if task.workspace and own is None:
            return [*faults, f"step {number} (task {k}) has no place to work in"]
        found = (*_outside(task, sizes, place, own, arena), *_stale(k, task, sizes, place, versions, memory))
        faults += [f"step {number} (task {k}): {fault}" for fault in (*found, *_clashes(task, sizes, place, own))]
        if own is not None:
            memory.write(own, task.workspace, None)
        for s, version in versions.makes[k].items():
            memory.write(place[s], sizes[s], (s, version))
    for s, start in (keep or {}).items():
        if not memory.holds(start, sizes[s], (s, versions.last.get(s, 0))):
            faults.append(f"storage {s} is not at {start} in the end")
    return faults


def _outside(task: Step, sizes: Sequence[int], place: Mapping[int, int], own: int | None, arena: int) -> Iterable[str]:
    """What lies beyond the arena."""
    for s in dict.fromkeys((*task.reads, *task.writes)):
        if place[s] < 0 or place[s] + sizes[s] > arena:
            yield f"storage {s} is outside of the arena of {arena} bytes"
    if own is not None and (own < 0 or own + task.workspace > arena):
        yield f"it works outside of the arena of {arena} bytes"


def _stale(
    k: int, task: Step, sizes: Sequence[int], place: Mapping[int, int], versions: Versions, memory: Memory
) -> Iterable[str]:
    """What a task does not find; of a storage with several writers also the parts that it does not write itself."""
    for s, version in versions.reads[k].items():
        if not memory.holds(place[s], sizes[s], (s, version)):
            yield f"version {version} of storage {s} is not at {place[s]}"
    for s in dict.fromkeys(task.writes):
        before = versions.makes[k][s] - 1
        if versions.last[s] > 1 and before and not memory.holds(place[s], sizes[s], (s, before)):
            yield f"version {before} of storage {s}, which it changes, is not at {place[s]}"


def _lost(tasks: Sequence[Step], steps: Sequence[int]) -> Iterable[str]:
    """Tasks that run before one they have to follow, be it an execution that repeats that one."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, k in enumerate(steps):
        first.setdefault(k, number)
        last[k] = number
    for k, number in first.items():
        for other in tasks[k].after:
            if last.get(other, -1) > number or other not in first:
                yield f"task {k} runs before task {other}, which must precede it"


def _given(
    tasks: Sequence[Step], steps: Sequence[int], places: Sequence[Mapping[int, int]], keep: Mapping[int, int]
) -> Iterable[tuple[int, int]]:
    """Storages that nobody writes before they are read, with their places."""
    written: set[int] = set()
    given: set[int] = set()
    for task in tasks:
        given.update(s for s in task.reads if s not in written)
        written.update(task.writes)
    found: dict[int, int] = {s: start for s, start in keep.items() if s not in written}
    for k, place in zip(reversed(steps), reversed(places), strict=True):
        found.update((s, place[s]) for s in (*tasks[k].reads, *tasks[k].writes) if s in given and s in place)
    return found.items()


def _clashes(task: Step, sizes: Sequence[int], place: Mapping[int, int], own: int | None) -> Iterable[str]:
    """What a task writes over something it still uses; a pair that may share memory has to begin at the same byte."""
    spans = {s: (place[s], place[s] + sizes[s]) for s in (*task.reads, *task.writes)}
    for new in task.writes:
        for old, span in spans.items():
            shares = (old, new) in task.inplace and span == spans[new]
            if old != new and _meet(span, spans[new]) and not shares and (old in task.reads or old < new):
                yield f"storage {new} is written over storage {old}"
    if own is not None:
        for s, span in spans.items():
            if _meet(span, (own, own + task.workspace)):
                yield f"it works in storage {s}"


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])
