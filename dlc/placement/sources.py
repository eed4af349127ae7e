"""Tasks that read nothing and serve one other task run right before it: later never needs more, earlier may.

A network without them is smaller, and has the same least peak: what such a task writes counts as its reader's
workspace.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dlc.placement.tasks import Task


@dataclass(frozen=True)
class Contracted:
    """Fewer tasks.

    Attributes:
        tasks: What is left, in the natural order.
        members: Per task that is left, the tasks that it stands for, in the order in which they run.
        exact: Whether the least peak is the same. What waited for a source now waits for its reader, which no order
            of the tasks themselves has to do.
    """

    tasks: tuple[Task, ...]
    members: tuple[tuple[int, ...], ...]
    exact: bool

    def expanded(self, order: Sequence[int]) -> tuple[int, ...]:
        """An order of all tasks."""
        return tuple(task for k in order for task in self.members[k])


def without_sources(tasks: Sequence[Task], sizes: Sequence[int], keep: Collection[int] = ()) -> Contracted:
    """The tasks with every source made a part of its only reader."""
    users: list[list[int]] = [[] for _ in sizes]
    for index, task in enumerate(tasks):
        for storage in dict.fromkeys((*task.reads, *task.writes, *task.holds)):
            users[storage].append(index)
    waiting: dict[int, int] = {}
    for index, task in reversed(list(enumerate(tasks))):
        waiting.update(dict.fromkeys(task.after, index))
    reader: dict[int, int] = {}
    for index, task in enumerate(tasks):
        if task.reads or task.after or task.holds or len(task.writes) != 1 or task.workspace:
            continue
        (storage,) = task.writes
        if storage in keep or len(users[storage]) != 2:
            continue
        user = users[storage][1]
        # `waiting` has the first task that waits.
        early = waiting.get(index, len(tasks)) < user
        if storage in tasks[user].reads and storage not in tasks[user].writes and not early:
            reader[index] = user
    parts: dict[int, list[int]] = {}
    for index, user in reader.items():
        if user not in reader and all(old != tasks[index].writes[0] for old, _ in tasks[user].inplace):
            parts.setdefault(user, []).append(index)
    gone = {index for inside in parts.values() for index in inside}
    left = [index for index in range(len(tasks)) if index not in gone]
    number = {index: k for k, index in enumerate(left)}
    number |= {index: number[user] for user, inside in parts.items() for index in inside}
    return Contracted(
        tuple(_with_parts(tasks, sizes, index, parts.get(index, ()), number) for index in left),
        tuple((*parts.get(index, ()), index) for index in left),
        not gone & waiting.keys(),
    )


def _with_parts(
    tasks: Sequence[Task], sizes: Sequence[int], index: int, parts: Sequence[int], number: dict[int, int]
) -> Task:
    inside = {tasks[part].writes[0] for part in parts}
    task = tasks[index]
    return replace(
        task,
        reads=tuple(storage for storage in task.reads if storage not in inside),
        workspace=task.workspace + sum(sizes[storage] for storage in inside),
        after=tuple(dict.fromkeys(number[other] for other in task.after if number[other] != number[index])),
    )
