"""`dlc train` in several ranks: they agree on what went wrong, rank 0 tells it, and none waits for ever."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, of_json, to_json
from dlc.cli.terminal import Terminal
from dlc.training.loop.ranks import Ranks

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
_SPEAK = (0, 1)
"""Ranks that say that another one is lost: one of them is left."""


def opened_ranks(environment: Mapping[str, str]) -> Ranks:
    """The ranks of which this process is one. Raises DlcError: there are several, and no mpi4py."""
    from dlc.cli.launched import launched

    _, count = launched(environment)
    if count < 2:
        return Ranks()
    from dlc.training.loop.mpi import mpi_ranks

    return mpi_ranks(count)


class Agreed(DlcError):
    """What all ranks have heard of, so that each ends by itself."""


def agree(ranks: Ranks, work: Callable[[], T]) -> T:
    """What some work gives, if it succeeds on all ranks.

    Raises:
        Agreed: the diagnostics of the first rank that fails, on all of them.
    """
    if ranks.count == 1:
        return work()
    problem: DlcError | None = None
    found: Any = None
    try:
        found = work()
    except DlcError as raised:
        problem = raised
    said = [[to_json(d) for d in problem.diagnostics], int(problem.exit_code)] if problem else []
    for k, content in enumerate(ranks.gather(json.dumps(said).encode())):
        if told := json.loads(content):
            diagnostics: list[Diagnostic] = [of_json(d) for d in told[0]]
            if k:
                diagnostics = [replace(d, notes=(*d.notes, f"on rank {k} of {ranks.count}")) for d in diagnostics]
            raise Agreed(*diagnostics, exit_code=ExitCode(told[1]))
    return found


@contextmanager
def guarded(ranks: Ranks, terminal: Terminal) -> Generator[None]:
    """Whatever ends this rank alone ends all of them, once it is told: others would wait for it for ever."""
    try:
        yield
    except Agreed:
        raise
    except BaseException as problem:
        if ranks.count == 1:
            raise
        lost = isinstance(problem, DlcError) and problem.diagnostics[0].code == "lost-rank"
        terminal.silent = terminal.silent and lost and ranks.rank not in _SPEAK
        ranks.abort(_told(terminal, problem))
        raise


def _told(terminal: Terminal, problem: BaseException) -> int:
    """Tell what happened; the exit code."""
    terminal.json = False  # a document is written in the end, and there is no end
    if isinstance(problem, DlcError):
        terminal.tell(*problem.diagnostics)
        return problem.exit_code
    if isinstance(problem, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    from dlc.cli.crash import crash

    report = crash(problem, sys.argv[1:])
    terminal.tell(*report.diagnostics)
    return report.exit_code
