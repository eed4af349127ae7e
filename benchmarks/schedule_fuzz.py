"""Random kernels, machines and schedules: the loops of every triple, evaluated, against the kernel's own reference.

    python benchmarks/schedule_fuzz.py [--triples 20000] [--seed 0] [--jobs 1] [--json FILE]

Kernels are those of small random models of the forms that ops and their gradients give, lowered, laid out and fused;
every eighth model has open sizes, which are tried at their ends and two between;
machines have vectors of 0 to 64 bytes, 4 to 32 registers, and caches of 1 KiB to 4 MiB. Schedules are those that are
chosen, and where there are others one of these, with numbers drawn at random. Nothing is compiled: loops run in an
evaluator that refuses accesses outside of tensors, reads of what nobody wrote, and results that are not written whole,
and the checker of loops looks at them.
Model N of a run is drawn from the seed `seed + N`, so a failure is repeated by `--seed S --triples 1`. Failures are
made small and printed as a line of a test. The exit code is 1 when a triple fails.
"""

from __future__ import annotations

import argparse
import json
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

from tests.kernel.triples import Failure, Triple, minimised, triples  # noqa: E402

BATCH = 20
"""Seeds per process task."""
SHOWN = 20
"""Failures that are made small; of more, only the number is printed."""


@dataclass
class Outcome:
    """What became of some seeds."""

    forms: Counter[str] = field(default_factory=Counter[str])
    machines: Counter[str] = field(default_factory=Counter[str])
    failures: list[tuple[int, str, str, Triple]] = field(default_factory=list[tuple[int, str, str, Triple]])
    seconds: float = 0.0

    @property
    def triples(self) -> int:
        """How many triples were evaluated."""
        return self.forms.total()

    def add(self, other: Outcome) -> None:
        """Count another outcome in."""
        self.forms += other.forms
        self.machines += other.machines
        self.failures += other.failures
        self.seconds += other.seconds


def evaluate(seeds: range) -> Outcome:
    """Check all triples of these seeds."""
    out, start = Outcome(), time.process_time()
    for seed in seeds:
        for form, triple in triples(seed):
            out.forms[form] += 1
            out.machines[f"{triple.machine.vector_bytes}-byte vectors"] += 1
            if problem := triple.problem():
                out.failures.append((seed, form, problem, triple))
                print(f"\nseed {seed}, {form}: {problem}", file=sys.stderr, flush=True)
    out.seconds = time.process_time() - start
    return out


def outcomes(seed: int, wanted: int, jobs: int) -> Iterator[Outcome]:
    """Outcomes of batches in the order of their seeds, until there are enough triples."""
    starts = (range(s, s + (BATCH if wanted > BATCH else 1)) for s in count(seed, BATCH if wanted > BATCH else 1))
    done = 0
    with ProcessPoolExecutor(jobs) as pool:
        while done < wanted:
            for outcome in pool.map(evaluate, islice(starts, 2 * jobs)):
                done += outcome.triples
                yield outcome


def main() -> int:
    """Run it all, with a line of progress; whether a triple failed decides the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("triples", 20_000), ("seed", 0), ("jobs", 1)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome to FILE")
    chosen = parser.parse_args()
    whole, start = Outcome(), time.perf_counter()
    for outcome in outcomes(chosen.seed, chosen.triples, chosen.jobs):
        whole.add(outcome)
        seconds = time.perf_counter() - start
        text = f"{whole.triples:,} triples, {len(whole.failures)} failures, {seconds:.0f} s"
        print(f"\r{text}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    failures = [Failure(seed, form, problem, minimised(t)) for seed, form, problem, t in whole.failures[:SHOWN]]
    for f in failures:
        print(f"FAILED seed {f.seed}, {f.form}: {f.problem}\n{f.triple}\n")
    for counts in (whole.forms, whole.machines):
        for name, n in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"  {n:7,}  {name}")
    print(f"{whole.triples:,} triples, {len(whole.failures)} failures, {whole.seconds:.0f} s of processor time")
    if chosen.json:
        document = {
            "triples": whole.triples,
            "seed": chosen.seed,
            "seconds": round(whole.seconds, 1),
            "forms": dict(whole.forms),
            "machines": dict(whole.machines),
            "failures": [
                {"seed": seed, "form": form, "problem": problem, "smallest": str(f.triple) if f else None}
                for (seed, form, problem, _), f in zip(
                    whole.failures, [*failures, *[None] * (len(whole.failures) - len(failures))], strict=True
                )
            ],
        }
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if whole.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
