"""Offsets of bare instances: arena over bound and processor seconds of every strategy, the proofs of `exact`.

    python benchmarks/allocation.py DIRECTORY [--strategies greedy,search,auto,exact] [--work 400] [--align 1]
    python benchmarks/allocation.py DIRECTORY --within 1048576
    python benchmarks/allocation.py --growth [--most 60000]

DIRECTORY holds files `id,lower,upper,size`, as the eleven hard instances of google/minimalloc; `tests/data/placement/`
has four of them. `--within` decides one capacity. `--growth` makes instances as accelerators' compilers have them, many
short chains beside few buffers that live long, from 1,000 buffers on, and has no directory. Every placement is checked.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

from dlc_backend_c.packing import BranchAndBound

from dlc.cli.instance import read
from dlc.placement import Buffer, Instance, check_placement, max_live, place


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--strategies", default="greedy,best-fit,search,auto")
    parser.add_argument("--work", type=int, default=400, help="millions of steps of the allocator")
    parser.add_argument("--align", type=int, default=1)
    parser.add_argument("--within", type=int, metavar="BYTES")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--most", type=int, default=60_000)
    arguments = parser.parse_args()
    BranchAndBound().decide(Instance((0,), (1,), (1,), 1), 1, 1, None)  # compiled once, which is not counted
    if arguments.growth:
        growth(arguments.strategies.split(","), arguments.most, arguments.work)
    elif arguments.directory is None:
        parser.error("give a directory, or --growth")
    elif arguments.within:
        within(arguments.directory, arguments.within, arguments.work)
    else:
        table(arguments.directory, arguments.strategies.split(","), arguments.work, arguments.align)


def line(name: str, buffers: list[Buffer], strategy: str, align: int, work: int) -> float:
    """Plan, check, print; arena over bound."""
    begin = time.process_time()
    found = place(buffers, align=align, strategy=strategy, allocator=BranchAndBound, work=work * 10**6)  # type: ignore[arg-type]
    seconds = time.process_time() - begin
    faults = check_placement(buffers, found.offsets, align, found.arena)
    if faults:
        sys.exit(f"{name} {strategy}: {faults[0]}")
    known = "optimal" if found.proven else f"floor {found.floor}"
    print(
        f"{name:>16} {len(buffers):6} {strategy:>8} arena {found.arena:>11} bound {found.bound:>11} "
        f"ratio {1 + found.gap:.4f} {seconds:7.2f} s  {known}, {found.method}",
        flush=True,
    )
    return 1 + found.gap


def table(directory: Path, strategies: list[str], work: int, align: int) -> None:
    """Every instance by every strategy, and the means."""
    ratios: dict[str, list[float]] = {}
    for path in sorted(directory.glob("*.csv")):
        buffers = list(read(path).buffers)
        for strategy in strategies:
            ratios.setdefault(strategy, []).append(line(path.stem, buffers, strategy, align, work))
    for strategy, found in ratios.items():
        print(f"mean {strategy:>8} {statistics.mean(found):.4f}, worst {max(found):.4f}")


def within(directory: Path, capacity: int, work: int) -> None:
    """Whether each instance fits into so many bytes."""
    for path in sorted(directory.glob("*.csv")):
        buffers = list(read(path).buffers)
        most = max_live(buffers, 1)[0]
        instance = Instance(
            tuple(b.birth for b in buffers), tuple(b.death for b in buffers), tuple(b.size for b in buffers), most
        )
        if most > capacity:
            print(f"{path.stem:>16} the bound is {most}")
            continue
        begin = time.process_time()
        found = BranchAndBound().decide(instance, capacity, work * 10**6, None)
        seconds = time.process_time() - begin
        if found.offsets is not None and check_placement(buffers, found.offsets, 1, capacity):
            sys.exit(f"{path.stem}: no placement")
        answer = "fits" if found.offsets is not None else "impossible" if found.refuted else "not decided"
        print(f"{path.stem:>16} {len(buffers):6} {answer} {seconds:7.2f} s, {found.work:,} steps", flush=True)


def made(count: int, seed: int = 0) -> list[Buffer]:
    """Chains of short-lived buffers, one in twenty that lives for longer, twenty that live for most of the time.

    So about as many are live at a step whatever the count. Sizes spread over four orders of magnitude, in units of 512
    bytes, as those of activations do.
    """
    draw = random.Random(seed)
    buffers: list[Buffer] = []
    for k in range(count):
        kind = draw.random()
        length = (
            draw.randint(count // 2, count)
            if kind < 20 / count
            else draw.randint(10, 200)
            if kind < 0.06
            else draw.randint(1, 4)
        )
        birth = k if length < count // 2 else draw.randrange(max(count - length, 1))
        size = 512 * round(2 ** draw.uniform(0, 13)) if length < count // 2 else 512 * round(2 ** draw.uniform(4, 11))
        buffers.append(Buffer(k, size, birth, min(birth + length, count + 4)))
    return buffers


def growth(strategies: list[str], most: int, work: int) -> None:
    """From 1,000 buffers on, twice as many each time."""
    count = 1000
    while count <= most:
        for strategy in strategies:
            line("made", made(count), strategy, 64, work)
        count = min(2 * count, most) if count < most else most + 1


if __name__ == "__main__":
    main()
