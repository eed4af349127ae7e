"""The planning modes of the published compiler for S2Train, for its own tensors: what `ladder.py` compares with.

All place on a skyline: a tensor lies on the highest ground of its lifetime, and holes below are never filled. The order
of the tensors decides. Theirs comes from Python sets and from shuffles without a seed, so their figures differ from run
to run; here a seed stands for the run that was published.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from task_plans import Plan, places_for

from dlc.placement import Buffer, peak_of
from dlc.placement.task_text import TaskGraph

EXCHANGED = 4
"""Pairs of tensors of one kind in another order than that of their first writers."""
SHORT = 3
"""Steps up to which a tensor counts as short-lived."""
SHUFFLES = 10
_KINDS = {"F": 0, "W": 1, "B": 2}
"""Of the task that writes a tensor: feature maps, gradients of weights, gradients of feature maps."""


def skyline(graph: TaskGraph, *, final: bool, seed: int | None = None) -> Plan:
    """Kind after kind, `simple-reuse`; `final` has all updates last. A seed exchanges some tensors within kinds."""
    steps = _steps(graph, final)
    buffers, kinds = _alone(graph, steps), _kinds(graph)
    order = sorted(range(len(buffers)), key=lambda s: (kinds[s], s))
    if seed is not None:
        random = Random(seed)
        for _ in range(EXCHANGED):
            i = random.randrange(len(order))
            j = random.choice([j for j, s in enumerate(order) if kinds[s] == kinds[order[i]]])
            order[i], order[j] = order[j], order[i]
    return _placed(graph, steps, *_on_skyline(buffers, order))


def random_small(graph: TaskGraph, *, seed: int) -> Plan:
    """Long-lived tensors, then the others in ten random orders, of which the best stays: `random-small`."""
    steps = _steps(graph, final=False)
    buffers, kinds = _alone(graph, steps), _kinds(graph)
    short = [s for s, b in enumerate(buffers) if b.death - b.birth <= SHORT or kinds[s] == _KINDS["B"]]
    long = sorted(set(range(len(buffers))) - set(short), key=lambda s: (kinds[s], s))
    random = Random(seed)
    tries: list[tuple[int, list[int]]] = []
    for _ in range(SHUFFLES):
        random.shuffle(short)
        tries.append(_on_skyline(buffers, [*long, *short]))
    return _placed(graph, steps, *min(tries))


def _alone(graph: TaskGraph, steps: Sequence[int]) -> Sequence[Buffer]:
    """Per storage, from the first task that touches it to the last, nothing in place of anything."""
    touched: dict[int, list[int]] = {}
    for at, k in enumerate(steps):
        for s in (*graph.tasks[k].reads, *graph.tasks[k].writes):
            touched.setdefault(s, []).append(at)
    return [Buffer(s, size, min(touched[s]), max(touched[s]) + 1) for s, size in enumerate(graph.sizes)]


def _steps(graph: TaskGraph, final: bool) -> list[int]:
    return [k for part in by_update(graph) for k in part] if final else list(range(len(graph.tasks)))


def by_update(graph: TaskGraph) -> tuple[list[int], list[int]]:
    """(the other tasks, those that update weights)."""
    tasks = range(len(graph.tasks))
    updates = [k for k in tasks if graph.names[k].startswith("WU")]
    return [k for k in tasks if k not in updates], updates


def _kinds(graph: TaskGraph) -> list[int]:
    writer = {s: graph.names[k] for k in reversed(range(len(graph.tasks))) for s in graph.tasks[k].writes}
    return [_KINDS[writer[s][0]] for s in range(len(graph.sizes))]


def _on_skyline(buffers: Sequence[Buffer], order: Sequence[int]) -> tuple[int, list[int]]:
    """The arena, and the offset of each buffer."""
    ground = [0] * max(buffer.death for buffer in buffers)
    offsets = [0] * len(buffers)
    for s in order:
        lived = slice(buffers[s].birth, buffers[s].death)
        offsets[s] = max(ground[lived])
        ground[lived] = [offsets[s] + buffers[s].size] * (lived.stop - lived.start)
    return max(ground), offsets


def _placed(graph: TaskGraph, steps: Sequence[int], arena: int, offsets: Sequence[int]) -> Plan:
    places = places_for(graph, steps, [graph.tasks[k] for k in steps], offsets)
    return Plan(graph, steps, places, arena, peak_of(graph.tasks, graph.sizes, steps))
