"""The line on a terminal that says what runs: a bar with count and time left where it is known how much there is.

rich is imported when there is something to show, which is never off a terminal.
"""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import escape

if TYPE_CHECKING:
    from dlc.cache.step_record import Handle, StepRecord
    from dlc.driver.session import Running

_SHOWN = 60
"""Characters of what runs."""
_NAMED = 2
"""Nodes that are named; the others are counted."""
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{16,}")


class Bar:
    """One line on stderr with a bar and the time that is left; lines that are logged meanwhile stand above it."""

    def __init__(self, shows: bool, total: int | None) -> None:
        """Nothing is shown before the first `at`."""
        self._shows, self._total = shows, total
        self._progress: Any = None
        self._task: Any = None
        self._next = 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to say something new: saying is slow beside steps of small programs."""
        return self._shows and time.monotonic() >= self._next

    def at(self, done: int, what: str) -> None:
        """Say how much is done, and what runs now."""
        if not self._shows:
            return
        from rich.markup import escape as literal

        text = literal(_short(escape(what)))
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            count = () if self._total is None else (MofNCompleteColumn(),)
            columns = (TextColumn("{task.description}"), BarColumn(), *count, TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task(text, total=self._total, completed=done)
            self._progress.start()
        self._progress.update(self._task, completed=done, description=text)
        self._next = time.monotonic() + 0.1

    def stop(self) -> None:
        """Remove the line."""
        if self._progress is not None:
            self._progress.stop()


class Progress:
    """One line on stderr that names what runs: with a bar where it is one of several things, which any thread tells."""

    def __init__(self, shows: bool) -> None:
        """Nothing is shown before the first `at`."""
        self._shows = shows
        self._lock = threading.Lock()
        self._status: Any = None
        self._bar: tuple[str, int, Bar] | None = None

    @property
    def shows(self) -> bool:
        """Whether somebody watches: what nobody sees need not be computed."""
        return self._shows

    def at(self, what: str, kind: str = "", done: int = 0, total: int = 0) -> None:
        """Say what runs now; of the things of a kind, how many are done and how many there are."""
        if not self._shows:
            return
        with self._lock:
            if total:
                self._at_bar(what, kind, done, total)
            else:
                self._at_line(what)

    def stop(self) -> None:
        """Remove the line."""
        with self._lock:
            self._clear()

    def _at_bar(self, what: str, kind: str, done: int, total: int) -> None:
        if self._bar is None or self._bar[:2] != (kind, total):
            self._clear()
            self._bar = kind, total, Bar(True, total)
        self._bar[2].at(done, what)

    def _at_line(self, what: str) -> None:
        from rich.markup import escape as literal

        if self._bar is not None:
            self._clear()
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("", spinner="dots")
            self._status.start()
        self._status.update(literal(_short(escape(what))))

    def _clear(self) -> None:
        """Take away what is shown."""
        if self._status is not None:
            self._status.stop()
        if self._bar is not None:
            self._bar[2].stop()
        self._status = self._bar = None


class BuildProgress:
    """A build on the line: steps, and the kernels of a step by the model's nodes, for people know those."""

    def __init__(self, line: Progress) -> None:
        """On this line."""
        self._line = line
        self._states: dict[str, Handle[Any]] = {}
        self._nodes: dict[str, str] | None = None

    def at(self, running: Running) -> None:
        """Say what is about to run."""
        if not self._line.shows:
            return
        if not running.total:
            self._line.at(f"{running.step} {running.subject}".strip())
            return
        what = f"{running.step} {self._named(running.subject)}"
        self._line.at(what, running.step, running.number - 1, running.total)

    def done(self, step: StepRecord[Any]) -> None:
        """Remember the state behind a step, whose kernels come next."""
        if self._line.shows and step.handle.kind in ("graph", "plan"):
            self._states[step.function] = step.handle
            self._nodes = None

    def _named(self, subject: str) -> str:
        """The nodes of the kernel whose digest is part of a name; the name itself where none are known."""
        found = _DIGEST.search(subject)
        if found is None:
            return subject
        if self._nodes is None:
            self._nodes = {}
            for handle in self._states.values():
                self._nodes |= _nodes_of(handle.value)
        return self._nodes.get(found[0][:16], subject)


def _nodes_of(state: Any) -> dict[str, str]:
    """First digits of every kernel's digest → the nodes that it computes."""
    from dlc.graph.structure import Call

    graph = getattr(state, "graph", state)
    found: dict[str, dict[str, None]] = {}
    for each in graph.graphs:
        for op in each.ops:
            if isinstance(op, Call):
                found.setdefault(op.body.digest[:16], {}).update(dict.fromkeys(each.origin(op)))
    return {digest: _list(tuple(names)) for digest, names in found.items() if names}


def _list(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
