"""From an order of tasks to peaks and to buffers with lifetimes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dlc.placement.buffers import Buffer
from dlc.placement.tasks import Network, Task, network


@dataclass(frozen=True)
class Lifetimes:
    """Buffers for an order; storages handed over in place share one buffer."""

    buffers: tuple[Buffer, ...]  # ids count up from 0; steps are positions in the order
    of_storage: tuple[int, ...]  # the buffer id of each storage, -1 for storages nobody touches or keeps
    of_workspace: tuple[int, ...]  # the buffer id of each task's workspace, by task index, -1 for none


def check_order(net: Network, order: Sequence[int]) -> None:
    """Raise ValueError unless the order runs every task once and after those it waits for."""
    if sorted(order) != list(range(len(net.tasks))):
        raise ValueError("an order must name every task exactly once")
    done = 0
    for task in order:
        if net.before[task] & ~done:
            raise ValueError(f"task {task} runs before a task it waits for")
        done |= 1 << task


def peak_of(tasks: Sequence[Task], sizes: Sequence[int], order: Sequence[int], keep: Collection[int] = ()) -> int:
    """The largest number of bytes live while a task runs, workspace included; ValueError for an invalid order."""
    net = network(tasks, sizes, keep)
    check_order(net, order)
    return peak_in(net, order)


def peak_in(net: Network, order: Sequence[int]) -> int:
    """peak_of for an order known to be valid."""
    peak = live = net.base
    done = 0
    for task in order:
        during, change = net.effect(task, done)
        peak = max(peak, live + during)
        live += change
        done |= 1 << task
    return peak


def lifetimes(
    tasks: Sequence[Task], sizes: Sequence[int], order: Sequence[int], keep: Collection[int] = ()
) -> Lifetimes:
    """The buffers to place when tasks run in this order; their largest live total is peak_of the order.

    Storages given from outside are live from step 0, kept ones to the last step. Raises
    ValueError for an invalid order.
    """
    net = network(tasks, sizes, keep)
    check_order(net, order)
    end = max(1, len(order))
    birth = [0 if storage in net.given else -1 for storage in range(len(sizes))]
    death = [end if storage in net.kept else 0 for storage in range(len(sizes))]
    heir_of: dict[int, int] = {}
    done = 0
    for step, task in enumerate(order):
        born = [storage for storage in net.touches[task] if birth[storage] < 0]
        done |= 1 << task
        dying = [s for s in net.touches[task] if not net.users[s] & ~done and s not in net.kept]
        heir_of.update((new, old) for old, new in net.shared(task, born, dying))
        for storage in born:
            birth[storage] = step
        for storage in dying:
            death[storage] = step + 1
    return _collect(net, order, birth, death, heir_of)


def _collect(
    net: Network, order: Sequence[int], birth: Sequence[int], death: Sequence[int], heir_of: dict[int, int]
) -> Lifetimes:
    """Merge every storage into the one whose memory it inherits, and append the workspaces."""
    spans: list[list[int]] = []
    owner = [-1] * len(net.sizes)
    for storage in sorted(range(len(net.sizes)), key=lambda s: (birth[s], s in heir_of, s)):
        if birth[storage] < 0:
            continue
        # Sorted so that a buffer is numbered before its heirs, also when both are live from step 0.
        if storage in heir_of:
            owner[storage] = owner[heir_of[storage]]
            spans[owner[storage]][2] = death[storage]
        else:
            owner[storage] = len(spans)
            spans.append([net.sizes[storage], birth[storage], death[storage]])
    workspace = [-1] * len(net.tasks)
    for step, task in enumerate(order):
        if net.tasks[task].workspace:
            workspace[task] = len(spans)
            spans.append([net.tasks[task].workspace, step, step + 1])
    buffers = tuple(Buffer(index, size, start, stop) for index, (size, start, stop) in enumerate(spans))
    return Lifetimes(buffers, tuple(owner), tuple(workspace))
