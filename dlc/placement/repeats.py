"""Which tasks of an order may run a second time, and what a step needs where some values are wanted afterwards.

Values are storages with one writer: a task that makes one can make it again from the same inputs. Storages with several
writers, or written after they were given, change while the program runs (weights, accumulators): they live from their
first to their last use, whoever writes one never runs again, and whoever reads one only until it is next written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import getitem

from dlc.placement.lifetimes import check_order
from dlc.placement.tasks import Task, bits, network


@dataclass(frozen=True)
class Repeats:
    """An order of tasks, prepared for a search. Sets of storages are bit masks; positions count in the order."""

    tasks: tuple[Task, ...]
    """In the order."""
    sizes: tuple[int, ...]
    """Bytes per storage."""
    costs: tuple[int, ...]
    """In the order."""
    reads: tuple[int, ...]
    """Per position, the values read."""
    writes: tuple[int, ...]
    """Per position, the values made."""
    fixed: tuple[int, ...]
    """Per position, bytes of the storages that change, and of those that nobody touches."""
    between: tuple[int, ...]
    """Per position, those of them that live from before it into it; and in the end."""
    until: tuple[int, ...]
    """Per position, the position before which its task may run again at the latest; 0 for never."""
    maker: dict[int, int]
    """Value → the position of the task that can make it again."""
    born: dict[int, int]
    """Value that is not given → the position that makes it."""
    kept: int
    """Values that are wanted in the end."""
    pairs: tuple[tuple[tuple[int, int, bool], ...], ...]
    """Per position, in-place pairs whose written storage begins there: read, written, and whether the read one is a
    value, which dies only where nobody wants it afterwards; others die there."""

    def bytes(self, values: int) -> int:
        """Of a set of values."""
        return sum(map(getitem, self._tables, values.to_bytes(len(self._tables), "little")))

    @cached_property
    def _tables(self) -> tuple[tuple[int, ...], ...]:
        """Per eight values, the bytes of every subset of them."""
        sizes = (self.sizes[k : k + 8] for k in range(0, len(self.sizes), 8))
        return tuple(tuple(sum(own[k] for k in bits(mask)) for mask in range(1 << len(own))) for own in sizes)

    def during(self, position: int, wanted: int) -> int:
        """Bytes live while the original task of a position runs, where `wanted` are the values needed afterwards."""
        total = self.bytes(wanted | self.reads[position] | self.writes[position])
        return total + self.fixed[position] + self.tasks[position].workspace - self._shared(position, wanted)

    def again(self, position: int, wanted: int, before: int) -> int:
        """Bytes live while the task of a position runs again, right before the original task at another position."""
        total = self.bytes(wanted | self.reads[position] | self.writes[position])
        return total + self.between[before] + self.tasks[position].workspace - self._shared(position, wanted)

    def _shared(self, position: int, wanted: int) -> int:
        """Bytes of what is read and of what is written in its place."""
        total = 0
        used: set[int] = set()
        filled: set[int] = set()
        for old, new, is_value in self.pairs[position]:
            if old not in used and new not in filled and not (is_value and wanted >> old & 1):
                used.add(old)
                filled.add(new)
                total += self.sizes[old]
        return total


def repeats(
    tasks: Sequence[Task],
    sizes: Sequence[int],
    costs: Sequence[int],
    order: Sequence[int],
    keep: Collection[int] = (),
) -> Repeats:
    """Prepare an order. ValueError: it or the tasks are invalid, or there are not as many costs as tasks."""
    net = network(tasks, sizes, keep)
    check_order(net, order)
    if len(costs) != len(tasks) or any(cost < 0 for cost in costs):
        raise ValueError("every task has a cost of at least 0")
    place = {task: position for position, task in enumerate(order)}
    users: list[list[int]] = [[] for _ in sizes]
    writers: list[list[int]] = [[] for _ in sizes]
    stop = [len(order)] * len(order)
    for position, task in enumerate(order):
        for storage in net.touches[task]:
            users[storage].append(position)
        for storage in set(tasks[task].writes):
            writers[storage].append(position)
        for other in tasks[task].after:  # what must precede this task must not run after it either
            stop[place[other]] = min(stop[place[other]], position)
    end = len(order)
    changing = {s for s, found in enumerate(writers) if len(found) > 1 or (found and s in net.given)}
    spans: dict[int, tuple[int, int]] = {}
    for storage in (*changing, *(s for s in net.given if not users[s])):
        last = end - 1 if storage in net.kept else users[storage][-1]
        spans[storage] = (0 if storage in net.given else users[storage][0], last)
    fixed, between = [0] * end, [0] * (end + 1)
    for storage, (first, last) in spans.items():
        for position in range(first, last + 1):
            fixed[position] += sizes[storage]
        for position in range(0 if storage in net.given else first + 1, last + 1 + (storage in net.kept)):
            between[position] += sizes[storage]
    reads = [_mask(s for s in tasks[k].reads if s not in changing) for k in order]
    writes = [_mask(s for s in tasks[k].writes if s not in changing) for k in order]
    for position, task in enumerate(order):
        if changing.intersection(tasks[task].writes) or not costs[task]:
            stop[position] = 0
        for storage in changing.intersection(tasks[task].reads):
            stop[position] = min([stop[position], spans[storage][1], *(w for w in writers[storage] if w > position)])
    born = {s: position for position, made in enumerate(writes) for s in bits(made)}

    def sharing(position: int, task: int) -> Iterable[tuple[int, int, bool]]:
        """The pairs that `Network.shared` would take where all that may die does."""
        for old, new in tasks[task].inplace:
            begins = spans[new][0] == position and new not in net.given if new in spans else True
            ends = spans[old] == (spans[old][0], position) and old not in net.kept if old in spans else True
            earlier = (spans[old][0] < position or old in net.given) if old in spans else True
            if begins and ends and earlier and sizes[old] == sizes[new]:
                yield old, new, old not in spans

    return Repeats(
        tasks=tuple(tasks[k] for k in order),
        sizes=tuple(sizes),
        costs=tuple(costs[k] for k in order),
        reads=tuple(reads),
        writes=tuple(writes),
        fixed=tuple(fixed),
        between=tuple(between),
        until=tuple(stop),
        maker={s: position for s, position in born.items() if stop[position] > position},
        born=born,
        kept=_mask(s for s in net.kept if s not in changing and users[s]),
        pairs=tuple(tuple(sharing(position, task)) for position, task in enumerate(order)),
    )


def _mask(storages: Iterable[int]) -> int:
    mask = 0
    for storage in storages:
        mask |= 1 << storage
    return mask
