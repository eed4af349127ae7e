"""Exact least-peak order of a segment: depth-first over sets of done tasks, with safe moves and lower bounds kept."""

from dataclasses import dataclass, field

from dlc.placement.walk import State, Walk

UNREACHABLE = 1 << 200  # above any limit; the least over no tasks


@dataclass
class Frame:
    """A state on the path being explored, and what is left to try from it."""

    state: State
    options: list[tuple[int, int]]  # (change in bytes, task), the best last
    need: int  # least limit under which this state could look different
    mark: int  # length of the trail when the state was reached


@dataclass
class Exact:
    """Searches of one segment under falling and rising limits, sharing what they learn."""

    walk: Walk
    states: int = 0  # sets of done tasks explored so far
    needs: dict[int, int] = field(default_factory=dict[int, int])  # done set -> a proven bound on the peak from there

    def search(self, limit: int, max_states: int, max_work: int) -> tuple[list[int] | None, int | None]:
        """An order with peak <= limit, or a proven lower bound > limit, or (None, None) when work runs out.

        Under a limit below the returned bound the search would go exactly the same way, which
        is why the bound may be trusted and why raising the limit to less is pointless.
        """
        walk = self.walk
        trail: list[int] = []
        stop_states = self.states + max_states
        stop_work = walk.evaluations + max_work
        stack = [self._open(walk.start(), limit, trail)]
        while True:
            frame = stack[-1]
            if walk.finished(frame.state):
                return trail, None
            if not frame.options:
                stack.pop()
                self.needs[frame.state.done] = frame.need
                if not stack:
                    return None, frame.need
                del trail[frame.mark :]
                stack[-1].need = min(stack[-1].need, frame.need)
                continue
            if self.states >= stop_states or walk.evaluations >= stop_work:
                return None, None
            change, task = frame.options.pop()
            mark = len(trail)
            trail.append(task)
            child = self._open(walk.run(frame.state, task, change), limit, trail, mark)
            known = self.needs.get(child.state.done, 0)
            if known > limit:
                frame.need = min(frame.need, known)
                del trail[mark:]
            else:
                self.states += 1
                stack.append(child)

    def _open(self, state: State, limit: int, trail: list[int], mark: int = 0) -> Frame:
        """Settle a state and list the tasks that fit under the limit, least growth tried first."""
        state = self.walk.settle(state, limit, trail)
        need = UNREACHABLE
        options: list[tuple[int, int]] = []
        for task in state.ready:
            during, change = self.walk.effect(task, state.done)
            if state.live + during <= limit:
                options.append((change, task))
            else:
                need = min(need, state.live + during)
        options.sort(reverse=True)
        return Frame(state, options, need, mark)
