"""The flags of `dlc plan` that are for files of tasks only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dlc.cli.options import flag

TASKS: Final = "Files of tasks"
SUFFIX: Final = ".txt"
"""What their names end in."""


@dataclass(frozen=True)
class TaskOptions:
    """What to look for in a file of tasks (docs/task-graphs.md)."""

    memory: str = flag(
        "",
        "--memory",
        metavar="SIZE",
        help="Execute tasks again where that keeps the peak within this size, at the least extra cost: 2MiB. Exit "
        "code 4 if no such schedule is found.",
        panel=TASKS,
    )
    budget: str = flag(
        "",
        "--budget",
        metavar="PERCENT",
        help="Execute tasks again for at most this part of the cost of all, to the smallest peak: 5%.",
        panel=TASKS,
    )
    curve: bool = flag(False, "--curve", help="A table of peaks and budgets.", panel=TASKS)
    states: int = flag(
        0,
        "--states",
        metavar="N",
        help="States that each search may visit: more prove more. By default 20000 for an order, 30000 for a schedule.",
        panel=TASKS,
        low=0,
    )
