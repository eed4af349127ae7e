"""Few numbers for many tensors: a number is given anew once the tensor that it stood for is no longer used."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.program import Numbered, Program

_LASTING: Final = (Arena.HOST, Arena.WEIGHTS)
"""What the host, or the next run, finds under its number."""


def number_tensors(program: Program, uses: Sequence[tuple[int, Sequence[int]]], limit: int) -> tuple[Numbered, ...]:
    """Numbers for the tensors of `uses`: (instruction, its tensors), in order.

    They are the program's own where all of those are below `limit`. Otherwise each tensor has the lowest number that
    is free from its first use to its last, which takes as few numbers as tensors are in use at once; weights, states
    and what the host reads or writes keep theirs throughout. Numbers may pass `limit`: the caller looks.
    """
    everywhere = len(program.instructions)
    lives: dict[int, tuple[int, int]] = {}
    for at, tensors in uses:
        for tensor in tensors:
            begin, _ = lives.get(tensor, (at, at))
            lives[tensor] = (begin, at + 1)
    if all(tensor < limit for tensor in lives):
        return tuple(Numbered(tensor, tensor, 0, everywhere) for tensor in sorted(lives))
    for tensor in lives:
        if program.storages[program.tensors[tensor].storage].arena in _LASTING:
            lives[tensor] = (0, everywhere)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    given = 0
    numbered: list[Numbered] = []
    # A left-edge colouring of intervals: optimal, since each takes a new number only while all others are in use.
    for tensor, (begin, end) in sorted(lives.items(), key=lambda life: (life[1][0], life[0])):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        number = heapq.heappop(free) if free else given
        given = max(given, number + 1)
        heapq.heappush(busy, (end, number))
        numbered.append(Numbered(tensor, number, begin, end))
    return tuple(numbered)
