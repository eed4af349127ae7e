"""Choose the order of tasks that needs least memory, and say whether it is proven to be the least.

The method follows Serenity (Ahn et al., MLSys 2020), a search over sets of done tasks, with
safe moves and lower bounds kept per set; quick orders give the first upper bound.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dlc.placement.exact_order import Exact
from dlc.placement.lifetimes import peak_in
from dlc.placement.quick_orders import beam, depth_first, greedy, natural
from dlc.placement.segments import Segment, segments
from dlc.placement.sources import without_sources
from dlc.placement.tasks import Network, OrderResult, Task, network
from dlc.placement.walk import Walk

WORK_PER_STATE = 32  # effects one state may cost on average; keeps wide graphs from taking longer than deep ones
BEAM_WIDTH = 64  # narrower for long segments, so that the beam reaches their end
WORK_PER_BEAM_STEP = 16  # effects asked for per state kept and task run, measured on layered graphs


@dataclass(frozen=True)
class Limits:
    """What the searches may still spend; counts, never seconds, so that results repeat."""

    states: int
    work: int


@dataclass(frozen=True)
class Found:
    """The best order of one segment, and a proven lower bound on its peak."""

    order: list[int]
    peak: int
    bound: int
    spent: Limits


def order_tasks(
    tasks: Sequence[Task],
    sizes: Sequence[int],
    *,
    keep: Collection[int] = (),
    policy: Literal["depth-first", "memory"] = "memory",
    state_limit: int = 20000,
) -> OrderResult:
    """An order of tasks with a small peak; `sizes` are bytes per storage, `keep` are storages live at the end.

    `memory` never returns a higher peak than the natural order; `depth-first` follows
    branches to their end and searches nothing. Raises ValueError for malformed tasks.
    """
    whole = segments(network(tasks, sizes, keep))
    contracted = without_sources(tasks, sizes, keep)
    net = network(contracted.tasks, sizes, keep)
    pieces = segments(net)
    bound = max((piece.bound for piece in pieces), default=net.base)
    if policy == "depth-first":
        order = [task for piece in pieces for task in depth_first(Walk(net, piece))]
        peak = peak_in(net, order)
        return OrderResult(contracted.expanded(order), peak, peak == bound, 0)
    found = _least(net, pieces, bound, Limits(state_limit, WORK_PER_STATE * state_limit))
    least = max((piece.bound for piece in whole), default=0)
    proven = found.proven and (contracted.exact or found.peak <= least)
    return replace(found, order=contracted.expanded(found.order), proven=proven)


def _least(net: Network, pieces: Sequence[Segment], bound: int, limits: Limits) -> OrderResult:
    """Search the pieces in turn, worst first: a piece below the proven bound of another needs no search."""
    walks = [Walk(net, piece) for piece in pieces]
    quick = [_quick(walk) for walk in walks]
    orders = [order for order, _ in quick]
    states = 0
    peak = net.base
    for index in sorted(range(len(pieces)), key=lambda i: (-quick[i][1], i)):
        found = _search(walks[index], *quick[index], max(bound, pieces[index].bound), limits)
        orders[index] = found.order
        peak = max(peak, found.peak)
        bound = max(bound, found.bound)
        states += found.spent.states
        limits = Limits(limits.states - found.spent.states, limits.work - found.spent.work)
    order = tuple(task for piece in orders for task in piece)
    return OrderResult(order, peak, peak <= bound, states)


def _quick(walk: Walk) -> tuple[list[int], int]:
    """The better of the natural and the greedy order of a segment, with its peak."""
    orders = (natural(walk), greedy(walk))
    peaks = [walk.peak(order) for order in orders]
    best = min(range(len(orders)), key=peaks.__getitem__)
    return orders[best], peaks[best]


def _search(walk: Walk, order: list[int], peak: int, goal: int, limits: Limits) -> Found:
    """Lower the peak of a segment towards `goal`, below which it no longer matters.

    A short search at the goal settles most training graphs; a beam comes near the least peak
    of the others; what remains goes into refuting one byte less than the best, the only
    refutation that proves it.
    """
    begun = walk.evaluations
    exact = Exact(walk)
    proven = goal
    limit, share, beamed = goal, 8, False
    while proven < peak:
        states_left = limits.states - exact.states
        work_left = limits.work - (walk.evaluations - begun)
        found, need = exact.search(limit, states_left // share, work_left // share)
        if found is None and need is None:
            if beamed:
                break
            beamed = True
            steps = WORK_PER_BEAM_STEP * len(order)
            found = beam(walk, max(2, min(BEAM_WIDTH, work_left // 4 // steps)), peak, work_left // 4)
        if found is not None:
            order, peak = found, walk.peak(found)
        if need is not None:
            proven = max(proven, need)
        limit, share = peak - 1, 1
    return Found(order, peak, min(proven, peak), Limits(exact.states, walk.evaluations - begun))
