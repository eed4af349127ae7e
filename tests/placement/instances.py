"""Reads the instances under tests/data/placement."""

import csv
from pathlib import Path

from dlc.placement import Buffer, Task

DATA = Path(__file__).parents[1] / "data" / "placement"


def load_buffers(path: Path) -> list[Buffer]:
    with path.open(newline="") as lines:
        return [
            Buffer(int(row["id"]), int(row["size"]), int(row["lower"]), int(row["upper"]))
            for row in csv.DictReader(lines)
        ]


def load_graph(name: str) -> tuple[list[Task], list[int]]:
    lines = (DATA / "graphs" / f"{name}.txt").read_text().splitlines()
    sizes = [int(word) for word in lines[1].split()]
    return [load_task(line) for line in lines[3:] if line.strip()], sizes


def load_task(line: str) -> Task:
    numbers = iter([int(word) for word in line.split()[1:]])

    def take(per_item: int = 1) -> list[int]:
        return [next(numbers) for _ in range(next(numbers) * per_item)]

    reads, writes, pairs, after = take(), take(), take(2), take()
    inplace = tuple(zip(pairs[::2], pairs[1::2], strict=True))
    return Task(tuple(reads), tuple(writes), next(numbers), inplace, tuple(after))
