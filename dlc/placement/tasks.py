"""Tasks and the storages they touch: what an order of execution means for memory."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One operator, seen only through the memory it touches. Storage ids index a list of sizes.

    The sequence in which tasks are given is the natural order: it fixes which write a read sees.
    """

    reads: tuple[int, ...]  # storages read
    writes: tuple[int, ...]  # storages written, in whole or in part
    workspace: int = 0  # bytes needed only while the task runs
    inplace: tuple[tuple[int, int], ...] = ()  # (read, written) pairs that may share memory if the read one dies here
    after: tuple[int, ...] = ()  # earlier tasks that must run first although no storage says so
    holds: tuple[int, ...] = ()  # storages in which it reads or writes parts that others do not touch


@dataclass(frozen=True)
class OrderResult:
    """An order of tasks and what is known about its peak."""

    order: tuple[int, ...]  # task indices in execution order
    peak: int  # bytes live at the worst task, workspace included
    proven: bool  # no valid order has a smaller peak
    states: int  # states visited by the exact search


def bits(mask: int) -> Iterable[int]:
    """The positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True)
class Network:
    """Tasks with their dependencies and storage users as bit sets over task indices.

    A storage is live from the first task that touches it to the last, or from before the
    start if it is read before it is written, or past the end if it is kept. Holding a storage says
    nothing of the order: parts that depend on each other are storages of no bytes beside it.
    """

    tasks: tuple[Task, ...]
    sizes: tuple[int, ...]  # bytes per storage
    before: tuple[int, ...]  # per task, the tasks it waits for
    then: tuple[tuple[int, ...], ...]  # per task, the tasks waiting for it
    touches: tuple[tuple[int, ...], ...]  # per task, the storages it reads or writes, each once
    users: tuple[int, ...]  # per storage, the tasks that touch it
    given: frozenset[int]  # storages that are live before the first task
    kept: frozenset[int]  # storages that are live after the last task
    near: tuple[int, ...]  # per task, the tasks that touch one of its storages

    @property
    def base(self) -> int:
        """Bytes live before the first task."""
        return sum(self.sizes[storage] for storage in self.given)

    def effect(self, task: int, done: int) -> tuple[int, int]:
        """What running the task after the set `done` adds to the live bytes: (while it runs, afterwards)."""
        born: list[int] = []
        dying: list[int] = []
        me = 1 << task
        for storage in self.touches[task]:
            users = self.users[storage]
            if not users & done and storage not in self.given:
                born.append(storage)
            if not users & ~done & ~me and storage not in self.kept:
                dying.append(storage)
        sizes = self.sizes
        grown = sum([sizes[storage] for storage in born])
        shared = sum([sizes[old] for old, _ in self.shared(task, born, dying)])
        return grown - shared + self.tasks[task].workspace, grown - sum([sizes[storage] for storage in dying])

    def shared(self, task: int, born: Collection[int], dying: Collection[int]) -> list[tuple[int, int]]:
        """In-place pairs the task can use: the read storage dies here, the written one is born here, sizes agree.

        Equal sizes keep the live bytes a function of the set of done tasks alone, which the
        exact search relies on.
        """
        taken: list[tuple[int, int]] = []
        for old, new in self.tasks[task].inplace:
            free = all(old != used and new != filled for used, filled in taken)
            if free and old in dying and new in born and old not in born and self.sizes[old] == self.sizes[new]:
                taken.append((old, new))
        return taken


def network(tasks: Sequence[Task], sizes: Sequence[int], keep: Collection[int] = ()) -> Network:
    """Derive dependencies: a read follows the writes before it, a write follows all touches before it.

    Raises ValueError for storages out of range and for `after` entries that are not earlier tasks.
    """
    _check(tasks, sizes, keep)
    users = [0] * len(sizes)
    writers = [0] * len(sizes)
    given = set(keep)  # a kept storage that nobody touches is live throughout
    before: list[int] = []
    for index, task in enumerate(tasks):
        waits = sum(1 << other for other in set(task.after))
        for storage in task.writes:
            if not users[storage]:
                given.discard(storage)
            waits |= users[storage]
        for storage in task.reads:
            if not users[storage]:
                given.add(storage)
            waits |= writers[storage]
        for storage in (*task.reads, *task.writes, *task.holds):
            users[storage] |= 1 << index
        for storage in task.writes:
            writers[storage] |= 1 << index
        before.append(waits & ~(1 << index))
    then: list[list[int]] = [[] for _ in tasks]
    for index, waits in enumerate(before):
        for other in bits(waits):
            then[other].append(index)
    touches = tuple(tuple(dict.fromkeys((*task.reads, *task.writes, *task.holds))) for task in tasks)
    return Network(
        tasks=tuple(tasks),
        sizes=tuple(sizes),
        before=tuple(before),
        then=tuple(tuple(waiting) for waiting in then),
        touches=touches,
        users=tuple(users),
        given=frozenset(given),
        kept=frozenset(keep),
        near=tuple(_union(users[storage] for storage in touched) for touched in touches),
    )


def _union(masks: Iterable[int]) -> int:
    whole = 0
    for mask in masks:
        whole |= mask
    return whole


def _check(tasks: Sequence[Task], sizes: Sequence[int], keep: Collection[int]) -> None:
    known = range(len(sizes))
    if any(size < 0 for size in sizes):
        raise ValueError("a storage has a negative size")
    if any(storage not in known for storage in keep):
        raise ValueError("a kept storage is not in the list of sizes")
    for index, task in enumerate(tasks):
        if any(storage not in known for storage in (*task.reads, *task.writes, *task.holds)):
            raise ValueError(f"task {index} touches a storage that is not in the list of sizes")
        if any(old not in (*task.reads, *task.holds) or new not in task.writes for old, new in task.inplace):
            raise ValueError(f"task {index} has an in-place pair that it does not read and write")
        if any(not 0 <= other < index for other in task.after):
            raise ValueError(f"task {index} must come after a task that is not earlier in the natural order")
        if task.workspace < 0:
            raise ValueError(f"task {index} has a negative workspace")
