"""Routes of buffers between memories: which of these hold one when, and the cheapest route in the room that is left.

Step t is moment 2t, and before it, at moment 2t - 1, copies are made. A buffer lies in one memory or, once copied, in
two; a step reads it where that costs least. A copy reads one memory and writes another, and needs room in both. A step
that writes a new value over the one before may write it to another memory instead, which is no copy. The cheapest route
is found by dynamic programming over the uses of a buffer; copies follow a use at once, or come right before the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise


@dataclass(frozen=True)
class Route:
    """Where a buffer is; memories are bits."""

    after: tuple[int, ...]  # per span of the buffer (`Track.spans`), the memories that hold it afterwards
    needed: tuple[int, ...]  # those in which it takes room
    cost: float  # of its accesses and copies


@dataclass(frozen=True)
class Use:
    """What a step does with a buffer."""

    step: int
    read: int = 0  # bytes
    written: int = 0  # bytes
    begins: bool = False  # a new value begins, for which the one before is not needed


@dataclass(frozen=True)
class Track:
    """A buffer over time."""

    size: int  # bytes, as offsets leave room for them
    content: int  # bytes that a copy moves
    birth: int  # the first step
    death: int  # the step behind the last
    uses: tuple[Use, ...]  # one per step at most, ascending; the first step begins a value
    moves: bool = True  # whether it may change its memory

    @cached_property
    def spans(self) -> tuple[tuple[int, int, Use | None], ...]:
        """(first moment, the one behind the last, what is done then) of its life; copies are made in spans of one."""
        found: list[tuple[int, int, Use | None]] = []
        ends = [2 * u.step for u in self.uses[1:]] + [2 * self.death - 1]
        for use, end in zip(self.uses, ends, strict=True):
            begin = 2 * use.step
            found.append((begin, begin + 1, use))
            cuts = [begin + 1, begin + 2, end - 1, end]
            found += [(a, b, None) for a, b in pairwise(sorted({c for c in cuts if begin < c <= end})) if a < b]
        return tuple(found)


@dataclass(frozen=True)
class Room:
    """A memory."""

    size: int  # bytes
    cost: float  # of reading or writing a byte there


@dataclass
class Routing:
    """Tracks and memories, with what finding routes needs of them."""

    tracks: Sequence[Track]
    rooms: Sequence[Room]
    work: int
    """Spans that may still be looked at."""
    moments: int = field(init=False)
    single: list[int] = field(init=False)
    moves: dict[int, list[tuple[int, float, int]]] = field(init=False)
    """State → (state, cost per byte, memories that are needed) of what may be done between steps."""
    cheapest: dict[int, float] = field(init=False)
    """Memories → what reading a byte costs there."""

    def __post_init__(self) -> None:
        self.moments = max((2 * t.death for t in self.tracks), default=0)
        self.single = [1 << m for m in range(len(self.rooms))]
        states = [*self.single, *(a | b for a, b in combinations(self.single, 2))]
        self.cheapest = {s: min(r.cost for m, r in enumerate(self.rooms) if s >> m & 1) for s in states}
        self.moves = {a: list(self._moves(a, states)) for a in states}

    def _moves(self, a: int, states: Sequence[int]) -> Iterator[tuple[int, float, int]]:
        yield a, 0.0, a
        for b in states:
            new = b & ~a
            if not new and b != a:
                yield b, 0.0, b
            elif new in self.single:
                yield b, self.cheapest[a] + self.cheapest[new], a | b

    def best(
        self, track: Track, free: Sequence[Sequence[float]], prices: Sequence[Sequence[float]] | None = None
    ) -> tuple[float, Route] | None:
        """(cost, the best route of a buffer) in the room that is left; None if there is none.

        With prices, the cost has the price of each byte that is held at each moment beside.
        """
        self.work -= len(track.spans)
        size = track.size
        known: dict[int, float] = {0: 0.0}
        back: list[dict[int, tuple[int, float, int]]] = []
        for begin, end, use in track.spans:
            blocked = 0
            toll: list[tuple[int, float]] = []
            for m, bit in enumerate(self.single):
                if min(free[m][begin:end]) < size:
                    blocked |= bit
                if prices is not None:
                    toll.append((bit, sum(prices[m][begin:end]) * size))
            found: dict[int, float] = {}
            came: dict[int, tuple[int, float, int]] = {}
            between = end - begin == 1 and begin % 2 == 1
            for a, cost in known.items():
                for b, more, needed in self._steps(a, use, between, track):
                    if needed & blocked:
                        continue
                    whole = cost + more
                    if prices is not None:
                        for bit, price in toll:
                            if needed & bit:
                                whole += price
                    if b not in found or whole < found[b]:
                        found[b], came[b] = whole, (a, more, needed)
            if not found:
                return None
            known = found
            back.append(came)
        last = min(known, key=lambda s: (known[s], s))
        return known[last], _traced(last, back)

    def _steps(self, a: int, use: Use | None, between: bool, track: Track) -> Iterator[tuple[int, float, int]]:
        """(state afterwards, cost, memories that are needed) of what may happen in a span, be it between two steps."""
        if use is None:
            if between and track.moves:
                for b, cost, needed in self.moves[a]:
                    yield b, cost * track.content, needed
            else:
                yield a, 0.0, a
        elif use.begins and (not a or track.moves):
            read = use.read * self.cheapest[a] if a else 0.0
            for b in self.single:
                yield b, read + use.written * self.cheapest[b], a | b
        else:
            yield a, (use.read + use.written) * self.cheapest[a], a

    def staying(self, track: Track, memory: int) -> Route:
        """The route of a buffer that lies in one memory."""
        state, cost = 1 << memory, self.rooms[memory].cost
        whole = sum((u.read + u.written) * cost for u in track.uses)
        return Route((state,) * len(track.spans), (state,) * len(track.spans), whole)

    def left(self) -> list[list[float]]:
        """Bytes of each memory at each moment."""
        return [[float(room.size)] * self.moments for room in self.rooms]

    def take(self, free: list[list[float]], number: int, route: Route, sign: int = 1) -> None:
        """Take the room of a route, or give it back (-1)."""
        track, less = self.tracks[number], sign * self.tracks[number].size
        for (begin, end, _), needed in zip(track.spans, route.needed, strict=True):
            for m, bit in enumerate(self.single):
                if needed & bit:
                    free[m][begin:end] = [n - less for n in free[m][begin:end]]


def _traced(last: int, back: Sequence[Mapping[int, tuple[int, float, int]]]) -> Route:
    """The route that ends in a state; per span, state → (the one before, cost, memories that are needed)."""
    after: list[int] = []
    needed: list[int] = []
    whole, state = 0.0, last
    for came in reversed(back):
        after.append(state)
        state, cost, mask = came[state]
        needed.append(mask)
        whole += cost
    return Route(tuple(reversed(after)), tuple(reversed(needed)), whole)
