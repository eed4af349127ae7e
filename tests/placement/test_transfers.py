"""Routes between memories: sound, no dearer than without copies, and near the best of a search over all states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.placement.pieces import Pieces, pieces_of
from dlc.placement.routes import Room, Track, Use
from dlc.placement.transfers import transfers

State = frozenset[int]


def drawn(seed: int, moves: bool = True) -> tuple[list[Track], list[Room]]:
    """Two to six buffers of up to eight steps, and two or three memories."""
    draw = Random(seed)
    steps = draw.randint(3, 8)
    tracks: list[Track] = []
    for _ in range(draw.randint(2, 6)):
        birth = draw.randrange(steps - 1)
        death = draw.randint(birth + 1, steps)
        size = draw.randint(1, 5)
        uses = [Use(birth, 0, size, True)]
        for step in range(birth + 1, death):
            kind = draw.random()
            if kind < 0.4 or step == death - 1:
                uses.append(Use(step, size * draw.randint(1, 3)))
            elif kind < 0.5:
                uses.append(Use(step, size, size, True))
        tracks.append(Track(size, size, birth, death, tuple(uses), moves and draw.random() < 0.9))
    rooms = [Room(draw.randint(3, 9), 1.0), Room(draw.choice((9, 99)), draw.choice((2.0, 4.0, 16.0)))]
    if draw.random() < 0.2:
        rooms.insert(1, Room(draw.randint(2, 6), 1.5))
    return tracks, rooms


def least(tracks: Sequence[Track], rooms: Sequence[Room], anywhere: bool = True) -> float | None:
    """What the best routes cost: of all buffers together, moment by moment, over all that may hold them.

    `anywhere`: copies may be made between any two steps, not only beside a use.
    """
    known: dict[tuple[State, ...], float] = {(frozenset(),) * len(tracks): 0.0}
    for moment in range(max(2 * t.death for t in tracks)):
        found: dict[tuple[State, ...], float] = {}
        for held, cost in known.items():
            for chosen in product(
                *(_options(t, h, moment, rooms, anywhere) for t, h in zip(tracks, held, strict=True))
            ):
                taken = [
                    sum(t.size for t, (_, _, n) in zip(tracks, chosen, strict=True) if m in n)
                    for m in range(len(rooms))
                ]
                if all(n <= room.size for n, room in zip(taken, rooms, strict=True)):
                    after, whole = tuple(s for s, _, _ in chosen), cost + sum(c for _, c, _ in chosen)
                    found[after] = min(whole, found.get(after, whole))
        known = found
    return min(known.values(), default=None)


def _options(
    track: Track, held: State, moment: int, rooms: Sequence[Room], anywhere: bool
) -> list[tuple[State, float, State]]:
    """(held afterwards, cost, memories that are needed)."""
    costs = [room.cost for room in rooms]
    if not 2 * track.birth <= moment <= 2 * track.death - 2:
        return [(frozenset(), 0.0, frozenset())]
    use = next((u for u in track.uses if 2 * u.step == moment), None)
    if use is not None:
        read = use.read * min((costs[m] for m in held), default=0.0)
        if not use.begins:
            return [(held, read, held)]
        places = [m for m in range(len(rooms)) if track.moves or not held or m in held]
        return [(frozenset([m]), read + use.written * costs[m], held | {m}) for m in places]
    beside = {2 * u.step + d for u in track.uses for d in (1, -1)}
    if moment % 2 == 0 or not track.moves or (not anywhere and moment not in beside):
        return [(held, 0.0, held)]
    states = [frozenset(some) for n in (1, 2) for some in combinations(range(len(rooms)), n)]
    options: list[tuple[State, float, State]] = [(s, 0.0, s) for s in states if s <= held]
    for s in states:
        if len(s - held) == 1:
            (new,) = s - held
            options.append((s, track.content * (costs[new] + min(costs[m] for m in held)), s | held))
    return options


def test_near_the_best() -> None:
    """Of these, all but a few are the best, and none is a fifth above it."""
    ratios: list[float] = []
    for seed in range(60):
        tracks, rooms = drawn(seed)
        best, found = least(tracks, rooms), transfers(tracks, rooms)
        assert (best is None) == (found is None)
        if best is not None and found is not None:
            assert found.cost >= best - 1e-6
            beside = least(tracks, rooms, anywhere=False)
            assert beside is not None and found.bound <= beside + 1e-6
            ratios.append(found.cost / best)
    assert max(ratios) <= 1.2
    assert sum(ratio > 1 + 1e-9 for ratio in ratios) <= len(ratios) // 12


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9))
def test_no_dearer_than_buffers_that_stay(seed: int) -> None:
    tracks, rooms = drawn(seed)
    staying = [Track(t.size, t.content, t.birth, t.death, t.uses, False) for t in tracks]
    plain = transfers(staying, rooms)
    if plain is None:
        return
    start = [route.after[0].bit_length() - 1 for route in plain.routes]
    found = transfers(tracks, rooms, start)
    assert found is not None and found.cost <= plain.cost + 1e-9
    check(tracks, rooms, pieces_of(tracks, rooms, found.routes), found.cost)


def check(tracks: Sequence[Track], rooms: Sequence[Room], pieces: Pieces, cost: float) -> None:
    """Follow what pieces say: every read finds its value, every memory holds what lives there, and the cost is that."""
    events = [(c.before, 0, k) for k, c in enumerate(pieces.copies)]
    events += [(step, 1, 0) for step in range(max(t.death for t in tracks))]
    place = {event: k for k, event in enumerate(sorted(events))}
    whole, holds = 0.0, dict[int, tuple[int, int]]()
    versions = [0] * len(tracks)

    def alive(piece: int, at: int) -> bool:
        return pieces.buffers[piece].birth <= at < pieces.buffers[piece].death

    for (step, kind, number), at in sorted(place.items(), key=lambda each: each[1]):
        if not kind:
            c = pieces.copies[number]
            assert alive(c.source, at) and pieces.buffers[c.target].birth == at
            holds[c.target] = holds[c.source]
            track = tracks[pieces.track[c.source]]
            whole += track.content * sum(rooms[pieces.memory[p]].cost for p in (c.source, c.target))
            continue
        for k, track in enumerate(tracks):
            for use in track.uses:
                if use.step == step and (k, step) in pieces.read:
                    piece = pieces.read[k, step]
                    assert alive(piece, at) and holds[piece] == (k, versions[k])
                    whole += use.read * rooms[pieces.memory[piece]].cost
                if use.step == step and use.begins:
                    piece = pieces.written[k, step]
                    versions[k] += 1
                    holds[piece] = k, versions[k]
                    assert alive(piece, at)
                    whole += use.written * rooms[pieces.memory[piece]].cost
    for at in place.values():
        for m, room in enumerate(rooms):
            live = sum(b.size for b in pieces.buffers if pieces.memory[b.id] == m and b.birth <= at < b.death)
            assert live <= room.size
    assert whole == pytest.approx(cost)


def test_a_value_waits_in_slow_memory() -> None:
    """Written and read at once in fast memory, copied, and read late where it is."""
    waits = Track(4, 4, 0, 6, (Use(0, 0, 4, True), Use(1, 8), Use(5, 4)))
    between = Track(4, 4, 2, 5, (Use(2, 0, 4, True), Use(3, 8), Use(4, 8)))
    found = transfers([waits, between], [Room(4, 1.0), Room(99, 10.0)])
    assert found is not None and found.cost == (4 + 8 + 4) + 4 * 10 + 4 * 10 + 20
    (copy,) = pieces_of([waits, between], [Room(4, 1.0), Room(99, 10.0)], found.routes).copies
    assert copy.before == 2


def test_no_memory_holds_a_buffer() -> None:
    assert transfers([Track(9, 9, 0, 1, (Use(0, 0, 9, True),))], [Room(4, 1.0), Room(8, 2.0)]) is None
