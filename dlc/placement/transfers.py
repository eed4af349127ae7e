"""Buffers that move between memories: which of these hold each buffer when, so that accesses cost least.

    lifetimes, accesses, memories   →   at every moment, the memories that hold a buffer; between steps, copies

For one buffer among others that stay, the best route is known (`Routing.best`). All of them together are a heuristic:
routes one after another, then each again, and pairs, as long as that costs less. Prices of bytes and moments say where
room is rare (Lagrangian relaxation, subgradient steps after Polyak, 1969), and give a lower bound: no routes cost less,
of those that copy right after a use or right before one, as far as live bytes tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlc.placement.routes import Room, Route, Routing, Track

WORK: Final = 200_000
"""Spans of buffers that all searches together look at, of which 100,000 take about a second."""
_PRICED: Final = 60
"""Changes of prices at most."""
_LEAST: Final = 1e-9
"""What routes have to be better by, as a part of their cost."""


@dataclass(frozen=True)
class Transfers:
    """A route for every buffer."""

    routes: tuple[Route, ...]
    cost: float  # of all accesses and copies
    bound: float  # no routes cost less


def transfers(
    tracks: Sequence[Track], rooms: Sequence[Room], start: Sequence[int] | None = None, work: int = WORK
) -> Transfers | None:
    """Routes by which no more bytes are live in a memory than it has; None if none were found.

    Args:
        tracks: The buffers.
        rooms: The memories, the fastest first.
        start: The memory of each buffer, if all are known to fit so: what is found costs no more.
        work: See `WORK`; at least one way is tried.
    """
    task = _Search(tracks, rooms, work)
    best = None if start is None else task.improved([task.staying(t, m) for t, m in zip(tracks, start, strict=True)])
    bound = 0.0
    prices: list[list[float]] | None = None
    for number in range(_PRICED):
        orders = task.orders if number == 0 else task.orders[:1]
        for order in orders:
            found = task.inserted(order, prices)
            if found is not None:
                found = task.improved(found)
                best = found if best is None or _cost(found) < _cost(best) else best
        cost = _cost(best) if best is not None else task.dearest
        relaxed = task.relaxed(prices)
        bound = max(bound, relaxed.bound)
        if task.work <= 0 or relaxed.norm == 0 or cost - bound <= _LEAST * cost:
            break
        prices = relaxed.stepped(cost)
    if best is None:
        return None
    best = task.paired(best)
    cost = _cost(best)
    return Transfers(tuple(best), cost, min(bound, cost))


def _cost(routes: Sequence[Route]) -> float:
    """Of all accesses and copies."""
    return sum(r.cost for r in routes)


@dataclass
class _Relaxed:
    """The cheapest routes for prices, each by itself."""

    bound: float
    prices: list[list[float]]
    excess: list[list[float]]  # per memory and moment, bytes beyond what it has; negative where some are left

    @property
    def norm(self) -> float:
        """Sum of the squares of what changes prices, none of which becomes negative."""
        rows = zip(self.prices, self.excess, strict=True)
        return sum(e * e for p, row in rows for q, e in zip(p, row, strict=True) if q > 0 or e > 0)

    def stepped(self, cost: float) -> list[list[float]]:
        """Other prices, dearer where too much was asked for, by how far the bound is from a known cost."""
        step = (cost - self.bound) / self.norm
        return [
            [max(0.0, q + step * e) for q, e in zip(p, row, strict=True)]
            for p, row in zip(self.prices, self.excess, strict=True)
        ]


class _Search(Routing):
    """Routes for all buffers."""

    @property
    def dearest(self) -> float:
        """More than routes without copies cost."""
        most = max(r.cost for r in self.rooms)
        return sum((u.read + u.written) * most for t in self.tracks for u in t.uses) + 1

    @property
    def orders(self) -> list[list[int]]:
        """Orders to route in: most accesses per live byte first, largest first."""
        area = [max(1, t.size * (t.death - t.birth)) for t in self.tracks]
        used = [sum(u.read + u.written for u in t.uses) for t in self.tracks]
        everyone = range(len(self.tracks))
        return [
            sorted(everyone, key=lambda k: (-used[k] / area[k], k)),
            sorted(everyone, key=lambda k: (-area[k], k)),
        ]

    def inserted(self, order: Sequence[int], prices: list[list[float]] | None) -> list[Route] | None:
        """Routes one after another, each the best in what the others left."""
        free = self.left()
        routes: dict[int, Route] = {}
        for k in order:
            found = self.best(self.tracks[k], free, prices)
            if found is None:
                return None
            routes[k] = found[1]
            self.take(free, k, found[1])
        return [routes[k] for k in range(len(routes))]

    def improved(self, routes: Sequence[Route]) -> list[Route]:
        """Each again among the others, as long as that costs less."""
        routes, free = list(routes), self.left()
        for k, route in enumerate(routes):
            self.take(free, k, route)
        changed = True
        while changed and self.work > 0:
            changed = False
            for k, track in enumerate(self.tracks):
                before = routes[k].cost
                self.take(free, k, routes[k], -1)
                found = self.best(track, free)
                if found is not None and found[0] < before * (1 - _LEAST):
                    routes[k], changed = found[1], True
                self.take(free, k, routes[k])
        return routes

    def paired(self, routes: Sequence[Route]) -> list[Route]:
        """Pairs again that live together, the first as if the second were not there, while there is work left."""
        routes, free = self.improved(routes), self.left()
        for k, route in enumerate(routes):
            self.take(free, k, route)
        empty = self.left()
        least = [found[0] if (found := self.best(t, empty)) else 0.0 for t in self.tracks]
        for one in range(len(routes)):
            for other in range(len(routes)):
                a, b = self.tracks[one], self.tracks[other]
                now = routes[one].cost
                if self.work <= 0:
                    return routes
                if one == other or a.death <= b.birth or b.death <= a.birth or now <= least[one] * (1 + _LEAST):
                    continue
                before = now + routes[other].cost
                old = routes[one], routes[other]
                for k in (one, other):
                    self.take(free, k, routes[k], -1)
                if (first := self.best(a, free)) is not None:
                    self.take(free, one, first[1])
                    second = self.best(b, free)
                    self.take(free, one, first[1], -1)
                    if second is not None and first[0] + second[0] < before * (1 - _LEAST):
                        old = first[1], second[1]
                routes[one], routes[other] = old
                for k in (one, other):
                    self.take(free, k, routes[k])
        return self.improved(routes)

    def relaxed(self, prices: list[list[float]] | None) -> _Relaxed:
        """The cheapest routes for prices, and what they say of all routes."""
        empty = self.left()
        prices = prices or [[0.0] * self.moments for _ in self.rooms]
        excess = [[-float(room.size)] * self.moments for room in self.rooms]
        whole = -sum(q * room.size for p, room in zip(prices, self.rooms, strict=True) for q in p)
        for k, track in enumerate(self.tracks):
            found = self.best(track, empty, prices)
            if found is None:  # no memory is so large
                return _Relaxed(math.inf, prices, excess)
            whole += found[0]
            self.take(excess, k, found[1], -1)
        return _Relaxed(whole, prices, excess)
