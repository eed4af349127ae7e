"""Least extra cost under a limit of memory, for a fixed order of first executions.

The search goes backwards. A state is a position and the values wanted from there on; before it stands either the
original task of the position, or another execution of a task that makes a wanted value. Dropping a value costs nothing,
so a state is no better than one that wants a subset of its values for as much. Best states first (A*, with `Bound`):
the first that reaches the start is the cheapest.

`everything` looks at all places where a task could run again, and is a proof when it ends. `nearby` makes a value again
only for a task or an execution that reads it in the same place, and counts values that no such execution will touch by
their bytes alone, so that choices between values of one size merge: this is what large networks need.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from dlc.placement.repeat_bound import IMPOSSIBLE, Bound, idle
from dlc.placement.repeats import Repeats
from dlc.placement.tasks import bits

WINDOW = 300
"""Earlier states of a position that a new one is compared with, the latest."""

WORK = 32
"""Bounds that a state may ask for on average, so that wide networks do not take longer than deep ones."""

LARGE = 160
"""Tasks from which on fewer states are visited, as each takes longer."""

REACH = 2
"""Wanted values that a chain of executions may run through, in `nearby`."""


@dataclass(frozen=True)
class Found:
    """The outcome of a search."""

    steps: tuple[int, ...] | None
    """Positions in order of execution; None if there is nothing within limit and budget, or the search gave up."""
    cost: int
    complete: bool
    """It did not give up: what it says is so for all schedules that it looks at."""
    states: int


@dataclass
class Search:
    """Searches under one limit of memory."""

    bound: Bound
    limit: int
    """Bytes."""
    _trail: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Per node, the node after it in time and the position that runs there."""
    _sealed: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict[tuple[int, int], tuple[int, int]])

    @property
    def model(self) -> Repeats:
        """The order that is searched."""
        return self.bound.model

    def everything(self, budget: int, most: int, band: int = 1) -> Found:
        """Look at all schedules that cost at most `budget`, and at no more than `most` states.

        States whose costs lie in one band of this width are visited from the end to the start: where many tasks cost
        little, that finds a schedule soon, and it may not be the cheapest. What is refuted is so with any band.
        """
        model, bound = self.model, self.bound
        end = len(model.tasks)
        first = bound.cost(self.limit, end, model.kept)
        heap = [(first // band, end, 0, model.kept, -1, first)]
        best: list[dict[int, int]] = [{} for _ in range(end + 1)]
        latest: list[list[tuple[int, int]]] = [[] for _ in range(end + 1)]
        states, most = 0, self._most(most)
        work = bound.asked + WORK * most
        while heap and states < most and bound.asked < work:
            _, position, cost, wanted, node, total = heapq.heappop(heap)
            states += 1
            if best[position].get(wanted, IMPOSSIBLE) <= cost:
                continue
            if any(other & ~wanted == 0 and least <= cost for other, least in latest[position][-WINDOW:]):
                continue
            best[position][wanted] = cost
            latest[position].append((wanted, cost))
            if position == 0:
                return Found(self._steps(node), cost, band == 1, states)
            if model.during(position - 1, wanted) <= self.limit:
                earlier = wanted & ~model.writes[position - 1] | model.reads[position - 1]
                self._push(heap, position - 1, cost, earlier, node, position - 1, budget, total, band)
            for task in self._makers(wanted, wanted, position):
                dearer = cost + model.costs[task]
                earlier = wanted & ~model.writes[task] | model.reads[task]
                self._push(heap, position, dearer, earlier, node, task, budget, total, band)
        return Found(None, 0, not heap, states)

    def _push(
        self,
        heap: list[tuple[int, int, int, int, int, int]],
        position: int,
        cost: int,
        wanted: int,
        node: int,
        runs: int,
        budget: int,
        least: int,
        band: int,
    ) -> None:
        total = max(least, cost + self.bound.cost(self.limit, position, wanted))
        if total <= budget:
            self._trail.append((node, runs))
            heapq.heappush(heap, (total // band, position, cost, wanted, len(self._trail) - 1, total))

    def nearby(self, budget: int, most: int) -> Found:
        """Look at schedules that cost at most `budget` and make values again where they are read."""
        model, bound = self.model, self.bound
        end = len(model.tasks)
        late = idle(model)
        heap = [(bound.cost(self.limit, end, model.kept), end, 0, model.kept, 0, -1)]
        fronts: list[dict[tuple[int, int], list[tuple[int, int]]]] = [{} for _ in range(end + 1)]
        states, most = 0, self._most(most)
        work = bound.asked + WORK * most
        while heap and states < most and bound.asked < work:
            _, position, cost, wanted, fresh, node = heapq.heappop(heap)
            states += 1
            reached, through = self._reach(wanted, late[position] | fresh)
            size = model.bytes(wanted)
            front = fronts[position].setdefault((wanted & reached, fresh), [])
            if any(other <= size and least <= cost for other, least in front):
                continue
            front.append((size, cost))
            if position == 0:
                return Found(self._steps(node), cost, True, states)
            moves: list[tuple[int, int, int, int]] = []
            if model.during(position - 1, wanted) <= self.limit:
                moves.append((position - 1, position - 1, cost, 0))
            again = self._makers(wanted, fresh & through, position)
            moves += [(task, position, cost + model.costs[task], fresh) for task in again]
            for runs, there, dearer, read in moves:
                earlier = wanted & ~model.writes[runs] | model.reads[runs]
                read = read & ~model.writes[runs] | model.reads[runs]
                movable = self._reach(earlier, late[there] | read)[0]
                total = dearer + bound.cost(self.limit, there, earlier, movable)
                if total <= budget:
                    self._trail.append((node, runs))
                    heapq.heappush(heap, (total, there, dearer, earlier, read, len(self._trail) - 1))
        return Found(None, 0, not heap, states)

    def _most(self, states: int) -> int:
        """States that may be visited, of those that were asked for."""
        return states * LARGE**2 // max(LARGE, len(self.model.tasks)) ** 2

    def _makers(self, wanted: int, values: int, position: int) -> list[int]:
        """Tasks that can run again before the original at a position, within the limit, and make one of some values."""
        model = self.model
        tasks = {model.maker[value] for value in bits(wanted & values) if value in model.maker}
        fits = (k for k in sorted(tasks) if k + 1 < position <= model.until[k])
        return [k for k in fits if model.again(k, wanted, position) <= self.limit]

    def _reach(self, wanted: int, roots: int) -> tuple[int, int]:
        """Values that executions nearby may still touch, and those that they may make, the roots first.

        A chain of executions runs through any value that is not wanted later, and through `REACH` that are.
        """
        found = self._sealed.get((wanted, roots))
        if found is not None:
            return found
        model = self.model
        reached, through, level = roots, 0, roots
        for _ in range(REACH + 1):
            beyond = 0
            while level:
                value = level & -level
                level ^= value
                task = model.maker.get(value.bit_length() - 1)
                if through & value:
                    continue
                through |= value
                if task is None:
                    continue
                reads = model.reads[task]
                reached |= reads
                level |= reads & (~wanted | roots) & ~through
                beyond |= reads & wanted & ~roots
            level = beyond & ~through
        self._sealed[wanted, roots] = reached, through
        return reached, through

    def _steps(self, node: int) -> tuple[int, ...]:
        """What ran, in order: the search went backwards, so the last node is the first to run."""
        steps: list[int] = []
        while node >= 0:
            node, position = self._trail[node]
            steps.append(position)
        return tuple(steps)
