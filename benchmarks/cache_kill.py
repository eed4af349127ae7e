"""Kill builders at random moments while they share one cache: no wrong bytes, no crash afterwards.

    python benchmarks/cache_kill.py --rounds 200 --processes 4

Each round starts worker processes that look up, check and save deterministic results of many sizes; after a random time
they get SIGKILL. Then the cache is opened once more: every lookup must give the right bytes or a miss, saving must
work, and no entry may be damaged. Exit status 0 means that every round was good.
"""

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dlc.cache import Cache, Key, LocalStore

KEYS = 400
SIZES = (0, 100, 5_000, 40_000, 300_000)  # bytes; rows of the database and files


def key(number: int) -> Key:
    return Key.of(step=f"work{{n={number}}}", code="benchmark", subject=str(number % 7))


def payload(number: int) -> bytes:
    """The one right result of a step."""
    size = SIZES[number % len(SIZES)]
    seed = hashlib.sha256(str(number).encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def step(cache: Cache, number: int) -> None:
    """Look up one result or make it; ValueError if the cache gives a wrong one."""
    record = cache.lookup(key(number))
    if record is not None:
        found = cache.read(record.output("out"))
        if found is not None and found != payload(number):
            raise ValueError(f"wrong bytes for key {number}")
        if found is not None:
            return
    cache.save(key(number), {"out": payload(number)}, {"ms": "1"})


def work(directory: Path, seed: int, seconds: float) -> None:
    """Share the cache until time is up, opening and closing it now and then."""
    choose, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        with Cache(LocalStore(directory, touch_after=0.0), "rw", size_limit=8 << 20) as cache:
            for _ in range(choose.randrange(5, 60)):
                step(cache, choose.randrange(KEYS))
            if warnings := [w for w in cache.warnings if w.code != "cache-locked"]:
                raise ValueError(str(warnings))


def start(directory: Path, seed: int, seconds: float) -> int:
    """A worker process; its id. Forked, because an interpreter's start would outlast the round."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(directory, seed, seconds)
            status = 0
        except Exception:  # noqa: BLE001  # the child must end here, whatever it was, and tell why
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def run_round(directory: Path, choose: random.Random, processes: int) -> list[str]:
    """One round; what went wrong in it."""
    seconds = choose.uniform(0.02, 0.25)
    pids = [start(directory, choose.randrange(1 << 30), seconds + 0.1) for _ in range(processes)]
    time.sleep(seconds)
    victims = set(choose.sample(pids, choose.randrange(1, processes + 1)))
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    faults: list[str] = []
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        if status != 0 and pid not in victims:
            faults.append(f"a worker that was left alone ended with status {status}")
    return faults


def examine(directory: Path) -> tuple[list[str], int]:
    """Check all there is, then use it; what is wrong, and the number of entries."""
    cache = Cache(LocalStore(directory), "rw")
    found = cache.verify()
    faults = [f"damaged entry {digest}" for digest in found.bad]
    try:
        for number in range(0, KEYS, 7):
            step(cache, number)
            step(cache, number)
    except ValueError as failure:
        faults.append(str(failure))
    cache.close()
    faults += [str(warning) for warning in cache.warnings]
    return faults, found.checked


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choose, faults, checked = random.Random(options.seed), list[str](), 0
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "cache"
        for number in range(options.rounds):
            faults += run_round(directory, choose, options.processes)
            warnings, entries = examine(directory)
            faults += warnings
            checked += entries
            if faults:
                print(f"round {number}: {faults}")
                break
    print(f"{options.rounds} rounds, {options.processes} processes: {checked} entries checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
