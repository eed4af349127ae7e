"""Random kernels of the kernel language: dlc against brute force, forward and backward, interpreted and compiled.

    python benchmarks/kernel_fuzz.py [--kernels 10000] [--compile 2000] [--functions 5000] [--seed 0] [--second 500]
        [--jobs 2]

Kernel N of a run is drawn from the seed `seed + N`, so a failure is repeated by `--seed S --kernels 1`. Every kernel is
interpreted forward; those in float are differentiated, and held against the complex step, central differences, and the
scatter form; some are differentiated twice. The first `--compile` of them become C, about a hundred kernels and their
gradients per library, by gcc and clang in turn, without warnings. `--functions` kernels of scalar functions, with
constants everywhere, become C for one of the four machines of `tests/machines.py` each, with their gradients, and are
held against the reference evaluator. The exit code is 1 when a kernel fails.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), *(str(ROOT / "plugins" / p) for p in ("backend_c", "frontend_kernel"))]

from dlc_backend_c.target import GENERIC, target_for  # noqa: E402

from tests.frontend_kernel.compiled import check_compiled  # noqa: E402
from tests.frontend_kernel.features import features  # noqa: E402
from tests.frontend_kernel.properties import (  # noqa: E402
    check_forward,
    check_gradient,
    check_scatter,
    check_second_order,
)
from tests.frontend_kernel.random_cases import random_case  # noqa: E402
from tests.frontend_kernel.random_functions import check_functions, random_text  # noqa: E402
from tests.frontend_kernel.small_language import Case  # noqa: E402
from tests.machines import MACHINES, target_of  # noqa: E402

BATCH = 50
"""Kernels per process task and per library: with their gradients about a hundred functions."""


@dataclass
class Outcome:
    """What became of some kernels."""

    checks: Counter[str] = field(default_factory=Counter[str])
    seen: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        """Count another outcome in."""
        self.checks += other.checks
        self.seen += other.seen
        self.failures += other.failures
        self.seconds += other.seconds


def drawn(seed: int) -> Case:
    """The kernel of a seed: one in six computes with integers."""
    rng = random.Random(seed)
    return random_case(rng, dtype="int" if seed % 6 == 5 else "float")


def interpret(seeds: Sequence[int], second: int) -> Outcome:
    """Check kernels through the reference interpreter; those with seeds below `second` to second order."""
    out, start = Outcome(), time.perf_counter()
    for seed in seeds:
        case = drawn(seed)
        out.seen.update(features(case))
        checks = [check_forward]
        if case.grad_to:
            checks += [check_gradient, check_scatter, *([check_second_order] if seed < second else [])]
        for check in checks:
            _checked(out, seed, case, check.__name__, lambda c=check, k=case, s=seed: c(k, s))
    out.seconds = time.perf_counter() - start
    return out


def compile_batch(seeds: Sequence[int], number: int) -> Outcome:
    """Check kernels as C functions of one library; after a failure each by itself, to find all that fail."""
    out, start = Outcome(), time.perf_counter()
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    cc = compilers[number % len(compilers)]
    target = (target_for("native"), GENERIC)[number // len(compilers) % 2]

    def build(chosen: Sequence[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_compiled([drawn(s) for s in chosen], chosen, target, Path(folder), cc)

    try:
        build(seeds)
        out.checks[f"compiled by {cc}"] += len(seeds)
    except Exception:  # noqa: BLE001  # whatever goes wrong is reported with its kernel
        for seed in seeds:
            _checked(out, seed, drawn(seed), f"compiled by {cc}", lambda s=seed: build([s]))
    out.seconds = time.perf_counter() - start
    return out


def functions(seeds: Sequence[int], number: int) -> Outcome:
    """Check kernels of scalar functions, in one library for one of the machines; after a failure each by itself."""
    out, start = Outcome(), time.perf_counter()
    machine = list(MACHINES)[number % len(MACHINES)]
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    cc = compilers[number // len(MACHINES) % len(compilers)]

    def build(chosen: Sequence[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check_functions(chosen, target_of(MACHINES[machine]), Path(folder), cc, ("-O0", "-w"))

    try:
        build(seeds)
        out.checks[f"functions on {machine}"] += len(seeds)
    except Exception:  # noqa: BLE001  # whatever goes wrong is reported with its kernel
        for seed in seeds:
            _checked(out, seed, random_text(seed), f"functions on {machine}", lambda s=seed: build([s]))
    out.seconds = time.perf_counter() - start
    return out


def _checked(out: Outcome, seed: int, case: Case | str, name: str, check: Callable[[], None]) -> None:
    """Run one check and count it; a failure is kept with its seed and its kernel."""
    text = case if isinstance(case, str) else case.text
    try:
        check()
        out.checks[name.removeprefix("check_")] += 1
    except subprocess.CalledProcessError as e:
        out.failures.append(f"seed {seed}: {name}: the C compiler refuses\n{text}\n{e}")
    except Exception:  # noqa: BLE001  # whatever goes wrong is reported with its kernel
        out.failures.append(f"seed {seed}: {name}\n{text}\n{traceback.format_exc(limit=-3)}")


def batches(first: int, count: int) -> list[range]:
    """The seeds of a run, `BATCH` at a time."""
    return [range(s, min(s + BATCH, first + count)) for s in range(first, first + count, BATCH)]


def main() -> int:
    """Run it all, with a line of progress; the number of failures decides the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options = {"kernels": 10_000, "compile": 2_000, "functions": 5_000, "seed": 0, "second": 500, "jobs": 2}
    for option, default in options.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    chosen = parser.parse_args()
    whole, start = Outcome(), time.perf_counter()
    with ProcessPoolExecutor(chosen.jobs) as pool:
        compiled = batches(chosen.seed, min(chosen.compile, chosen.kernels))
        tasks = [pool.submit(compile_batch, b, n) for n, b in enumerate(compiled)]  # the longest first
        texts = batches(chosen.seed, chosen.functions)
        tasks += [pool.submit(functions, b, n) for n, b in enumerate(texts)]
        tasks += [pool.submit(interpret, b, chosen.seed + chosen.second) for b in batches(chosen.seed, chosen.kernels)]
        for n, task in enumerate(as_completed(tasks), 1):
            outcome = task.result()
            whole.add(outcome)
            for failure in outcome.failures:
                print(f"\nFAILED {failure}", flush=True)
            seconds = time.perf_counter() - start
            print(f"\r{n}/{len(tasks)} batches, {len(whole.failures)} failures, {seconds:.0f} s", end="", flush=True)
    print("\n\nchecks that passed")
    _table(whole.checks)
    print("\nkernels with")
    _table(whole.seen)
    print(f"\n{len(whole.failures)} failures in {time.perf_counter() - start:.0f} s ({whole.seconds:.0f} s of work)")
    return 1 if whole.failures else 0


def _table(counts: Counter[str]) -> None:
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"  {count:7,}  {name}")


if __name__ == "__main__":
    sys.exit(main())
