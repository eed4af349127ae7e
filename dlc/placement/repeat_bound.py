"""A bound on what must still be paid: bytes that do not fit at an earlier step have to be made again after it.

At an earlier step, whatever is wanted later and was made before is there, or its task runs again in between. What does
not fit is at least as dear as the fractional knapsack of the cheapest bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.placement.repeats import Repeats
from dlc.placement.tasks import bits

IMPOSSIBLE = 1 << 100
"""Above any cost."""

STEPS = 3
"""Earlier steps that a bound looks at: those where most is needed."""


@dataclass(frozen=True)
class Pressure:
    """What an earlier step leaves for values that it does not touch itself."""

    needed: int
    """Values made before it that original tasks read between it and the position asked from."""
    early: int
    """Values made before it and not touched by it."""
    room: int
    """Bytes."""


@dataclass
class Bound:
    """Bounds under one limit."""

    model: Repeats
    limit: int
    """Bytes."""
    _pressures: list[list[Pressure]] = field(default_factory=list[list[Pressure]])
    _known: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _price: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Values that can be made again, the cheapest bytes first: the value as a mask, the cost of its task, bytes of all
    that the task makes."""

    def __post_init__(self) -> None:
        """Find the steps to look at."""
        model = self.model
        price = [(model.costs[k], max(1, model.bytes(model.writes[k])), value) for value, k in model.maker.items()]
        price.sort(key=lambda item: (item[0] / item[1], item[2]))
        self._price = [(1 << value, cost, size) for cost, size, value in price]
        early: list[int] = []
        made = sum(1 << v for v in range(len(model.sizes)) if v not in model.born)
        for k in range(len(model.tasks)):
            early.append(made & ~(model.reads[k] | model.writes[k]))
            made |= model.writes[k]
        least = [model.during(k, 0) for k in range(len(model.tasks))]
        for position in range(len(model.tasks) + 1):
            needed = 0
            found: list[tuple[int, int, int]] = []
            for step in range(position - 1, -1, -1):
                found.append((model.bytes(needed & early[step]) + least[step], step, needed & early[step]))
                needed |= model.reads[step]
            found.sort(reverse=True)
            chosen = [Pressure(mask, early[step], self.limit - least[step]) for _, step, mask in found[:STEPS]]
            self._pressures.append(chosen)

    def cost(self, position: int, wanted: int, movable: int = -1) -> int:
        """At least what running again costs before a position, where `wanted` are the values needed from there on.

        Only values in `movable` are made again where it is given.
        """
        worst = 0
        for step in self._pressures[position]:
            there = wanted & step.early | step.needed
            excess = self.model.bytes(there) - step.room
            if excess > 0:
                worst = max(worst, self._cheapest(there & (movable | step.needed), excess))
        return worst

    def _cheapest(self, values: int, excess: int) -> int:
        known = self._known.get((values, excess))
        if known is not None:
            return known
        total, left = 0, excess
        for value, cost, size in self._price:
            if values & value:
                part = min(self.model.bytes(value), left)
                total += cost * part // size
                left -= part
                if not left:
                    break
        found = self._known[values, excess] = IMPOSSIBLE if left else total
        return found


def idle(model: Repeats, gap: int = 3) -> list[int]:
    """Per position, values that tasks before it read after more than `gap` others: worth making again there."""
    seen: dict[int, int] = {}
    found: list[int] = [0]
    for position, task in enumerate(model.tasks):
        late = 0
        for value in bits(model.reads[position]):
            if value in model.maker and position - seen.get(value, position) > gap:
                late |= 1 << value
        for storage in (*task.reads, *task.writes):
            seen[storage] = position
        found.append(found[-1] | late)
    return found
