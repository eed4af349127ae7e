"""The flags of `dlc plan` about steps that are executed more than once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dlc.cli.options import flag

AGAIN: Final = "Executing steps again"
SUFFIX: Final = ".txt"
"""What names of files of tasks end in."""


@dataclass(frozen=True)
class TaskOptions:
    """What to look for in a model (docs/memory.md), or in a file of tasks (docs/task-graphs.md)."""

    memory: str = flag(
        "",
        "--memory",
        metavar="SIZE",
        help="Execute steps again so that memory stays within this size, at the least extra work: 2MiB. Exit code 4 "
        "where nothing within it is found.",
        panel=AGAIN,
    )
    budget: str = flag(
        "",
        "--budget",
        metavar="PERCENT",
        help="Execute steps again for at most this part of the work of all, to the smallest peak: 5%.",
        panel=AGAIN,
    )
    curve: bool = flag(
        False,
        "--curve",
        help="A table of peaks and budgets; of a training program, for the function with the gradients.",
        panel=AGAIN,
    )
    states: int = flag(
        0,
        "--states",
        metavar="N",
        help="States that each search may visit: more prove more. By default 10000 for a model; for a file of tasks "
        "20000 for an order, 30000 for a schedule.",
        panel=AGAIN,
        low=0,
    )
