"""Orders and recomputation on graphs of tasks: peaks, proofs and processor time.

    python benchmarks/orders.py orders DIR [--states 20000]
    python benchmarks/orders.py recompute [--states 30000]

`orders` reads the files `*.txt` of a directory (docs/task-graphs.md) and prints one row for each, then one per family:
what comes before the last number in a name. `recompute` prints peaks by budget for the training steps of
`resnet_tasks.py`, with the arena that offsets need; each schedule is run on the judge's memory of tags.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import defaultdict
from pathlib import Path

from resnet_tasks import resnet18, resnet50
from task_plans import planned

from dlc.placement import check_steps, least_memory, order_tasks, peak_of
from dlc.placement.task_text import TaskGraph, parse_tasks

CASES = {
    "ResNet-18, batch 4, fused": (resnet18(), (0, 0.2, 1, 5, 10, 12, 33)),
    "ResNet-18, batch 4, tiles of 288 KiB": (resnet18(gradients="tiles"), (0, 0.2, 5, 15)),
    "ResNet-18, batch 4, whole gradients": (resnet18(gradients="whole"), (0, 1, 2, 5)),
    "ResNet-18, batch 4, batch statistics": (resnet18(batch_statistics=True), (0.1, 0.2, 0.3, 1, 5, 10, 15)),
    "ResNet-18, batch 1, fused": (resnet18(1), (0, 15)),
    "ResNet-18, batch 16, fused": (resnet18(16), (0, 15)),
    "ResNet-50, batch 32, fused": (resnet50(), (0, 1, 5, 10)),
}
"""Network and budgets in percent."""


def orders(directory: Path, states: int) -> None:
    """One row per file, and one per family."""
    families: dict[str, list[tuple[float, float, bool, int]]] = defaultdict(list)
    print(f"{'graph':34} {'natural':>12} {'peak':>12} {'ratio':>6} {'proven':>6} {'states':>7} {'seconds':>8}")
    for path in sorted(directory.glob("*.txt")):
        graph = parse_tasks(path.read_text())
        natural = peak_of(graph.tasks, graph.sizes, range(len(graph.tasks)))
        begun = time.process_time()
        found = order_tasks(graph.tasks, graph.sizes, state_limit=states)
        seconds = time.process_time() - begun
        ratio = natural / max(1, found.peak)
        proven = "yes" if found.proven else "no"
        print(
            f"{path.stem:34} {natural:12,} {found.peak:12,} {ratio:6.3f} {proven:>6} {found.states:7,} {seconds:8.3f}"
        )
        family = re.sub(r"_\d+$", "", path.stem)
        families[family].append((ratio, seconds, found.proven, found.states))
    print()
    for family, rows in families.items():
        ratios, seconds, proven, visited = zip(*rows, strict=True)
        print(
            f"{family:34} {len(rows)} graphs, {sum(proven)} proven, natural / best {sum(ratios) / len(rows):.3f} mean "
            f"{max(ratios):.3f} max, seconds {sum(seconds) / len(rows):.3f} mean {max(seconds):.3f} max, at most "
            f"{max(visited):,} states"
        )


def recompute(states: int) -> None:
    """One table per network."""
    for name, (graph, budgets) in CASES.items():
        total = sum(graph.costs)
        order = order_tasks(graph.tasks, graph.sizes).order
        print(f"\n{name}: {len(graph.tasks)} tasks, {total / 1e9:.2f} GFLOP")
        print(f"{'budget':>8} {'used':>8} {'peak':>14} {'MiB':>10} {'arena':>14} {'proof':>10} {'states':>8} {'s':>7}")
        for budget in budgets:
            begun = time.process_time()
            found = least_memory(
                graph.tasks, graph.sizes, graph.costs, int(total * budget / 100), order=order, state_limit=states
            )
            seconds = time.process_time() - begun
            arena = packed(graph, found.steps)
            proof = "optimal" if found.proven else "not proven"
            peak = f"{found.peak:14,} {found.peak / 2**20:10.4f} {arena:14,}"
            used = 100 * found.cost / total
            print(f"{budget:6g} % {used:6.3f} % {peak} {proof:>10} {found.states:8,} {seconds:7.2f}")


def packed(graph: TaskGraph, steps: tuple[int, ...]) -> int:
    """Bytes of the schedule with offsets, which the judge must find right."""
    plan = planned(graph, steps)
    faults = check_steps(graph.tasks, graph.sizes, steps, plan.places, arena=plan.arena)
    assert not faults, faults[:3]
    return plan.arena


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("orders", "recompute"))
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--states", type=int, default=0)
    given = parser.parse_args()
    if given.what == "recompute":
        recompute(given.states or 30_000)
    elif given.directory is None:
        parser.error("orders needs a directory")
    else:
        orders(given.directory, given.states or 20_000)


if __name__ == "__main__":
    main()
