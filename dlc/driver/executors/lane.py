"""`Lane`: something that does one piece of work at a time; `perform` is what its far end runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final, Protocol

from dlc.base.diagnostics import Diagnostic

WORK: Final[Mapping[str, str]] = {
    "facts": "dlc.driver.executors.skew:facts_text",
    "build": "dlc.cli.build_job:build_text",
    "tune": "dlc.tune.messages:tune_text",
}
"""Kind of work → the function from text to text that does it, imported where it is done."""


class WorkerLost(Exception):
    """A worker ended, or was cut off, before its work was done: another one may do it."""


class ProcessLost(WorkerLost):
    """The worker is there; the process in which it did the work ended before it was done."""


class Lane(Protocol):
    """A worker, or this computer."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def submit(self, work: str, text: str) -> Future[str]:
        """Have a piece of work done; the future may raise `WorkerLost`, or whatever the work raises."""
        ...


@dataclass(frozen=True)
class Lanes:
    """All that do work."""

    all: Sequence[Lane]
    close: Callable[[], object] = lambda: None
    """Give up what runs, and let go of the workers."""
    warnings: tuple[Diagnostic, ...] = field(default=())
    """On those that are not among them."""


class Here:
    """A thread of this process, for work that has processes of its own."""

    def __init__(self, name: str) -> None:
        """With a name for people."""
        self.name = name
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"dlc-{name}")

    def submit(self, work: str, text: str) -> Future[str]:
        """See `Lane.submit`."""
        return self._pool.submit(perform, work, text)

    def close(self) -> None:
        """Take no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def perform(work: str, text: str) -> str:
    """Do a piece of work in this process. Raises KeyError for a kind that this version does not know."""
    module, _, name = WORK[work].partition(":")
    return getattr(import_module(module), name)(text)
