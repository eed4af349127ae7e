"""A bound on what must still be paid: bytes that do not fit at an earlier step have to be made again after it.

At an earlier step, whatever is wanted later and was made before is there, or its task runs again in between. What does
not fit is at least as dear as the fractional knapsack of the cheapest bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.placement.repeats import Repeats
from dlc.placement.tasks import bits

IMPOSSIBLE = 1 << 100
"""Above any cost."""

STEPS = 3
"""Earlier steps that a bound looks at: those where most is needed."""

GROUP = 16
"""Values whose bytes are summed together: sets differ in few values, so most of their groups are known already."""


@dataclass(frozen=True)
class Pressure:
    """What an earlier step leaves for values that it does not touch itself."""

    needed: int
    """Values made before it that original tasks read between it and the position asked from."""
    early: int
    """Values made before it and not touched by it."""
    own: int
    """Bytes that the step itself takes at least."""


@dataclass(frozen=True)
class Price:
    """What a value costs that can be made again."""

    value: int
    """As a mask."""
    cost: int
    """Of its task."""
    size: int
    """Bytes of all that the task makes."""


def pressures(model: Repeats) -> tuple[tuple[Pressure, ...], ...]:
    """Per position, the earlier steps that a bound looks at."""
    early: list[int] = []
    made = sum(1 << v for v in range(len(model.sizes)) if v not in model.born)
    for k in range(len(model.tasks)):
        early.append(made & ~(model.reads[k] | model.writes[k]))
        made |= model.writes[k]
    least = [model.during(k, 0) for k in range(len(model.tasks))]
    found: list[tuple[Pressure, ...]] = []
    # Per step, bytes of what is needed between it and the position, which grow with the position.
    needed = [0] * len(model.tasks)
    total = list(least)
    for position in range(len(model.tasks) + 1):
        steps = heapq.nlargest(STEPS, range(position), key=lambda step: (total[step], step))
        found.append(tuple(Pressure(needed[step], early[step], least[step]) for step in steps))
        if position == len(model.tasks):
            break
        reads = model.reads[position]
        for step in range(position):
            if more := reads & early[step] & ~needed[step]:
                needed[step] |= more
                total[step] += model.bytes(more)
    return tuple(found)


def prices(model: Repeats) -> tuple[Price, ...]:
    """Of all values that can be made again, the cheapest bytes first."""
    found = [(model.costs[k], max(1, model.bytes(model.writes[k])), value) for value, k in model.maker.items()]
    found.sort(key=lambda item: (item[0] / item[1], item[2]))
    return tuple(Price(1 << value, cost, size) for cost, size, value in found)


@dataclass
class Bound:
    """Bounds for one model; what is remembered serves searches under any limit."""

    model: Repeats
    asked: int = 0
    """How many bounds were asked for: a measure of work."""
    _known: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _wholes: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def __post_init__(self) -> None:
        """Find the steps to look at."""
        self._pressures = pressures(self.model)
        found = prices(self.model)
        parts = [found[k : k + GROUP] for k in range(0, len(found), GROUP)]
        self._groups = [(sum(price.value for price in part), part) for part in parts]

    def cost(self, limit: int, position: int, wanted: int, movable: int = -1) -> int:
        """At least what running again costs before a position, where `wanted` are the values needed from there on.

        The peak is to stay within `limit` bytes. Only values in `movable` are made again where it is given.
        """
        self.asked += 1
        worst = 0
        for step in self._pressures[position]:
            there = wanted & step.early | step.needed
            excess = self.model.bytes(there) + step.own - limit
            if excess > 0:
                worst = max(worst, self._cheapest(there & (movable | step.needed), excess))
        return worst

    def _cheapest(self, values: int, excess: int) -> int:
        known = self._known.get((values, excess))
        if known is not None:
            return known
        total, left = 0, excess
        for mask, prices in self._groups:
            there = values & mask
            if there:
                size, cost = self._whole(there, prices)
                if size <= left:
                    total, left = total + cost, left - size
                else:
                    total, left = total + self._part(there, prices, left), 0
                if not left:
                    break
        found = self._known[values, excess] = IMPOSSIBLE if left else total
        return found

    def _whole(self, values: int, prices: Sequence[Price]) -> tuple[int, int]:
        """Bytes and cost of all values of a group that are in a set."""
        found = self._wholes.get(values)
        if found is None:
            size = self.model.bytes(values)
            found = self._wholes[values] = size, self._part(values, prices, size)
        return found

    def _part(self, values: int, prices: Sequence[Price], left: int) -> int:
        """Cost of the cheapest `left` bytes of those values."""
        total = 0
        for price in prices:
            if values & price.value:
                part = min(self.model.bytes(price.value), left)
                total += price.cost * part // price.size
                left -= part
        return total


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
