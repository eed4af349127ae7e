"""Recomputation: which tasks to execute more than once, so that values need not be kept until they are read.

The order of first executions is given. What is decided is which values are dropped, and where the tasks that make them
run again, as in Checkmate (Jain et al., MLSys 2020) and Moccasin (Bartan et al., ICML 2023). Networks of up to
`SEARCHED` tasks are searched; larger ones have what the rule of `evict` finds, which begins every search.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import gcd

from dlc.placement.evict import evicted
from dlc.placement.lifetimes import peak_of
from dlc.placement.repeat_bound import Bound
from dlc.placement.repeat_search import Found, Search
from dlc.placement.repeats import Repeats, repeats
from dlc.placement.tasks import Task

STATES = 30_000
"""States that a search for one schedule may visit by default."""

SEARCHED = 256
"""Tasks up to which schedules are searched for. Larger networks have what a rule finds, which takes no search."""

FINE = 256
"""What the rule's least peak is found to: that part of it."""

GIVEN_UP = 3
"""Searches that may give up while the least peak is looked for."""

EXACT, NEAR = 16, 2
"""While a limit is looked for, each search may visit that part of the states: a 16th, a half. What the exact search
cannot decide soon it rarely decides later, whereas the others miss a limit that can be met when they give up."""

BANDS = 4
"""Into how many bands the search in bands divides a budget."""

LITTLE = 64
"""That part of a budget is what the search in bands may spend first."""


@dataclass(frozen=True)
class Recomputation:
    """A schedule in which tasks may run more than once."""

    steps: tuple[int, ...]
    """Tasks in order of execution; the first time that one is named it runs as in the order given."""
    peak: int
    """Bytes live at the worst step, workspace included."""
    cost: int
    """Of all executions but the first of each task."""
    proven: bool
    """With this order of first executions, nothing is cheaper within the memory, or smaller within the budget."""
    states: int
    """States visited."""


def least_cost(
    tasks: Sequence[Task],
    sizes: Sequence[int],
    costs: Sequence[int],
    memory: int,
    *,
    order: Sequence[int] | None = None,
    keep: Collection[int] = (),
    state_limit: int = STATES,
) -> Recomputation | None:
    """The cheapest schedule found whose peak is at most `memory` bytes; None if none was found.

    Args:
        tasks: In their natural order.
        sizes: Bytes per storage.
        costs: Of an execution, per task, such as FLOPs. A task that costs nothing brings in data, and runs once.
        memory: Bytes.
        order: Of the first executions; the natural one by default.
        keep: Storages that live at the end.
        state_limit: States that each search may visit.

    Raises:
        ValueError: tasks, costs or order are malformed.
    """
    order = range(len(tasks)) if order is None else order
    model = repeats(tasks, sizes, costs, order, keep)
    steps = evicted(model, memory)
    ruled = None if steps is None else Found(steps, _extra(model, steps), False, 0)
    found = Found(None, 0, False, 0)
    if len(tasks) <= SEARCHED:
        budget = sum(costs) * len(tasks) if ruled is None else ruled.cost
        found = _cheapest(Bound(model), memory, budget, state_limit, state_limit)
    if found.steps is None and ruled is not None:
        found = Found(ruled.steps, ruled.cost, not ruled.cost, found.states)
    if found.steps is None:
        return None
    best = _schedule(tasks, sizes, order, keep, found)
    return Recomputation(best.steps, best.peak, best.cost, found.complete, found.states)


def least_memory(
    tasks: Sequence[Task],
    sizes: Sequence[int],
    costs: Sequence[int],
    budget: int,
    *,
    order: Sequence[int] | None = None,
    keep: Collection[int] = (),
    state_limit: int = STATES,
) -> Recomputation:
    """The schedule with the smallest peak found that costs at most `budget` beyond the first executions.

    Arguments and errors are those of `least_cost`.
    """
    order = range(len(tasks)) if order is None else order
    model = repeats(tasks, sizes, costs, order, keep)
    bound = Bound(model)
    unit = gcd(*sizes, *(task.workspace for task in tasks)) or 1
    high = peak_of(tasks, sizes, order, keep) // unit
    low = max((model.during(k, 0) for k in range(len(tasks))), default=0) // unit
    best = _Schedule(tuple(order), high * unit, 0)
    if (ruled := _ruled(model, low * unit, high * unit, budget)) is not None:
        best = _schedule(tasks, sizes, order, keep, ruled)
        high = best.peak // unit
    if len(tasks) > SEARCHED:
        return Recomputation(best.steps, best.peak, best.cost, high <= low, 0)
    refuted, states, given_up = low - 1, 0, 0
    while low < high and given_up < GIVEN_UP:
        middle = (low + high) // 2
        found = _cheapest(bound, middle * unit, budget, state_limit // EXACT, state_limit // NEAR)
        states += found.states
        if found.steps is not None:
            best = _schedule(tasks, sizes, order, keep, found)
            high = best.peak // unit  # often far below what was asked for
        else:
            low = middle + 1
            refuted = middle if found.complete else refuted
            given_up += not found.complete
    if refuted < high - 1:
        # What could not be refuted in passing gets a search of its own: it may even find something.
        found = Search(bound, (high - 1) * unit).everything(budget, state_limit)
        states += found.states
        if found.steps is not None:
            best = _schedule(tasks, sizes, order, keep, found)
        elif found.complete:
            refuted = high - 1
    if best.cost and (found := _cheapest(bound, best.peak, best.cost - 1, state_limit // EXACT, 0)).steps is not None:
        best = _schedule(tasks, sizes, order, keep, found)
        states += found.states
    return Recomputation(best.steps, best.peak, best.cost, refuted * unit >= best.peak - unit, states)


def _extra(model: Repeats, steps: Sequence[int]) -> int:
    """What a schedule costs beyond the first executions."""
    return sum(model.costs[k] for k in steps) - sum(model.costs)


def _ruled(model: Repeats, low: int, high: int, budget: int) -> Found | None:
    """The schedule with the least peak that the rule finds within a budget, between two numbers of bytes."""
    best: Found | None = None
    while high - low > high // FINE:
        middle = (low + high) // 2
        steps = evicted(model, middle)
        if steps is not None and (cost := _extra(model, steps)) <= budget:
            best, high = Found(steps, cost, False, 0), middle
        else:
            low = middle + 1
    return best


def _cheapest(bound: Bound, memory: int, budget: int, exact: int, near: int) -> Found:
    """What the exact search finds within `exact` states, or else the others within `near`; `complete` is a proof."""
    search = Search(bound, memory)
    proof = search.everything(budget, exact)
    if proof.complete or not near:
        return proof
    states = proof.states
    least = bound.cost(memory, len(bound.model.tasks), bound.model.kept)
    allowed = max(1, 2 * least, min(budget, sum(bound.model.costs)) // LITTLE)
    while True:
        # More and more may be spent: how wide bands have to be follows from what it takes.
        allowed = min(budget, allowed)
        found = search.everything(allowed, near, max(2, allowed // BANDS))
        states += found.states
        if found.steps is not None or allowed == budget:
            break
        allowed *= 2
    if found.steps is None and not found.complete:
        found = search.nearby(budget, near)
        states += found.states
    return Found(found.steps, found.cost, found.steps is None and allowed == budget and found.complete, states)


@dataclass(frozen=True)
class _Schedule:
    steps: tuple[int, ...]
    peak: int
    cost: int


def _schedule(
    tasks: Sequence[Task], sizes: Sequence[int], order: Sequence[int], keep: Collection[int], found: Found
) -> _Schedule:
    """What was found, with its peak, which may be below the limit of the search."""
    steps = tuple(order[position] for position in found.steps or ())
    plain = unrolled(tasks, sizes, steps, keep)
    return _Schedule(steps, peak_of(plain.tasks, plain.sizes, range(len(steps)), plain.keep), found.cost)


@dataclass(frozen=True)
class Unrolled:
    """A schedule as tasks that run once each, in their natural order; every execution writes storages of its own."""

    tasks: tuple[Task, ...]
    sizes: tuple[int, ...]
    keep: tuple[int, ...]
    origin: tuple[int, ...]
    """Per storage, the one that it is another copy of."""


def unrolled(tasks: Sequence[Task], sizes: Sequence[int], steps: Sequence[int], keep: Collection[int] = ()) -> Unrolled:
    """Give each execution storages of its own, so that lifetimes, offsets and checks know nothing of recomputation."""
    place = list(range(len(sizes)))
    origin = list(place)
    found: list[Task] = []
    first: dict[int, int] = {}
    for k in steps:
        task = tasks[k]
        reads = tuple(place[s] for s in task.reads)
        if k in first:
            for s in task.writes:
                place[s] = len(origin)
                origin.append(s)
        writes = tuple(place[s] for s in task.writes)
        pairs = tuple((reads[task.reads.index(old)], writes[task.writes.index(new)]) for old, new in task.inplace)
        after = () if k in first else tuple(first[other] for other in task.after)
        first.setdefault(k, len(found))
        found.append(Task(reads, writes, task.workspace, pairs, after))
    return Unrolled(tuple(found), tuple(sizes[s] for s in origin), tuple(place[s] for s in keep), tuple(origin))
