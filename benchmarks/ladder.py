"""The S2Train case step by step: what each way to plan a training step needs, placed and executed in one arena.

    python benchmarks/ladder.py                  ResNet-18 for 32 x 32 pixels, four images: every row
    python benchmarks/ladder.py --row fused      one row, see --list
    python benchmarks/ladder.py --batch 1        other numbers of images: 1, 8, 16
    python benchmarks/ladder.py --net alexnet

Counted are feature maps, their gradients and gradients of weights, as `resnet_tasks.py` says. `wanted` is what was
published or computed elsewhere; `peak` the most bytes live at once; `arena` the same with offsets. Every plan is
executed in one arena of that size that is full of garbage before (`task_plans.py`), and has to give all updated weights
the same bits as in memory without reuse.

The first four rows are the modes of the published compiler for its own tensors (`published_plans.py`): nothing shares
memory; its placement on a skyline with all updates last, and with each update at once; its best of random orders.
Whatever applies a gradient at once needs it complete at that moment and nothing else: clipping by a global
norm, and a check for gradients that are not finite, read all gradients before the first update, so with these only the
rows without `at once` remain.

Extra work is that of all tasks. The figures for statistics of the batch count convolutions and matrix products alone,
for which `norms-products-*` are: any element-wise task counts as one FLOP there, as one without cost could not be told
from one that brings in data.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from published_plans import by_update, random_small, skyline
from resnet_tasks import HALF, Conv, Gradients, Step, resnet18
from task_plans import Plan, checked, planned, without_reuse

from dlc.placement import least_memory, order_tasks
from dlc.placement.task_text import TaskGraph, parse_tasks

DATA = Path(__file__).parent.parent / "tests" / "data" / "placement" / "graphs"


# ---- ways to plan ----------------------------------------------------------------------------------------------------


def in_its_order(graph: TaskGraph) -> Plan:
    """First fit for the natural order, in which every update comes at once."""
    return planned(graph, range(len(graph.tasks)))


def in_best_order(graph: TaskGraph) -> Plan:
    """The order with the smallest peak."""
    found = order_tasks(graph.tasks, graph.sizes)
    return planned(graph, found.order, proof="optimal order" if found.proven else "best order found")


def within(percent: float, graph: TaskGraph) -> Plan:
    """The smallest peak with so much extra work."""
    order = order_tasks(graph.tasks, graph.sizes).order
    found = least_memory(graph.tasks, graph.sizes, graph.costs, int(sum(graph.costs) * percent / 100), order=order)
    return planned(graph, found.steps, found.cost, "optimal for the order" if found.proven else "not proven")


FREE = 1e-6
"""Percent: room for as many element-wise tasks of one FLOP as a step can want, and for no product."""


def products_alone(make: Callable[[], TaskGraph]) -> TaskGraph:
    """The same tasks, of which only convolutions, matrix products and their gradients cost what they compute."""
    graph = make()
    free = [name.startswith(("N_", "B_pool", "WU_")) for name in graph.names]
    costs = (min(cost, 1) if light else cost for cost, light in zip(graph.costs, free, strict=True))
    return replace(graph, costs=tuple(costs))


# ---- rows ------------------------------------------------------------------------------------------------------------


def alexnet(batch: int = 4, *, gradients: Gradients = "fused", batch_statistics: bool = False) -> TaskGraph:
    """AlexNet for 32 x 32 pixels as the published compiler has it, masks of pooled layers in bits."""
    assert not batch_statistics, "AlexNet has no batch norms"
    step = Step(gradients=gradients)
    y = step.storage(HALF * batch * 3 * 32 * 32)
    step.add("input", (), (y,), 0)
    layers: list[tuple[Conv, int, tuple[int, ...]]] = []
    """With elements of the input, and what the gradient of a pool reads."""
    channels, side = 3, 32
    for k, (wide, pooled) in enumerate(((96, True), (256, True), (384, False), (384, False), (256, True))):
        elements, pixels = step.sizes[y] // HALF, batch * side * side
        results: tuple[int, ...] = ()
        if pooled:
            sizes = HALF * wide * pixels // 4, wide * pixels // 8, wide * pixels // 4 // 4
            results = tuple(map(step.storage, sizes))
        conv, y = step.forward(Conv(f"c{k}", 3, channels, wide, pixels), y, pool=results)
        layers.append((conv, elements, results[1:]))
        channels, side = wide, side // 2 if pooled else side
    for k, (inner, outer) in enumerate(((channels * side * side, 2048), (2048, 2048), (2048, 10))):
        linear, y = step.forward(Conv(f"l{k}", 1, inner, outer, batch), y)  # the last with the gradient of the loss
        layers.append((linear, batch * inner, ()))
    g = y
    for k, (layer, elements, unpool) in reversed(list(enumerate(layers))):
        if unpool:
            full = step.storage(HALF * layer.elements)
            step.add(f"B_pool{k}", (g, *unpool), (full,), layer.elements)
            g = full
        if k:
            mask = -1 if layers[k - 1][2] else layer.x
            below = step.gradient(layer, g, elements, mask=mask)
            step.update(layer, g)
            g = below
        else:
            step.update(layer, g)
    return step.graph()


@dataclass(frozen=True)
class Row:
    """One way to plan."""

    name: str
    what: str
    graph: Callable[[], TaskGraph]
    plan: Callable[[TaskGraph], Plan]
    wanted: int = 0
    """Bytes; 0 where nobody said."""
    at_once: bool = True
    """Whether weights are updated before all gradients are known."""


def rows(net: str, batch: int) -> Iterator[Row]:
    """What is known of a network."""
    make = {"resnet18": resnet18, "alexnet": alexnet}[net]
    case = (net, batch) == ("resnet18", 4)
    if case:
        own, bit = (partial(_file, name) for name in ("s2t_own_merge.txt", "s2t_maskbit_wholeWG.txt"))
        yield Row("published-origin", "their tensors, nothing shared", own, without_reuse, 39_171_858, False)
        simple, shuffled = partial(skyline, final=True, seed=1538), partial(random_small, seed=7)
        yield Row("published-simple", "skyline, updates last", own, simple, 36_833_280, False)
        yield Row("published-immediate", "skyline, updates at once", own, partial(skyline, final=False), 21_348_352)
        yield Row("published-best", "skyline, best of random orders", own, shuffled, 13_721_600)
        yield Row("first-fit", "their order, first fit", own, in_its_order, 13_656_064)
        yield Row("order", "their tensors, best order", own, in_best_order, 9_527_296)
        yield Row("masks", "masks of one bit, in place", bit, in_best_order, 5_971_968)
    known = _KNOWN.get((net, batch), {})
    final = partial(make, batch, gradients="whole")
    yield Row("final", "whole gradients, updates last", partial(_final, final), in_best_order, at_once=False)
    for name, what, gradients, plan in (
        ("whole", "whole gradients, best order", "whole", in_best_order),
        ("tiles", "gradients in tiles of 288 KiB", "tiles", in_best_order),
        ("fused", "update fused into the weight", "fused", in_best_order),
        ("again-0.2", "fused, 0.2 % of extra work", "fused", partial(within, 0.2)),
        ("again-5", "fused, 5 %", "fused", partial(within, 5.0)),
        ("again-12", "fused, 12 %", "fused", partial(within, 12.0)),
        ("tiles-again-15", "tiles, 15 %", "tiles", partial(within, 15.0)),
    ):
        yield Row(name, what, partial(make, batch, gradients=gradients), plan, known.get(name, 0))
    if net == "resnet18":
        norms = partial(make, batch, batch_statistics=True)
        for percent in (0.2, 0.3, 15.0):
            name = f"norms-again-{percent:g}"
            yield Row(name, f"batch statistics, {percent:g} %", norms, partial(within, percent), known.get(name, 0))
        for percent in (0.0, 0.2, 0.22, 1.0, 5.0, 10.0, 15.0):
            name, what = f"norms-products-{percent:g}", f"the same, {percent:g} % of products"
            yield Row(name, what, partial(products_alone, norms), partial(within, percent + FREE), known.get(name, 0))


_KNOWN: Mapping[tuple[str, int], Mapping[str, int]] = {
    ("resnet18", 4): {
        "whole": 6_021_120,
        "tiles": 4_841_472,
        "fused": 4_546_560,
        "again-0.2": 4_022_272,
        "again-5": 2_973_696,
        "again-12": 2_121_728,
        "tiles-again-15": 2_195_456,
        "norms-again-0.2": 4_613_734,
        "norms-again-15": 2_652_897,
        "norms-products-0": 5_267_456,
        "norms-products-0.2": 4_612_096,
        "norms-products-0.22": 4_612_096,
        "norms-products-1": 4_481_024,
        "norms-products-5": 3_694_592,
        "norms-products-10": 3_170_304,
        "norms-products-15": 2_646_016,
    },
    ("resnet18", 1): {"fused": 1_136_640, "again-12": 530_432},
    ("resnet18", 16): {"fused": 18_186_240, "again-12": 8_486_912},
}


def _file(name: str) -> TaskGraph:
    return parse_tasks((DATA / name).read_text(encoding="utf-8"))


def _final(make: Callable[[], TaskGraph]) -> TaskGraph:
    """Every update after all other tasks: what a norm of all gradients asks for."""
    graph = make()
    others, updates = by_update(graph)
    order, rest = others + updates, tuple(range(len(others)))
    tasks = tuple(replace(graph.tasks[k], after=rest if k in updates else ()) for k in order)
    return TaskGraph(tuple(graph.names[k] for k in order), tasks, graph.sizes, tuple(graph.costs[k] for k in order))


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=("resnet18", "alexnet"), default="resnet18")
    parser.add_argument("--batch", type=int, default=4, metavar="N")
    parser.add_argument("--row", default="", help="only this row")
    parser.add_argument("--list", action="store_true", help="names of the rows")
    given = parser.parse_args()
    chosen = [row for row in rows(given.net, given.batch) if given.row in ("", row.name)]
    if not chosen:
        parser.error(f"there is no row {given.row}: see --list")
    if given.list:
        for row in chosen:
            print(f"{row.name:20} {row.what}")
        return
    print(f"{given.net}, batch {given.batch}")
    head = f"{'row':20} {'':31} {'updates':9} {'wanted':>11} {'peak':>11} {'arena':>11} {'MiB':>8} {'extra':>9}"
    print(f"{head} {'proof':21} {'executed':10} {'seconds':>7}")
    for row in chosen:
        begun = time.process_time()
        graph = row.graph()
        plan = row.plan(graph)
        seconds = time.process_time() - begun
        extra = f"{100 * plan.cost / sum(graph.costs):.3f} %" if graph.costs and any(graph.costs) else "-"
        figures = f"{plan.peak:11,} {plan.arena:11,} {plan.arena / 2**20:8.4f} {extra:>9}"
        updates = "at once" if row.at_once else "last"
        wanted = f"{row.wanted:11,}" if row.wanted else f"{'-':>11}"
        line = f"{row.name:20} {row.what:31} {updates:9} {wanted} {figures} {plan.proof:21}"
        print(f"{line} {checked(plan):10} {seconds:7.2f}", flush=True)


if __name__ == "__main__":
    main()
