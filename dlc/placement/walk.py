"""Walking through the sets of done tasks of one segment: the moves that all order searches share."""

from collections import defaultdict
from dataclasses import dataclass

from dlc.placement.segments import Segment
from dlc.placement.tasks import Network, bits


@dataclass(frozen=True, slots=True)
class State:
    """A set of done tasks, with what follows from it."""

    done: int  # bit set over all tasks
    live: int  # bytes live between tasks
    ready: tuple[int, ...]  # members of the segment that may run next


class Walk:
    """Moves within one segment. Effects are memoised by the done neighbours of a task, on which alone they depend."""

    def __init__(self, net: Network, segment: Segment) -> None:
        self.net = net
        self.segment = segment
        self.evaluations = 0  # effects asked for so far, the measure of work done
        self._memo: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)

    def start(self) -> State:
        """The state in which no member has run."""
        segment = self.segment
        ready = tuple(task for task in bits(segment.members) if not self.net.before[task] & ~segment.start)
        return State(segment.start, segment.live, ready)

    def effect(self, task: int, done: int) -> tuple[int, int]:
        """Network.effect, remembered."""
        self.evaluations += 1
        memo = self._memo[task]
        key = done & self.net.near[task]
        found = memo.get(key)
        if found is None:
            found = memo[key] = self.net.effect(task, done)
        return found

    def run(self, state: State, task: int, change: int) -> State:
        """The state after a ready task whose lasting effect is `change` bytes."""
        done = state.done | 1 << task
        before = self.net.before
        members = self.segment.members
        ready = [other for other in state.ready if other != task]
        ready += [other for other in self.net.then[task] if not before[other] & ~done and members >> other & 1]
        return State(done, state.live + change, tuple(ready))

    def settle(self, state: State, limit: int, trail: list[int]) -> State:
        """Run every ready task that fits under the limit and does not add to the live bytes; note them in the trail.

        Such a task can be moved to the front of any order that stays under the limit without
        raising its peak: live bytes after it are no more than before, and for every other task
        what is already born or can die only grows. So nothing is lost by running it now.
        """
        moved = True
        while moved:
            moved = False
            for task in state.ready:
                during, change = self.effect(task, state.done)
                if change <= 0 and state.live + during <= limit:
                    state = self.run(state, task, change)
                    trail.append(task)
                    moved = True
        return state

    def finished(self, state: State) -> bool:
        """Whether every member has run; as the network has no cycle, this is when none is ready."""
        return not state.ready

    def peak(self, order: list[int]) -> int:
        """The peak of an order of the members, in bytes."""
        peak = live = self.segment.live
        done = self.segment.start
        for task in order:
            during, change = self.effect(task, done)
            peak = max(peak, live + during)
            live += change
            done |= 1 << task
        return peak
