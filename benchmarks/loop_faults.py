"""Faults seeded into the loops of random kernels: how many of them the checker of loops rejects.

    python benchmarks/loop_faults.py [--faults 10000] [--seed 0] [--jobs 1] [--json FILE]

Kernels, machines and schedules are those of benchmarks/schedule_fuzz.py. A fault is a change of one statement: a bound,
a subscript or a condition that is off by one, a missing tail, neighbours in the wrong order, blocks that overlap, a
wrong parallel mark, a term that is left out or doubled, another operand. A change may mean nothing, as the order of two
statements that do not depend on each other: an oracle of another kind finds these, by running both programs in double
precision on whole numbers, and they are not counted. Kernels of more than 20,000 points and those with open sizes are
left out. The exit code is 1 when a fault that changes something is accepted.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "plugins" / p) for p in ("backend_c",))]

from dlc.kernel.loops.check import check_loops  # noqa: E402
from tests.kernel.loop_faults import KINDS, Oracle, on_one_thread, seeded  # noqa: E402
from tests.kernel.triples import triples  # noqa: E402

BATCH = 4
"""Seeds per process task."""
MOST_POINTS = 20_000
"""Kernels with more points are left out: the oracle runs each fault twice, often one iteration after another."""


@dataclass
class Outcome:
    """What became of the faults of some seeds.

    Attributes:
        rejected: Faults that change something and were found, by kind.
        missed: Those that were not.
        equivalent: Changes that mean nothing, by kind.
        refused: Among these, those that the checker rejects.
        accepted: What was missed, as text.
    """

    rejected: Counter[str] = field(default_factory=Counter[str])
    missed: Counter[str] = field(default_factory=Counter[str])
    equivalent: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    accepted: list[str] = field(default_factory=list[str])

    @property
    def faults(self) -> int:
        """Faults that change something."""
        return self.rejected.total() + self.missed.total()

    def add(self, other: Outcome) -> None:
        """Count another outcome in."""
        self.rejected += other.rejected
        self.missed += other.missed
        self.equivalent += other.equivalent
        self.refused += other.refused
        self.accepted += other.accepted


def tried(seeds: range) -> Outcome:
    """One fault of every kind in the loops of every triple of these seeds."""
    out = Outcome()
    for seed in seeds:
        rng = random.Random(f"faults {seed}")
        for form, triple in triples(seed):
            if triple.is_open or sum(n.points for n in triple.kernel.nests) > MOST_POINTS:
                continue
            program = on_one_thread(triple)
            oracle = Oracle(triple.kernel, program)
            for kind in KINDS:
                fault = seeded(program, rng, kind)
                if fault is None:
                    continue
                found, changes = check_loops(triple.kernel, fault.program, seed), oracle.changes(fault)
                if not changes:
                    out.equivalent[kind] += 1
                    out.refused[kind] += bool(found)
                elif found:
                    out.rejected[kind] += 1
                else:
                    out.missed[kind] += 1
                    out.accepted.append(f"seed {seed}, {form}: {kind} at {fault.where}\n{triple}")
                    print(f"\nMISSED {out.accepted[-1]}", file=sys.stderr, flush=True)
    return out


def outcomes(seed: int, wanted: int, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of their seeds, until there are enough faults."""
    starts = (range(s, s + BATCH) for s in count(seed, BATCH))
    done = 0
    with ProcessPoolExecutor(jobs) as pool:
        while done < wanted:
            for outcome in pool.map(tried, islice(starts, 2 * jobs)):
                done += outcome.faults
                yield outcome


def main() -> int:
    """Run it all, with a line of progress; whether a fault was missed decides the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("faults", 10_000), ("seed", 0), ("jobs", 1)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome to FILE")
    chosen = parser.parse_args()
    whole, start = Outcome(), time.perf_counter()
    for outcome in outcomes(chosen.seed, chosen.faults, chosen.jobs):
        whole.add(outcome)
        seconds = time.perf_counter() - start
        text = f"{whole.faults:,} faults, {whole.missed.total()} missed, {seconds:.0f} s"
        print(f"\r{text}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(" rejected  missed  equivalent  of these rejected")
    for kind in KINDS:
        counts = (whole.rejected[kind], whole.missed[kind], whole.equivalent[kind], whole.refused[kind])
        print("{:9,}{:8,}{:12,}{:19,}  {}".format(*counts, kind))
    print(f"{whole.rejected.total():,} of {whole.faults:,} faults rejected, {whole.equivalent.total():,} equivalent")
    if chosen.json:
        document = {
            "faults": whole.faults,
            "seed": chosen.seed,
            "rejected": dict(whole.rejected),
            "missed": dict(whole.missed),
            "equivalent": dict(whole.equivalent),
            "equivalent_rejected": dict(whole.refused),
            "accepted": whole.accepted,
        }
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if whole.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
