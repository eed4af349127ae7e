"""Shrink an arena by repairing the order in which buffers are placed.

Squeaky wheel search: place buffers first-fit under a cap just below the best arena; where
one does not fit, move it a little earlier, before some buffer in its way, undo what came
between and go on. Moving only a little keeps most of the placement, and the many cheap
tries beat complete evaluations of swapped orders (the hill climbs of Vela and TVM) by a
wide margin on the MiniMalloc instances.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.placement.greedy import Problem, Span, first_fit, offsets_of

NEAREST, FARTHEST = 4, 8  # how many draws choose the buffer to pass: more draws make shorter moves
TRIES_PER_REACH = 512  # tries before the number of draws changes
PATIENCE = 3000  # tries without a smaller arena before another start is worth more


@dataclass(frozen=True)
class Repaired:
    """The smallest arena met, and how much was tried for it."""

    offsets: list[int] | None  # None if nothing smaller was found
    arena: int  # bytes
    tries: int
    work: int  # spans inspected


def repair(task: Problem, order: Sequence[int], arena: int, bound: int, rng: random.Random, work: int) -> Repaired:
    """Look for an arena below `arena`, starting from an order that names every buffer once, but for fixed ones.

    Ends when the bound is reached, when `work` spans have been inspected, or when PATIENCE
    tries in a row brought nothing. Random draws are the only thing besides the arguments
    that decides the result.
    """
    # Every offset is a sum of sizes behind nothing or a fixed offset, so arenas differ by at least this.
    unit = math.gcd(*task.sizes, *(b.fixed for b in task.buffers if b.fixed is not None))
    order = list(order)
    rank = [-1] * len(task.sizes)  # of fixed buffers, before which none is moved
    for position, index in enumerate(order):
        rank[index] = position
    spans = task.unplaced()
    best: list[int] | None = None
    position = tries = improved = total = 0
    while arena > bound:
        position, spent = _fill(task, order, position, spans, arena - unit)
        total += spent
        if position == len(order):
            best, arena = offsets_of(spans)
            improved = tries
            # The buffer on top is the first that must fit lower next time.
            position = rank[max(order, key=lambda index: _end(spans[index]))]
        if total >= work or tries - improved >= PATIENCE:
            break
        tries += 1
        draws = NEAREST + tries // TRIES_PER_REACH % (FARTHEST - NEAREST + 1)
        position = _advance(task, order, rank, spans, position, draws, rng)
    return Repaired(best, arena, tries, total)


def _end(span: Span | None) -> int:
    return span[1] if span else 0


def _fill(task: Problem, order: list[int], position: int, spans: list[Span | None], cap: int) -> tuple[int, int]:
    """Place buffers from a position on; where the first stands that would end above the cap, and the work done."""
    work = 1
    while position < len(order):
        index = order[position]
        taken = task.taken(index, spans)
        work += len(taken) + 4  # the constant stands for the cost of a placement without neighbours
        start = first_fit(taken, task.sizes[index])
        end = start + task.sizes[index]
        if end > cap:
            break
        spans[index] = (start, end)
        position += 1
    return position, work


def _advance(
    task: Problem,
    order: list[int],
    rank: list[int],
    spans: list[Span | None],
    position: int,
    draws: int,
    rng: random.Random,
) -> int:
    """Move the buffer at a position before the latest of some conflicting ones drawn; where filling must resume."""
    index = order[position]
    earlier = [rank[other] for other in task.conflicts[index] if 0 <= rank[other] < position]
    target = max(rng.choices(earlier, k=draws)) if earlier else 0
    for undone in order[target:]:
        spans[undone] = None
    order.insert(target, order.pop(position))
    for moved in range(target, position + 1):
        rank[order[moved]] = moved
    return target
