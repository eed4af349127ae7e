"""Recomputation: brute force on small programs, known peaks of real ones, a judge that lets no mutation pass."""

import random
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.placement import Recomputation, Task, least_cost, least_memory, lifetimes, peak_of, place, unrolled
from dlc.placement.check_steps import check_steps
from dlc.placement.repeat_bound import Bound
from dlc.placement.repeat_search import Search
from dlc.placement.repeats import repeats
from dlc.placement.task_text import TaskGraph
from tests.placement.instances import load_tasks

Steps = tuple[int, ...]


@st.composite
def programs(draw: st.DrawFn) -> tuple[TaskGraph, int]:
    """A few tasks that each make one value of values before it; some update a weight that others read."""
    count = draw(st.integers(2, 5))
    tasks: list[Task] = []
    for k in range(count):
        reads = tuple(draw(st.lists(st.integers(0, k - 1), max_size=2, unique=True))) if k else ()
        pairs = ((reads[0], k),) if reads and draw(st.integers(0, 4)) == 0 else ()
        weight = draw(st.sampled_from(["", "", "read", "update"]))
        reads, writes = reads + (count,) * bool(weight), (k,) + (count,) * (weight == "update")
        tasks.append(Task(reads, writes, draw(st.integers(0, 1)), pairs))
    sizes = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    costs = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return TaskGraph((), tuple(tasks), (*sizes, 1), tuple(costs)), draw(st.integers(0, 5))


def schedules(graph: TaskGraph, budget: int, done: int = 0, steps: Steps = (), cost: int = 0) -> Iterator[Steps]:
    """All that execute the tasks in order, and between them tasks that ran before, within a budget."""
    if done == len(graph.tasks):
        yield steps
    else:
        yield from schedules(graph, budget, done + 1, (*steps, done), cost)
    for k in range(done):
        task = graph.tasks[k]
        fits = graph.costs[k] and cost + graph.costs[k] <= budget
        if fits and len(task.writes) == 1 and steps[-1] != k:
            yield from schedules(graph, budget, done, (*steps, k), cost + graph.costs[k])


def faults(graph: TaskGraph, steps: Steps) -> list[str]:
    """What the judge says of a schedule in memory without reuse, apart from in-place."""
    return Packed.of(graph, steps).faults()


class Packed:
    """A schedule with a place for everything."""

    def __init__(self, graph: TaskGraph, steps: Steps, places: list[dict[int, int]], work: dict[int, int], arena: int):
        self.graph, self.steps, self.places, self.work, self.arena = graph, steps, places, work, arena

    @classmethod
    def of(cls, graph: TaskGraph, steps: Steps) -> "Packed":
        plain = unrolled(graph.tasks, graph.sizes, steps)
        spans = lifetimes(plain.tasks, plain.sizes, range(len(steps)))
        placement = place(spans.buffers, align=1)
        places: list[dict[int, int]] = []
        for k, task in zip(steps, plain.tasks, strict=True):
            mine = zip((*graph.tasks[k].reads, *graph.tasks[k].writes), (*task.reads, *task.writes), strict=True)
            places.append({s: placement.offsets[spans.of_storage[copy]] for s, copy in mine})
        work = {n: placement.offsets[b] for n, b in enumerate(spans.of_workspace) if b >= 0}
        return cls(graph, steps, places, work, placement.arena)

    def faults(self) -> list[str]:
        return check_steps(
            self.graph.tasks, self.graph.sizes, self.steps, self.places, arena=self.arena, workspaces=self.work
        )


@settings(deadline=None, max_examples=20)
@given(programs())
def test_the_least_peak_and_the_least_cost_of_all_schedules(case: tuple[TaskGraph, int]) -> None:
    graph, budget = case
    right = [steps for steps in schedules(graph, budget) if not faults(graph, steps)]
    peaks = {steps: peak(graph, steps) for steps in right}
    found = least_memory(graph.tasks, graph.sizes, graph.costs, budget)
    assert found.steps in peaks
    assert (found.peak, found.proven) == (min(peaks.values()), True)
    cheapest = min(cost(graph, steps) for steps in right if peaks[steps] <= found.peak)
    again = least_cost(graph.tasks, graph.sizes, graph.costs, found.peak)
    assert again is not None
    assert (again.cost, again.proven) == (cheapest, True)
    assert least_cost(graph.tasks, graph.sizes, graph.costs, 0) is None
    # A search in bands finds something just where there is something, and refutes what there is not.
    bound = Bound(repeats(graph.tasks, graph.sizes, graph.costs, range(len(graph.tasks))))
    for memory in range(found.peak - 1, found.peak + 1):
        banded = Search(bound, memory).everything(budget, 1000, band=2)
        if memory < found.peak:
            assert (banded.steps, banded.complete) == (None, True)
        else:
            assert banded.steps in peaks and peaks[banded.steps] <= memory and banded.cost <= budget


def peak(graph: TaskGraph, steps: Steps) -> int:
    plain = unrolled(graph.tasks, graph.sizes, steps)
    return peak_of(plain.tasks, plain.sizes, range(len(steps)))


def cost(graph: TaskGraph, steps: Sequence[int]) -> int:
    return sum(graph.costs[k] for k in steps) - sum(graph.costs)


@cache
def planned(name: str, percent: float) -> Recomputation:
    graph = load_tasks(name)
    return least_memory(graph.tasks, graph.sizes, graph.costs, int(sum(graph.costs) * percent / 100))


@pytest.mark.parametrize(
    ("name", "percent", "most"),
    [
        ("resnet18_fused", 0, 4_546_560),
        ("resnet18_fused", 0.2, 4_022_272),
        ("resnet18_fused", 5, 2_973_696),
        ("resnet18_fused", 12, 2_121_728),
        ("resnet18_batch_statistics", 0.2, 4_743_168),
    ],
)
def test_peaks_of_training_steps(name: str, percent: float, most: int) -> None:
    """What a constraint solver found for the same networks (see benchmarks/resnet_tasks.py)."""
    graph, found = load_tasks(name), planned(name, percent)
    assert found.peak <= most
    assert found.proven
    assert cost(graph, found.steps) == found.cost <= sum(graph.costs) * percent / 100
    assert peak(graph, found.steps) == found.peak


def test_a_schedule_is_placed_without_a_gap_and_judged_to_be_right() -> None:
    packed = Packed.of(load_tasks("resnet18_fused"), planned("resnet18_fused", 12).steps)
    assert packed.arena == 2_121_728
    assert packed.faults() == []


def mutated(packed: Packed, draw: random.Random) -> Packed | None:
    """One thing that is wrong; None where the change drawn leaves the schedule right."""
    graph, steps, places = packed.graph, packed.steps, [dict(place) for place in packed.places]
    kind, at = draw.choice(("shift", "swap", "drop", "late")), draw.randrange(len(steps))
    if kind == "shift":  # what one step reads is elsewhere
        read = [s for s in graph.tasks[steps[at]].reads if graph.sizes[s]]
        if not read:
            return None
        places[at][draw.choice(read)] += draw.choice((-8, 8, 65536))
        return Packed(graph, steps, places, packed.work, packed.arena)
    if kind == "swap":  # a step runs before one whose result it reads
        if not at or not set(graph.tasks[steps[at]].reads) & set(graph.tasks[steps[at - 1]].writes):
            return None
        order = [*range(at - 1), at, at - 1, *range(at + 1, len(steps))]
    elif kind == "drop":
        order = [n for n in range(len(steps)) if n != at]
    else:  # a task runs once more in the end, when its weight has been updated
        if len(graph.tasks[steps[at]].reads) < 2 or steps[at] == len(graph.tasks) - 1:
            return None
        order = [*range(len(steps)), at]
    return Packed(graph, tuple(steps[n] for n in order), [places[n] for n in order], packed.work, packed.arena)


@pytest.mark.parametrize("seed", range(3))
def test_every_mutation_is_rejected(seed: int) -> None:
    draw = random.Random(seed)
    packed = Packed.of(load_tasks("resnet18_fused"), planned("resnet18_fused", 12).steps)
    wrong = [made for _ in range(60) if (made := mutated(packed, draw))]
    assert len(wrong) > 20
    for made in wrong:
        assert made.faults()


def test_an_update_waits_for_the_last_execution_that_reads_the_old_weight() -> None:
    """Task 1 makes a value of a weight that task 3 updates; the value is read once more after that."""
    tasks = [Task((), (0,)), Task((0, 4), (1,)), Task((1,), (2,)), Task((4,), (4,)), Task((1, 2), (3,))]
    sizes, costs = [1, 8, 8, 1, 0], [0, 1, 1, 0, 0]
    found = least_memory(tasks, sizes, costs, 100)
    assert (found.steps, found.cost) == ((0, 1, 2, 3, 4), 0)
    graph = TaskGraph((), tuple(tasks), tuple(sizes), tuple(costs))
    assert faults(graph, (0, 1, 2, 1, 3, 4)) == []
    assert any("version 0 of storage 4" in fault for fault in faults(graph, (0, 1, 2, 3, 1, 4)))


def test_in_place_tasks_and_sources_never_run_again() -> None:
    tasks = [
        Task((), (0,)),
        Task((0,), (1,), inplace=((0, 1),)),
        Task((1,), (2,)),
        Task((2,), (3,)),
        Task((1, 3), (4,)),
    ]
    for costs in ([1, 9, 9, 9, 9], [0, 9, 9, 9, 9]):
        found = least_memory(tasks, [4, 4, 1, 8, 1], costs, 1000)
        assert found.steps == (0, 1, 2, 3, 4)


def test_malformed_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="cost"):
        least_memory([Task((), (0,))], [1], [], 0)
    with pytest.raises(ValueError, match="cost"):
        least_cost([Task((), (0,))], [1], [-1], 5)
    with pytest.raises(ValueError, match="storage"):
        least_memory([Task((3,), (0,))], [1], [1], 0)


def test_work_is_limited_by_count_and_what_is_found_is_right() -> None:
    graph = load_tasks("resnet18_batch_statistics")
    found = least_memory(graph.tasks, graph.sizes, graph.costs, sum(graph.costs) // 10, state_limit=100)
    assert found == least_memory(graph.tasks, graph.sizes, graph.costs, sum(graph.costs) // 10, state_limit=100)
    assert peak(graph, found.steps) == found.peak < peak(graph, tuple(range(len(graph.tasks))))
    assert not found.proven
