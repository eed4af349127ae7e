"""The one place that writes: results to stdout, everything else to stderr, one JSON document if asked for."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dlc.diagnostics import Diagnostic, ExitCode, escape, render

_NARROW = 20
"""Characters that a wrapped column gets at least."""


@dataclass(frozen=True)
class Outcome:
    """What a command has to say in the end."""

    text: str = ""
    """For people, on stdout."""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For programs, with --json."""
    code: int = ExitCode.OK


@dataclass
class Terminal:
    """Where a command's words go. Diagnostics are kept for the JSON document, each said once."""

    json: bool = False
    quiet: bool = False
    said: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def tell(self, *diagnostics: Diagnostic) -> None:
        """Show diagnostics on stderr (in the document with --json)."""
        for d in diagnostics:
            if d in self.said:
                continue
            self.said.append(d)
            if not self.json:
                self.log(render(d, colour()))

    def log(self, text: str) -> None:
        """A line for the user that is no result."""
        if not self.json:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    @contextmanager
    def progress(self) -> Generator[Progress]:
        """Shows what is running, on a terminal only."""
        shown = Progress(not (self.json or self.quiet) and is_interactive())
        try:
            yield shown
        finally:
            shown.stop()

    @contextmanager
    def bar(self, total: int | None) -> Generator[Bar]:
        """Shows how much of something is done, on a terminal only; `total` None: nobody knows how much there is."""
        shown = Bar(not (self.json or self.quiet) and is_interactive(), total)
        try:
            yield shown
        finally:
            shown.stop()


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

        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=self._total, completed=done)
        self._progress.update(self._task, completed=done, description=literal(escape(what)[:100]))
        self._next = time.monotonic() + 0.1

    def stop(self) -> None:
        """Remove the line."""
        if self._progress is not None:
            self._progress.stop()


class Progress:
    """One line on stderr that names the running step; rich is imported when there is something to show."""

    def __init__(self, shows: bool) -> None:
        """Nothing is shown before the first `at`."""
        self._shows = shows
        self._status: Any = None

    def at(self, what: str) -> None:
        """Say what runs now."""
        if not self._shows:
            return
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("", spinner="dots")
            self._status.start()
        from rich.markup import escape as literal

        self._status.update(literal(escape(what)[:100]))

    def stop(self) -> None:
        """Remove the line."""
        if self._status is not None:
            self._status.stop()


def is_interactive() -> bool:
    """Whether somebody watches stderr. A CI log may claim to be a terminal, but nobody wants a spinner there."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


def colour() -> bool:
    """Whether stderr gets colours: no-color.org, force-color.org."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stderr.isatty() and os.environ.get("TERM") != "dumb")


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), width: int = 0) -> str:
    """Rows as aligned columns, two spaces apart; the columns numbered in `right` are right-aligned.

    With a `width`, in characters, the last column is wrapped where its rows would not fit.
    """
    if not rows:
        return ""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    room = max(width - sum(w + 2 for w in widths[:-1]), _NARROW) if width else 0
    lines: list[str] = []
    for row in rows:
        last = textwrap.wrap(row[-1], room) if room and len(row[-1]) > room else [row[-1]]
        cells = [
            cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join([*cells[:-1], cells[-1] if len(last) == 1 else last[0]]))
        lines += [" " * sum(w + 2 for w in widths[:-1]) + more for more in last[1:]]
    return "\n".join(line.rstrip() for line in lines)


def terminal_width() -> int:
    """Characters that a line may have; 0 where nobody says, as in a file."""
    return shutil.get_terminal_size((0, 0)).columns


def size(count: int) -> str:
    """Bytes in words: 1,234 B or 12.3 MiB."""
    if count < 10_000:
        return f"{count:,} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024 or unit == "GiB":
            return f"{value:,.1f} {unit}"
    raise AssertionError


def json_number(x: Any) -> Any:
    """JSON has no NaN and no infinity; they are written as text. Anything else stays as it is."""
    return x if not isinstance(x, float) or math.isfinite(x) else str(x)
