"""Orders found without backtracking: natural, depth-first, greedy and beam."""

import heapq

from dlc.placement.tasks import bits
from dlc.placement.walk import State, Walk


def natural(walk: Walk) -> list[int]:
    """The members in the order given, which is always valid."""
    return list(bits(walk.segment.members))


def depth_first(walk: Walk) -> list[int]:
    """Run what became ready last, so a branch is followed to its end before the next is opened."""
    state = walk.start()
    stack = list(reversed(state.ready))
    order: list[int] = []
    while stack:
        task = stack.pop()
        order.append(task)
        known = len(state.ready) - 1
        state = walk.run(state, task, 0)
        stack += reversed(state.ready[known:])
    return order


def greedy(walk: Walk) -> list[int]:
    """Always run the ready task that adds least to the live bytes.

    Effects only fall as more tasks are done, so a heap with outdated entries left in it is
    enough: the entry that is up to date comes out first.
    """
    state = walk.start()
    heap = [(*reversed(walk.effect(task, state.done)), task) for task in state.ready]
    heapq.heapify(heap)
    order: list[int] = []
    waiting = set(state.ready)
    while heap:
        change, _, task = heapq.heappop(heap)
        if task not in waiting:
            continue
        order.append(task)
        state = walk.run(state, task, change)
        waiting = set(state.ready)
        for other in state.ready:
            if walk.net.near[task] >> other & 1 or walk.net.before[other] >> task & 1:
                heapq.heappush(heap, (*reversed(walk.effect(other, state.done)), other))
    return order


def beam(walk: Walk, width: int, target: int, work: int) -> list[int] | None:
    """Keep the `width` best states per round; an order whose peak is below `target`, or None.

    Gives up after `work` evaluations. States are ranked by peak so far, then by live bytes.
    """
    segment = walk.segment
    end = walk.evaluations + work
    trail: list[int] = []
    states: list[tuple[int, State, tuple[int, ...]]] = []
    first = walk.settle(walk.start(), segment.bound, trail)
    states.append((segment.bound, first, tuple(trail)))
    while states and walk.evaluations < end:
        for _, state, order in states:
            if walk.finished(state):
                return list(order)
        reached: dict[int, tuple[int, State, tuple[int, ...]]] = {}
        for peak, state, order in states:
            for task in state.ready:
                during, change = walk.effect(task, state.done)
                top = max(peak, state.live + during)
                if top >= target:
                    continue
                trail = [*order, task]
                after = walk.settle(walk.run(state, task, change), segment.bound, trail)
                known = reached.get(after.done)
                if known is None or top < known[0]:
                    reached[after.done] = (top, after, tuple(trail))
        states = heapq.nsmallest(width, reached.values(), key=lambda entry: (entry[0], entry[1].live))
    return None
