"""Recomputation by a rule, for networks that are too large for a search: what does not fit goes, and is made again.

The order is followed once. Where the next task does not fit, values that it does not touch are dropped, first those
that cost least to make again for the bytes and the time that they leave free; where a task reads a dropped value, the
tasks that make it run again right before. This is the rule of Dynamic Tensor Rematerialization (Kirisame et al., ICLR
2021), which knows the future here: the time that a value leaves free lasts until it is read next. Executions that turn
out to be unnecessary are taken back afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.placement.repeats import Repeats
from dlc.placement.tasks import bits

RULES = (1.0, 0.5, 0.0)
"""How much time counts against bytes: powers of the time that a value leaves free. The best of all is taken."""


class _Full(Exception):
    """Something does not fit, and nothing may go."""


def evicted(model: Repeats, limit: int) -> tuple[int, ...] | None:
    """Positions in order of execution whose peak is at most `limit` bytes, the cheapest found; None for none."""
    best: tuple[int, tuple[int, ...]] | None = None
    for patience in RULES:
        try:
            steps = _without_needless(model, _Run(model, limit, patience).steps(), limit)
        except _Full:
            continue
        cost = sum(model.costs[k] for k in steps)
        if best is None or cost < best[0]:
            best = cost, steps
    return None if best is None else best[1]


@dataclass
class _Run:
    """One pass over the order."""

    model: Repeats
    limit: int
    """Bytes."""
    patience: float
    """One of `RULES`."""
    live: int = 0
    """Values in memory."""
    position: int = 0
    found: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        model = self.model
        end = len(model.tasks)
        self.live = sum(1 << v for v in range(len(model.sizes)) if v not in model.born)
        self.later = [model.kept] * (end + 1)
        """Per position, values that tasks from there on read, or that are wanted in the end."""
        for k in reversed(range(end)):
            self.later[k] = self.later[k + 1] | model.reads[k]
        self.uses: dict[int, list[int]] = {}
        """Value → the positions that read it, the last first."""
        for k in reversed(range(end)):
            for value in bits(model.reads[k]):
                self.uses.setdefault(value, []).append(k)
        self.deadline: dict[int, int] = {}
        """Value → the last position before which it can be made again, whatever has to be made for that."""
        for value, k in sorted(model.maker.items(), key=lambda item: item[1]):
            above = [self.deadline[r] for r in bits(model.reads[k]) if r in self.deadline]
            self.deadline[value] = min([model.until[k], *above])

    def steps(self) -> tuple[int, ...]:
        """What is executed. Raises _Full."""
        model = self.model
        for k in range(len(model.tasks)):
            self.position = k
            if missing := model.reads[k] & ~self.live:
                self._make(missing, model.reads[k])
            self.live |= model.writes[k]
            self._drop_unread(k + 1)
            touched = model.reads[k] | model.writes[k]
            while model.during(k, self.live) > self.limit:
                self.live ^= self._victim(touched)
            self.found.append(k)
        return tuple(self.found)

    def _make(self, values: int, pinned: int) -> None:
        """Execute again what makes these values, and what is missing for that."""
        model = self.model
        needed: set[int] = set()
        waiting = values
        while waiting:
            low = waiting & -waiting
            waiting ^= low
            task = model.maker.get(low.bit_length() - 1)
            if task is None or model.until[task] < self.position:
                raise _Full
            if task not in needed:
                needed.add(task)
                waiting |= model.reads[task] & ~self.live
        chain = sorted(needed)
        for number, task in enumerate(chain):
            held = pinned | values
            for other in chain[number:]:
                held |= model.reads[other]
            touched = held | model.writes[task]
            while model.again(task, self.live, self.position) > self.limit:
                self.live ^= self._victim(touched)
            self.live |= model.writes[task] & (held | values)
            self.found.append(task)

    def _drop_unread(self, position: int) -> None:
        """Forget what nobody reads any more, be it to make dropped values again."""
        self.live &= self._wanted(position)

    def _wanted(self, position: int) -> int:
        """Values that are read from a position on, by tasks or by those that have to run again for them."""
        model = self.model
        found = self.later[position]
        missing = found & ~self.live
        seen = 0
        while missing:
            low = missing & -missing
            missing ^= low
            seen |= low
            task = model.maker.get(low.bit_length() - 1)
            if task is not None and task < position:
                found |= model.reads[task]
                missing |= model.reads[task] & ~self.live & ~seen
        return found

    def _victim(self, pinned: int) -> int:
        """The value to drop, as a mask. Raises _Full."""
        model = self.model
        best, least = 0, 0.0
        for value in bits(self.live & ~pinned):
            if value not in self.deadline or not model.sizes[value]:
                continue
            uses = self.uses.get(value, [])
            while uses and uses[-1] <= self.position:
                uses.pop()
            use = uses[-1] if uses else len(model.tasks)
            if use > self.deadline[value] and (uses or model.kept >> value & 1):
                continue
            cost = self._cost(value)
            if cost is None:
                continue
            score = cost / (model.sizes[value] * (use - self.position) ** self.patience)
            if not best or score < least:
                best, least = 1 << value, score
        if not best:
            raise _Full
        return best

    def _cost(self, value: int) -> int | None:
        """What making a value again costs as things are; None if that is not possible."""
        model = self.model
        total, seen = 0, 0
        waiting = 1 << value
        while waiting:
            low = waiting & -waiting
            waiting ^= low
            seen |= low
            task = model.maker.get(low.bit_length() - 1)
            if task is None:
                return None
            total += model.costs[task]
            waiting |= model.reads[task] & ~self.live & ~seen
        return total


def _without_needless(model: Repeats, steps: Sequence[int], limit: int) -> tuple[int, ...]:
    """Take executions back, the dearest first, where there is room for their results until then."""
    steps = list(steps)
    for _ in range(2):
        line = _Line.of(model, steps)
        seen: set[int] = set()
        again = [n for n, k in enumerate(steps) if k in seen or seen.add(k)]
        again.sort(key=lambda n: -model.costs[steps[n]])
        gone = {n for n in again if line.kept_instead(n, limit)}
        if not gone:
            break
        steps = [k for n, k in enumerate(steps) if n not in gone]
    return tuple(steps)


@dataclass
class _Line:
    """Bytes over a schedule."""

    model: Repeats
    steps: list[int]
    live: list[int]
    """Bytes per step, a few more where executions were taken back."""
    made: dict[int, list[int]]
    """Task → the steps that execute it."""
    last: dict[tuple[int, int], int]
    """(value, step that made it) → the last step that reads it."""

    @classmethod
    def of(cls, model: Repeats, steps: list[int]) -> _Line:
        """Of a schedule."""
        made: dict[int, list[int]] = {}
        maker: dict[int, int] = {}
        last: dict[tuple[int, int], int] = {}
        wanted: list[int] = [0] * len(steps)
        for n, k in enumerate(steps):
            for value in bits(model.reads[k]):
                last[value, maker.get(value, -1)] = n
            for value in bits(model.writes[k]):
                maker[value] = n
                last[value, n] = n
            made.setdefault(k, []).append(n)
        later = model.kept
        for n in reversed(range(len(steps))):
            wanted[n] = later
            later = later & ~model.writes[steps[n]] | model.reads[steps[n]]
        live: list[int] = []
        position = 0
        for n, k in enumerate(steps):
            first = made[k][0] == n
            live.append(model.during(k, wanted[n]) if first else model.again(k, wanted[n], position))
            position = k + 1 if first else position
        return cls(model, steps, live, made, last)

    def kept_instead(self, step: int, limit: int) -> bool:
        """Whether the results of the execution before may be kept until this one, which is then left out."""
        model, task = self.model, self.steps[step]
        own = self.made[task]
        before = own[own.index(step) - 1]
        spans = [(v, self.last[v, before] + 1) for v in bits(model.writes[task])]
        for value, start in spans:
            if any(self.live[n] + model.sizes[value] > limit for n in range(start, step)):
                return False
        if len(spans) > 1 and any(
            self.live[n] + sum(model.sizes[v] for v, start in spans if start <= n) > limit for n in range(before, step)
        ):
            return False
        for value, start in spans:
            for n in range(start, step):
                self.live[n] += model.sizes[value]
            self.last[value, before] = self.last[value, step]
        own.remove(step)
        return True
