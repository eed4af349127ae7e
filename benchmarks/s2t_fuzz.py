"""Damaged `.s2t` files: each is refused with a byte and a reason, or found wrong by the verifier, or valid.

    python benchmarks/s2t_fuzz.py [--count 20000] [--seed 0] [--seconds 10] [--door reader]

Doors are the reader and the verifier alone, a file, a directory, Python (`dlc.load`), the registers of the simulated
device, and a C driver that is compiled with sanitizers (`driver-gcc`, `driver-clang`). No illegal program is executed.

File N of a run is drawn from the seed `seed + N`, so a failure is repeated by `--seed S --count 1`. Memory is limited
to 1 GiB of address space and each file to `--seconds`. Valid programs run in the simulator with its own checks on. The
exit code is 1 when a file causes another exception, takes longer, or runs into a mistake that the verifier let pass.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # each thread's buffers would count as memory
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "plugins" / "backend_s2train")]

from tests.backend_s2train.mutated_doors import DOORS, by_driver  # noqa: E402
from tests.backend_s2train.mutations import mutated, outcome  # noqa: E402

MEMORY = 1 << 30
"""Bytes."""


class Hang(Exception):
    """A file takes too long."""


def _hang(_signal: int, _frame: FrameType | None) -> None:
    raise Hang


def main() -> int:
    """Run it all, with a line of progress."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("count", 20_000), ("seed", 0), ("seconds", 10)):
        parser.add_argument(f"--{option}", type=int, default=default)
    drivers = {f"driver-{compiler}": compiler for compiler in ("gcc", "clang")}
    parser.add_argument("--door", choices=("reader", *DOORS, *drivers), default="reader")
    chosen = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="s2t-fuzz-"))
    if chosen.door in drivers:
        numbers = range(chosen.seed, chosen.seed + chosen.count)
        found = by_driver(numbers, place, drivers[chosen.door])
        print(f"{found.total()} files: {', '.join(f'{count} {name}' for name, count in found.most_common())}")
        shutil.rmtree(place)
        return 0
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _hang)
    counts: Counter[str] = Counter()
    slowest, start = (0.0, 0), time.perf_counter()
    failures = 0
    for number in range(chosen.seed, chosen.seed + chosen.count):
        began = time.perf_counter()
        signal.alarm(chosen.seconds)
        try:
            counts[outcome(mutated(number)) if chosen.door == "reader" else DOORS[chosen.door](number, place)] += 1
        except Exception:  # noqa: BLE001  # whatever goes wrong is reported with its file
            failures += 1
            print(f"\nFAILED seed {number}\n{traceback.format_exc(limit=-4)}", flush=True)
        finally:
            signal.alarm(0)
        slowest = max(slowest, (time.perf_counter() - began, number))
        if number % 500 == 0:
            print(f"\r{number - chosen.seed} files, {failures} failures", end="", flush=True)
    shutil.rmtree(place)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    text = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    print(f"\r{chosen.count} files in {time.perf_counter() - start:.0f} s: {text}; {failures} failures")
    print(f"slowest {slowest[0]:.2f} s (seed {slowest[1]}), peak of memory {peak} MiB")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
