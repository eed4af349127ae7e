"""Which tests are quick: those that a contributor runs after every change, with `-m quick`. And which are long.

The slow ones are recorded, not guessed: `pytest -n auto --update-slow` runs everything and writes their list anew. Then
`pytest -n auto -m quick --update-slow` adds those that wait for what a slow one made before. A new test is quick until
then.

The long ones only `-m long` runs: larger models, more seeds, and combinations of parameters each value of which is in
another case that always runs. Their list is written by hand, and no function is in it as a whole. Where they are a
few in each of hundreds of groups, the test marks them (`on_one_machine`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

SLOW_TESTS = Path(__file__).parent / "slow.txt"
"""Functions of tests of which a case takes longer than `QUICK`, one a line."""
LONG_TESTS = Path(__file__).parent / "long.txt"
"""Cases that are left out by default, one a line."""
QUICK = 0.3
"""Seconds, with the fixtures that the case is the first to ask for."""


def mark_quick(items: Iterable[pytest.Item]) -> None:
    """Give the mark `quick` to all that are not in `SLOW_TESTS`."""
    slow = _slow()
    for item in items:
        if _function(item.nodeid) not in slow:
            item.add_marker(pytest.mark.quick)


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Give the mark `long` to the cases of `LONG_TESTS`."""
    long = set(LONG_TESTS.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in long:
            item.add_marker(pytest.mark.long)


def on_one_machine(cases: Sequence[Any], machines: Sequence[str], group: Callable[[Any], Hashable]) -> list[Any]:
    """Parameters (machine, place of a case): all that there are, of which those that repeat a group are long.

    The first case of each group always runs, on a machine that changes from group to group.
    """
    first: dict[Hashable, tuple[int, str]] = {}
    for n, case in enumerate(cases):
        first.setdefault(group(case), (n, machines[len(first) % len(machines)]))
    kept = set(first.values())
    return [
        pytest.param(machine, n, id=f"{machine}-{case}", marks=() if (n, machine) in kept else pytest.mark.long)
        for machine in machines
        for n, case in enumerate(cases)
    ]


def write_slow(reports: Iterable[pytest.TestReport]) -> None:
    """Judge the functions that ran anew, in `SLOW_TESTS`; the others stay as they are."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:  # of set-up, call and tear-down
        seconds[report.nodeid] += report.duration
    slow = _slow() - {_function(nodeid) for nodeid in seconds}
    slow |= {_function(nodeid) for nodeid, taken in seconds.items() if taken > QUICK}
    SLOW_TESTS.write_text("".join(f"{name}\n" for name in sorted(slow)), encoding="utf-8")


def seconds_of_folders(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """Folder or file directly below `tests/` → how long its tests took, the longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        seconds["/".join(report.nodeid.partition("::")[0].split("/")[:2])] += report.duration
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _slow() -> set[str]:
    return set(SLOW_TESTS.read_text(encoding="utf-8").split())


def _function(nodeid: str) -> str:
    """What the cases of a test have in common: `tests/f.py::test_g[1-2]` → `tests/f.py::test_g`."""
    return nodeid.partition("[")[0]
