"""Tasks as text, for instances without a model.

    4                           number of storages
    64 64 8 64                  their sizes in bytes
    3                           number of tasks, a line each, in the natural order:
    load  0  1 0  0  0  0       name, reads, writes, in-place pairs, tasks to come after, workspace[, cost]
    relu  1 0  1 1  1 0 1  0  0
    sum   1 1  1 2  0  1 0  16

The four lists are counted: a number, then as many storages, pairs of a read and a written storage, or tasks (positions
of earlier lines, from 0). The cost of a task, such as its FLOPs, is optional, but all tasks or none have one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.placement.tasks import Task

LONGEST_NUMBER = 18
"""Digits of a number: it fits 64 bits."""

MOST = 1 << 15
"""Storages and tasks that a file may have: sets of tasks are bit masks, whose memory grows with the square of that."""

_LISTS = ("reads", "writes", "in-place pairs", "tasks to come after")


class TaskTextError(ValueError):
    """The text is not a list of tasks."""

    def __init__(self, line: int, message: str) -> None:
        """What is wrong in a line (from 1)."""
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class TaskGraph:
    """What a text holds."""

    names: tuple[str, ...]
    """Per task; not necessarily different."""
    tasks: tuple[Task, ...]
    sizes: tuple[int, ...]
    """Bytes per storage."""
    costs: tuple[int, ...]
    """Per task what its execution costs, such as FLOPs; () if the text says none."""


def parse_tasks(text: str) -> TaskGraph:
    """Read tasks. Empty lines count for line numbers only.

    Raises:
        TaskTextError: the line and what is wrong there.
    """
    lines = [(number, words) for number, line in enumerate(text.splitlines(), 1) if (words := line.split())]
    end = (text.count("\n") + 1, list[str]())
    count = _only(*(lines[0] if lines else end), "the number of storages")
    number, words = lines[1] if len(lines) > 1 else end
    if not count:  # an empty list of sizes is an empty line, which was skipped
        sizes, rest = (), lines[1:]
    else:
        if len(words) != count:
            raise TaskTextError(number, f"{count:,} storages, but {len(words):,} sizes")
        sizes, rest = tuple(_number(number, word) for word in words), lines[2:]
    number, words = rest[0] if rest else end
    count = _only(number, words, "the number of tasks")
    if len(rest) - 1 != count:
        raise TaskTextError(number, f"{count:,} tasks, but {len(rest) - 1:,} lines follow")
    tasks: list[Task] = []
    costs: list[int] = []
    for number, words in rest[1:]:
        task, cost = _task(number, words[1:], len(sizes), len(tasks))
        if tasks and bool(costs) != bool(cost):
            raise TaskTextError(number, "either every task has a cost after its workspace, or none has")
        tasks.append(task)
        costs += cost
    return TaskGraph(tuple(words[0] for _, words in rest[1:]), tuple(tasks), sizes, tuple(costs))


def tasks_text(graph: TaskGraph) -> str:
    """The inverse of `parse_tasks`. Names must be words without blanks."""
    lines = [str(len(graph.sizes)), " ".join(map(str, graph.sizes)), str(len(graph.tasks))]
    for k, (name, task) in enumerate(zip(graph.names, graph.tasks, strict=True)):
        pairs = [storage for pair in task.inplace for storage in pair]
        lists = ((len(task.reads), task.reads), (len(task.writes), task.writes), (len(pairs) // 2, pairs))
        counted = [(count, *items) for count, items in (*lists, (len(task.after), task.after))]
        numbers = [n for items in counted for n in items] + [task.workspace, *graph.costs[k : k + 1]]
        lines.append(" ".join([name, *map(str, numbers)]))
    return "\n".join(lines) + "\n"


def _number(line: int, word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise TaskTextError(line, f"not a number of at least 0: {word[:40]}")
    if len(word) > LONGEST_NUMBER:
        raise TaskTextError(line, f"a number has {len(word):,} digits; at most {LONGEST_NUMBER} are read")
    return int(word)


def _only(line: int, words: list[str], what: str) -> int:
    """The only number of a line that says how many of something there are."""
    if len(words) != 1:
        raise TaskTextError(line, f"expected {what}, alone in a line; found {len(words):,} words")
    count = _number(line, words[0])
    if count > MOST:
        raise TaskTextError(line, f"{what} is {count:,}; at most {MOST:,} are read")
    return count


def _task(line: int, words: list[str], storages: int, before: int) -> tuple[Task, list[int]]:
    """The task of a line that has `before` tasks above it, and its cost as a list of at most one."""
    numbers = [_number(line, word) for word in words]
    place = 0
    lists: list[list[int]] = []
    for what in _LISTS:
        width = 2 if what == _LISTS[2] else 1
        count = numbers[place] if place < len(numbers) else -1
        items = numbers[place + 1 : place + 1 + count * width] if count >= 0 else []
        if count < 0 or len(items) != count * width:
            raise TaskTextError(line, f"the line ends within its {what}")
        known = before if what == _LISTS[3] else storages
        if wrong := [item for item in items if item >= known]:
            one, where = ("task", "above this line") if what == _LISTS[3] else ("storage", "declared")
            raise TaskTextError(line, f"{what} name {one} {wrong[0]}, but {known:,} are {where}")
        lists.append(items)
        place += 1 + count * width
    reads, writes, flat, after = lists
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    if bad := [pair for pair in pairs if pair[0] not in reads or pair[1] not in writes]:
        read, written = bad[0]
        raise TaskTextError(line, f"the in-place pair {read} {written} is not of a read and a written storage")
    left = numbers[place:]
    if not 1 <= len(left) <= 2:
        raise TaskTextError(line, f"expected workspace and at most a cost at the end; found {len(left)} numbers")
    return Task(tuple(reads), tuple(writes), left[0], pairs, tuple(after)), left[1:]
