"""Build small random files that describe much work: none may take long, or much memory, without ending in exit code 4.

    python benchmarks/cost_fuzz.py --count 5000 --seed 0
    python benchmarks/cost_fuzz.py --count 5000 --seconds 2             a smaller budget: work that charges nothing
    python benchmarks/cost_fuzz.py --seed 17 --count 1 --keep cases     writes the case, and what dlc printed

A case is a directory of files of at most 4 KiB (`cost_cases.py`). Each is built by a fork of a process that has dlc
imported, with limits of processor time and memory, which end it where the budget of the build (docs/configuration.md)
fails to. Reported are builds above 20 s or 2 GiB whose exit code is not 4, exit code 70, and tracebacks. Exit status 0:
there was none.
"""

import argparse
import collections
import gc
import importlib
import os
import pkgutil
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from cost_cases import case

from dlc.cli.frame import run

SECONDS, MEMORY = 20, 2 << 30
"""What a build may take without exit code 4."""
SLACK = 4
"""Seconds from the end of the budget to that of the process: work between two looks at the clock, and start and end."""
PACKAGES = ("dlc", "dlc_frontend_onnx", "dlc_frontend_kernel", "dlc_backend_c")


def build(place: Path, arguments: list[str], seconds: int) -> tuple[int, float, int]:
    """Exit code (negative: a signal), processor seconds and bytes of memory of a build in a directory."""
    child = os.fork()
    if child == 0:
        os.chdir(place)
        output = os.open("printed.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY + (1 << 30), used + MEMORY + (1 << 30)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))
        code = 99
        try:
            code = run(arguments)
        except BaseException as problem:  # noqa: BLE001
            print("Traceback:", type(problem).__name__, problem)
        sys.stdout.flush()
        os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--keep", type=Path, help="directory for cases that fail; with --count 1 for the case")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="the budget of a build")
    parser.add_argument("--time", type=float, default=0, help="seconds after which no case is begun; 0: no end")
    asked = parser.parse_args()
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    os.environ.update({"DLC_CACHE": "off", "NO_COLOR": "1"})
    gc.collect()
    gc.freeze()
    codes: collections.Counter[tuple[str, int]] = collections.Counter()
    bad, most, largest, start, done = 0, 0.0, 0, time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(asked.seed, asked.seed + asked.count):
            if asked.time and time.monotonic() - start > asked.time:
                break
            kind, (files, arguments) = case(seed)
            place = Path(folder) / str(seed)
            place.mkdir()
            (place / "dlc.toml").touch()
            for name, content in files.items():
                (place / name).write_bytes(content)
            code, seconds, memory = build(
                place, [*arguments, "--build-budget", f"seconds={asked.seconds}"], asked.seconds + SLACK + 2
            )
            printed = (place / "printed.txt").read_text(errors="replace")
            codes[kind, code] += 1
            done += 1
            wrong = code not in range(7) or "Traceback" in printed
            wrong = wrong or seconds > asked.seconds + SLACK or (code != 4 and memory > MEMORY)
            if code != 4:
                most, largest = max(most, seconds), max(largest, memory)
            if wrong:
                bad += 1
                first = next((line for line in printed.splitlines() if line.strip()), "")
                print(f"{seed} {kind}: exit {code}, {seconds:.1f} s, {memory >> 20} MiB: {first[:150]}", flush=True)
            if asked.keep and (wrong or asked.count == 1):
                shutil.copytree(place, asked.keep / str(seed), dirs_exist_ok=True)
            shutil.rmtree(place)
    by_kind = collections.defaultdict[str, list[str]](list)
    for (kind, code), number in sorted(codes.items()):
        by_kind[kind].append(f"{number} x {code}")
    for kind, numbers in sorted(by_kind.items()):
        print(f"{kind:10} exit codes: {', '.join(numbers)}")
    print(f"{done} cases, {bad} bad; without exit code 4 at most {most:.1f} s and {largest >> 20} MiB")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main())
