"""Assign offsets to buffers with fixed lifetimes (dynamic storage allocation, NP-complete)."""

import dataclasses
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dlc.placement.buffers import Buffer, Placement, aligned, max_live
from dlc.placement.greedy import FITS, ORDERS, Problem, best_fit, by_size, first_fit, place_in_order, problem
from dlc.placement.repair import repair
from dlc.placement.sweep import pairs, place_by_steps

Strategy = Literal["none", "greedy", "best-fit", "search"]

WORK_PER_BUDGET = 128  # inspected spans per unit of budget
MANY_PAIRS = 1 << 18  # buffers live together beyond which the table of all of them is made only if it may help


@dataclass(frozen=True)
class Candidate:
    """A placement not yet judged."""

    offsets: Sequence[int]
    arena: int  # bytes
    method: str
    tries: int
    order: Sequence[int] = ()  # the order it was placed in, for a search to start from


def place(
    buffers: Sequence[Buffer],
    *,
    align: int = 64,
    strategy: Strategy = "search",
    seed: int = 0,
    budget: int = 20000,
) -> Placement:
    """Offsets, multiples of `align`, under which no two buffers that are live together overlap.

    `none` reuses nothing; `greedy` and `best-fit` place once, largest first; `search` tries ten
    greedy rules, then repairs the best of them until the bound is reached or the budget is
    spent. A unit of budget is a fixed amount of work, not of time, so results repeat: 20000
    units take about a second, whatever the number of buffers. Raises ValueError for a
    negative size, an empty lifetime or an alignment below 1. Where very many buffers are live
    together, they are placed in the order of their births first, and searched for only above the bound.
    """
    bound, step = max_live(buffers, align)
    match strategy:
        case "none":
            found = _stacked(buffers, align)
        case "greedy":
            offsets, arena = place_in_order(task := problem(buffers, align), by_size(task), first_fit)
            found = Candidate(offsets, arena, "first-fit by size", 1)
        case "best-fit":
            offsets, arena = place_in_order(task := problem(buffers, align), by_size(task), best_fit)
            found = Candidate(offsets, arena, "best-fit by size", 1)
        case "search":
            swept = _swept(buffers, align) if pairs(buffers) > MANY_PAIRS else None
            if swept is not None and swept.arena == bound:
                found = swept
            else:
                searched = _search(problem(buffers, align), bound, seed, budget * WORK_PER_BUDGET)
                found = min((c for c in (searched, swept) if c is not None), key=lambda c: c.arena)
    proven = found.arena == bound
    return Placement(tuple(found.offsets), found.arena, bound, step, found.method, proven, found.tries)


def _stacked(buffers: Sequence[Buffer], align: int) -> Candidate:
    """Every buffer at an address of its own."""
    offsets: list[int] = []
    end = 0
    for buffer in buffers:
        offsets.append(end)
        end += aligned(buffer.size, align)
    return Candidate(offsets, end, "no reuse", 1)


def _swept(buffers: Sequence[Buffer], align: int) -> Candidate:
    """Every buffer in the first gap at its birth."""
    offsets, arena = place_by_steps(buffers, align)
    return Candidate(offsets, arena, "first-fit by birth", 1)


def _search(task: Problem, bound: int, seed: int, work: int) -> Candidate:
    """The best of the greedy rules, repaired while above the bound; each rule in turn is a start for repair."""
    starts = _portfolio(task, bound, work)
    best = starts[0]
    tries = len(starts)
    rng = random.Random(seed)
    for start in itertools.cycle(starts):
        if best.arena == bound or work <= 0:
            break
        repaired = repair(task, start.order, best.arena, bound, rng, work)
        work -= repaired.work
        tries += repaired.tries
        if repaired.offsets is not None:
            best = Candidate(repaired.offsets, repaired.arena, f"repair of {start.method}", tries)
    return dataclasses.replace(best, tries=tries)


def _portfolio(task: Problem, bound: int, work: int) -> list[Candidate]:
    """What the greedy rules give, best first; ends at the bound, or where the next might exceed the work allowed."""
    cost = sum(len(others) for others in task.conflicts)
    found: list[Candidate] = []
    for (name, rule), (fit_name, fit) in itertools.product(ORDERS, FITS):
        if found and ((len(found) + 1) * cost > work or found[-1].arena == bound):
            break
        order = rule(task)
        offsets, arena = place_in_order(task, order, fit)
        found.append(Candidate(offsets, arena, f"{fit_name} by {name}", 1, order))
    return sorted(found, key=lambda candidate: candidate.arena)
