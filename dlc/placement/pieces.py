"""What routes of buffers between memories mean for a program: copies as steps, and a buffer for each stay in a memory.

    routes   →   steps and copies in a row, numbered anew; memory and lifetime of every piece of a buffer

Copies between the same two steps run one after another, those to slower memories first: what they leave is free for
what comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlc.placement.buffers import Buffer
from dlc.placement.routes import Room, Route, Track

Event = tuple[int, int, int, int]
"""(step, 1, 0, 0) is a step; (step, 0, whether to a faster memory, buffer) a copy before it. Events happen in order."""


@dataclass(frozen=True)
class Copy:
    """A buffer is copied to another memory, where it begins a piece."""

    before: int  # the step that follows
    source: int  # the piece that is read
    target: int  # the piece that is written


@dataclass(frozen=True)
class Pieces:
    """Stays of buffers in memories; steps are numbered without copies, but for the lifetimes of `buffers`."""

    buffers: tuple[Buffer, ...]  # ids count up from 0
    memory: tuple[int, ...]  # of each
    track: tuple[int, ...]  # of each
    copies: tuple[Copy, ...]  # in the order in which they run
    read: Mapping[tuple[int, int], int]  # (track, step that uses it) → the piece that it reads
    written: Mapping[tuple[int, int], int]  # (track, step that begins a value) → the piece that it writes


def pieces_of(tracks: Sequence[Track], rooms: Sequence[Room], routes: Sequence[Route]) -> Pieces:
    """The pieces of buffers by their routes."""
    found = _Found(rooms)
    for k, (track, route) in enumerate(zip(tracks, routes, strict=True)):
        found.walk(k, track, route)
    steps = max((t.death for t in tracks), default=0)
    events = sorted([*((step, 1, 0, 0) for step in range(steps)), *found.copies])
    rank = {event: n for n, event in enumerate(events)}
    buffers = tuple(
        Buffer(n, tracks[p.track].content, rank[p.begin], rank[p.end] + 1) for n, p in enumerate(found.pieces)
    )
    copies = tuple(Copy(event[0], *found.copies[event]) for event in events if not event[1])
    memory, track = (tuple(getattr(p, name) for p in found.pieces) for name in ("memory", "track"))
    return Pieces(buffers, memory, track, copies, found.read, found.written)


@dataclass
class _Piece:
    track: int
    memory: int
    begin: Event
    end: Event


@dataclass
class _Found:
    """What walking along routes gives."""

    rooms: Sequence[Room]
    pieces: list[_Piece] = field(default_factory=list[_Piece])
    copies: dict[Event, tuple[int, int]] = field(default_factory=dict[Event, tuple[int, int]])
    read: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    written: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def walk(self, number: int, track: Track, route: Route) -> None:
        """The pieces of a track."""
        here: dict[int, int] = {}  # memory → the piece there
        for (begin, _, use), after in zip(track.spans, route.after, strict=True):
            memories = [m for m in range(len(self.rooms)) if after >> m & 1]
            if use is not None:
                event = (use.step, 1, 0, 0)
                if here:
                    self.read[number, use.step] = here[self._cheapest(here)]
                    for m in here:
                        self.pieces[here[m]].end = event
                if use.begins:
                    here = {m: here[m] if m in here else self._begun(number, m, event) for m in memories}
                    self.written[number, use.step] = here[memories[0]]
            elif new := [m for m in memories if m not in here]:
                step, source = (begin + 1) // 2, self._cheapest(here)
                event = (step, 0, int(new[0] < source), number)
                self.pieces[here[source]].end = event
                here[new[0]] = self._begun(number, new[0], event)
                self.copies[event] = here[source], here[new[0]]
            here = {m: p for m, p in here.items() if m in memories}
        for piece in here.values():
            self.pieces[piece].end = (track.death - 1, 1, 0, 0)

    def _cheapest(self, here: Mapping[int, int]) -> int:
        return min(here, key=lambda m: (self.rooms[m].cost, m))

    def _begun(self, track: int, memory: int, event: Event) -> int:
        self.pieces.append(_Piece(track, memory, event, event))
        return len(self.pieces) - 1
