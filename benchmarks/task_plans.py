"""Plans of tasks with a place for everything, executed in one arena of bytes.

A task becomes a function of all bits that it reads: what it writes is noise drawn from their digest. The arena is full
of garbage before. Each execution of a task, updates of weights among them, has to find the same bits as in memory
without reuse, and the judge `dlc.placement.check_steps` has to accept the places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from dlc.placement import Task, check_steps, lifetimes, peak_of, place, unrolled
from dlc.placement.task_text import TaskGraph

GARBAGE = 0xA5


@dataclass(frozen=True)
class Plan:
    """Executions of tasks with a place for everything."""

    graph: TaskGraph
    steps: Sequence[int]
    """Tasks in order of execution."""
    places: Sequence[Mapping[int, int]]
    """Per step the first byte of each storage that it touches."""
    arena: int
    peak: int
    cost: int = 0
    """Of all executions but the first of each task."""
    proof: str = ""


def planned(graph: TaskGraph, steps: Sequence[int], cost: int = 0, proof: str = "") -> Plan:
    """Offsets for a schedule."""
    plain = unrolled(graph.tasks, graph.sizes, steps)
    spans = lifetimes(plain.tasks, plain.sizes, range(len(steps)))
    placement = place(spans.buffers, align=1)
    offsets = [placement.offsets[b] if b >= 0 else 0 for b in spans.of_storage]
    peak = peak_of(plain.tasks, plain.sizes, range(len(steps)))
    return Plan(graph, steps, places_for(graph, steps, plain.tasks, offsets), placement.arena, peak, cost, proof)


def places_for(
    graph: TaskGraph, steps: Sequence[int], tasks: Sequence[Task], offsets: Sequence[int]
) -> list[Mapping[int, int]]:
    """Per step the first bytes of the storages of its task, which are other copies in `tasks`, with these offsets."""
    found: list[Mapping[int, int]] = []
    for k, task in zip(steps, tasks, strict=True):
        own = (*graph.tasks[k].reads, *graph.tasks[k].writes)
        found.append({s: offsets[copy] for s, copy in zip(own, (*task.reads, *task.writes), strict=True)})
    return found


def without_reuse(graph: TaskGraph) -> Plan:
    """Every storage in memory of its own."""
    offsets = [sum(graph.sizes[:s]) for s in range(len(graph.sizes))]
    steps = range(len(graph.tasks))
    total = sum(graph.sizes)
    return Plan(graph, steps, places_for(graph, steps, graph.tasks, offsets), total, total, proof="all apart")


def executed(plan: Plan) -> list[set[bytes]]:
    """Per task, digests of what its executions found: one entry if all found the same bits."""
    graph = plan.graph
    memory = np.full(plan.arena, GARBAGE, np.uint8)
    weights: dict[int, bytes] = {}
    """Content of what takes no bytes in the count."""
    writers = Counter(s for task in graph.tasks for s in task.writes)
    found: list[set[bytes]] = [set() for _ in graph.tasks]
    for k, starts in zip(plan.steps, plan.places, strict=True):
        task = graph.tasks[k]
        h = blake2b(f"task {k}".encode(), digest_size=32)
        # What several tasks write is changed by each, not made anew.
        for s in dict.fromkeys((*task.reads, *(s for s in task.writes if writers[s] > 1))):
            size = graph.sizes[s]
            h.update(memory[starts[s] : starts[s] + size].tobytes() if size else weights.get(s, b"as it began"))
        found[k].add(h.digest())
        for s in task.writes:
            weights[s] = blake2b(h.digest() + f" storage {s}".encode(), digest_size=32).digest()
            noise = np.random.Generator(np.random.PCG64(int.from_bytes(weights[s], "little")))
            memory[starts[s] : starts[s] + graph.sizes[s]] = np.frombuffer(noise.bytes(graph.sizes[s]), np.uint8)
    return found


def checked(plan: Plan) -> str:
    """ "same bits", or what is wrong."""
    graph = plan.graph
    if faults := check_steps(graph.tasks, graph.sizes, plan.steps, plan.places, arena=plan.arena):
        return faults[0]
    want, got = executed(without_reuse(graph)), executed(plan)
    wrong = [graph.names[k] for k, bits in enumerate(got) if bits != want[k]]
    return f"{wrong[0]} found other bits" if wrong else "same bits"
