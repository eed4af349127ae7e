"""Random graphs full of aliasing: programs whose values share memory against programs where none does, bit for bit.

    python benchmarks/random_graphs.py [--graphs 1000] [--seed 0] [--batch 50] [--cc gcc] [--copies]

See tests/placement/aliased_graphs.py, which draws, plans and compiles them: views, results in place, concatenations
that hold their operands, several outputs, outputs over inputs, several memories, any order of steps, strategies,
alignments. Working memory is filled with garbage before every call, and a judge runs each plan on tags of elements. A
line tells each graph that fails; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from dlc.graph import Copy
from dlc.verify.plan_check import check_plan
from tests.placement.aliased_graphs import failures, planned, with_copies


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=50, help="graphs that are compiled as one file")
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--copies", action="store_true", help="small memories alone, with copies between them")
    arguments = parser.parse_args()
    drawn = with_copies if arguments.copies else planned
    wrong, totals = 0, Counter[str]()
    for first in range(arguments.seed, arguments.seed + arguments.graphs, arguments.batch):
        pairs = [drawn(s) for s in range(first, min(first + arguments.batch, arguments.seed + arguments.graphs))]
        judged = {pair.seed: said for pair in pairs if (said := check_plan(pair.shared))}
        with tempfile.TemporaryDirectory() as place:
            differ = failures(pairs, Path(place), (arguments.cc, "-O0"))
        for seed in sorted({*judged, *differ}):
            wrong += 1
            print(
                f"graph {seed}: {'bits differ' if seed in differ else ''} {'; '.join(judged.get(seed, []))}", flush=True
            )
        for pair in pairs:
            totals["graphs"] += 1
            totals["steps"] += len(pair.shared.steps)
            totals["bytes that share"] += pair.shared.memory
            totals["bytes that do not"] += pair.plain.memory
            totals["in several memories"] += len(pair.shared.own_regions) > 1
            totals["copies between them"] += sum(isinstance(step, Copy) for step in pair.shared.steps)
            totals["with consumed inputs"] += bool(pair.shared.consumed)
            totals["values that concatenations hold"] += len(pair.shared.beside)
            totals["with outputs over inputs"] += bool(pair.shared.graph.aliases)
    print(f"{', '.join(f'{name} {count:,}' for name, count in totals.items())}; {wrong} wrong")
    print(f"{time.process_time():.0f} s of the processor, compilers apart")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
