"""Assign offsets to buffers with fixed lifetimes (dynamic storage allocation, NP-complete)."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dlc.placement.allocator import Allocator, least_arena
from dlc.placement.buffers import Buffer, Placement, aligned, end_of_fixed, max_live
from dlc.placement.greedy import (
    FEW_ORDERS,
    FITS,
    ORDERS,
    Fit,
    Problem,
    best_fit,
    by_size,
    first_fit,
    place_in_order,
    problem,
)
from dlc.placement.repair import repair
from dlc.placement.sweep import pairs, place_by_steps

Strategy = Literal["none", "greedy", "best-fit", "search", "exact", "auto"]

WORK_PER_BUDGET = 128  # inspected spans per unit of budget
MANY_PAIRS = 1 << 18  # buffers live together beyond which the table of all of them is made only if it may help
MOST_PAIRS = 1 << 22  # beyond which it is not made at all: it would take a gigabyte
EXACT_WORK = 4 * 10**8  # what an allocator may do by default: two to four seconds
_FIRST = 32  # the part of it that auto has done before it searches


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
    allocator: Callable[[], Allocator | None] | None = None,
    work: int = EXACT_WORK,
    deadline: float | None = None,
) -> Placement:
    """Offsets, multiples of `align`, under which no two buffers that are live together overlap.

    `none` reuses nothing; `greedy` is first fit by size, by lifetime and by area, the best of them; `best-fit` places
    once, largest first; `search` tries ten greedy rules, then repairs the best of them until the bound is reached or
    the budget is spent; `exact` starts from the greedy rules and has an allocator decide about capacities until the
    least is proven or the work is spent; `auto` has the allocator try for a moment, searches, and then has it do the
    rest; without one, or at the bound, it only searches. Where very many buffers are live together, they are placed in
    the order of their births first, and searched for only above the bound.

    Args:
        buffers: Sizes in bytes.
        align: Bytes.
        strategy: See above.
        seed: Of the random draws of `search`.
        budget: A unit is a fixed amount of work, not of time, so results repeat: 20000 units take about a second,
            whatever the number of buffers.
        allocator: Gives the one to ask, where greedy placements leave a gap; needed for `exact`.
        work: What the allocator may do, in its own units.
        deadline: The value of time.monotonic() at which the allocator is stopped. The result then depends on the
            machine and is marked `late`.

    Raises:
        ValueError: A negative size, an empty lifetime, an alignment below 1, a fixed offset that is no multiple of it,
            or `exact` without an allocator, or with fixed offsets, which no allocator knows.
    """
    bound, step = max_live(buffers, align)
    bound = max(bound, end_of_fixed(buffers, align))
    known = _Known(bound, bound)
    asking = _Asking(buffers, align, bound, deadline)
    match strategy:
        case "none":
            known = known.with_placed(_stacked(buffers, align))
        case "greedy":
            known = known.with_placed(_greedy(buffers, align, bound))
        case "best-fit":
            known = known.with_placed(_best_fit(buffers, align))
        case "search":
            known = known.with_placed(_searched(buffers, align, bound, seed, budget * WORK_PER_BUDGET))
        case "exact":
            solver = allocator() if allocator else None
            if solver is None or any_fixed(buffers):
                raise ValueError("exact needs an allocator, and buffers without fixed offsets")
            known = asking.of(solver, known.with_placed(_greedy(buffers, align, bound)), work)
        case "auto":
            known = known.with_placed(_searched(buffers, align, bound, seed, 0))
            solver = allocator() if allocator and not known.proven and not any_fixed(buffers) else None
            known = asking.of(solver, known, work // _FIRST)
            if not known.proven and not known.late:
                known = known.with_placed(_searched(buffers, align, bound, seed, budget * WORK_PER_BUDGET))
                known = asking.of(solver, known, work)
    found = known.placed
    assert found is not None
    return Placement(
        tuple(found.offsets), found.arena, bound, step, found.method, known.proven, found.tries, known.floor, known.late
    )


@dataclass(frozen=True)
class _Known:
    """What is known while strategies follow each other."""

    bound: int
    floor: int  # every smaller arena is refuted
    placed: Candidate | None = None  # the best so far
    late: bool = False

    @property
    def proven(self) -> bool:
        return self.placed is not None and self.placed.arena == self.floor

    def with_placed(self, found: Candidate) -> "_Known":
        """The better one; the first of equals."""
        better = self.placed is None or found.arena < self.placed.arena
        return dataclasses.replace(self, placed=found) if better else self


@dataclass(frozen=True)
class _Asking:
    """What allocators are asked about."""

    buffers: Sequence[Buffer]
    align: int
    bound: int
    deadline: float | None

    def of(self, allocator: Allocator | None, known: _Known, work: int) -> _Known:
        """What is known after so much work of an allocator; the same where there is none, or nothing to ask."""
        best = known.placed
        if allocator is None or best is None or known.proven:
            return known
        arena, floor = best.arena, known.floor
        least = least_arena(
            allocator, self.buffers, self.align, bound=floor, arena=arena, work=work, deadline=self.deadline
        )
        if least.offsets is not None:
            best = Candidate(least.offsets, least.arena, allocator.name, best.tries)
        return _Known(self.bound, least.floor, best, least.late)


def any_fixed(buffers: Sequence[Buffer]) -> bool:
    """Whether an offset is given: then the order of births has no rule to go by."""
    return any(b.fixed is not None for b in buffers)


def _cost(buffers: Sequence[Buffer]) -> int:
    """Entries of the table of buffers that are live together, with what a buffer itself costs; 0: it has to be made."""
    return 0 if any_fixed(buffers) else pairs(buffers) + 16 * len(buffers)


def _greedy(buffers: Sequence[Buffer], align: int, bound: int) -> Candidate:
    """The best of first fit in three orders; of very many buffers that are live together, first fit by birth."""
    if _cost(buffers) > MOST_PAIRS:
        return _swept(buffers, align)
    task = problem(buffers, align)
    found: list[Candidate] = []
    for name, rule in FEW_ORDERS:
        found.append(_in_order(task, rule(task), first_fit, f"first-fit by {name}"))
        if found[-1].arena == bound:
            break
    return dataclasses.replace(min(found, key=lambda c: c.arena), tries=len(found))


def _best_fit(buffers: Sequence[Buffer], align: int) -> Candidate:
    """Best fit, largest first; of very many buffers that are live together, first fit by birth."""
    if _cost(buffers) > MOST_PAIRS:
        return _swept(buffers, align)
    return _in_order(task := problem(buffers, align), by_size(task), best_fit, "best-fit by size")


def _in_order(task: Problem, order: Sequence[int], fit: Fit, method: str) -> Candidate:
    """One after another, by a gap rule."""
    order = task.free(order)
    offsets, arena = place_in_order(task, order, fit)
    return Candidate(offsets, arena, method, 1, order)


def _searched(buffers: Sequence[Buffer], align: int, bound: int, seed: int, work: int) -> Candidate:
    """Greedy rules and repair, unless very many buffers are live together and first fit by birth reaches the bound."""
    many = _cost(buffers)
    swept = _swept(buffers, align) if many > MANY_PAIRS else None
    if swept is not None and (swept.arena == bound or many > MOST_PAIRS):
        return swept
    searched = _search(problem(buffers, align), bound, seed, work)
    return min((c for c in (searched, swept) if c is not None), key=lambda c: c.arena)


def _stacked(buffers: Sequence[Buffer], align: int) -> Candidate:
    """Every buffer at an address of its own."""
    offsets: list[int] = []
    end = end_of_fixed(buffers, align)
    for buffer in buffers:
        offsets.append(end if buffer.fixed is None else buffer.fixed)
        end += aligned(buffer.size, align) if buffer.fixed is None else 0
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
        found.append(_in_order(task, rule(task), fit, f"{fit_name} by {name}"))
    return sorted(found, key=lambda candidate: candidate.arena)
