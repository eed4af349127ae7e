"""Reads the instances under tests/data/placement."""

import csv
from pathlib import Path

from dlc.placement import Buffer, Task
from dlc.placement.task_text import TaskGraph, parse_tasks

DATA = Path(__file__).parents[1] / "data" / "placement"


def load_buffers(path: Path) -> list[Buffer]:
    with path.open(newline="") as lines:
        return [
            Buffer(int(row["id"]), int(row["size"]), int(row["lower"]), int(row["upper"]))
            for row in csv.DictReader(lines)
        ]


def load_graph(name: str) -> tuple[tuple[Task, ...], tuple[int, ...]]:
    graph = load_tasks(name)
    return graph.tasks, graph.sizes


def load_tasks(name: str) -> TaskGraph:
    return parse_tasks((DATA / "graphs" / f"{name}.txt").read_text())
