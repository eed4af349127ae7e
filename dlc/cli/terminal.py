"""The one place that writes: results to stdout, everything else to stderr, one JSON document if asked for."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from dlc.base.diagnostics import Diagnostic, ExitCode, render
from dlc.cli.progress import Bar, Progress

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
    silent: bool = False
    """Nothing is printed: another process of the same command says it."""
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
        if not (self.json or self.silent):
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    @contextmanager
    def progress(self) -> Generator[Progress]:
        """Shows what is running, on a terminal only."""
        shown = Progress(not (self.json or self.quiet or self.silent) and is_interactive())
        try:
            yield shown
        finally:
            shown.stop()

    @contextmanager
    def bar(self, total: int | None) -> Generator[Bar]:
        """Shows how much of something is done, on a terminal only; `total` None: nobody knows how much there is."""
        shown = Bar(not (self.json or self.quiet or self.silent) and is_interactive(), total)
        try:
            yield shown
        finally:
            shown.stop()


_KEPT: Final[ContextVar[int | None]] = ContextVar("kept_stdout", default=None)
"""The descriptor of stdout, while what is printed goes to stderr."""


@contextmanager
def off_stdout() -> Generator[None]:
    """Whatever code prints goes to stderr, also in libraries and other processes: stdout has a command's result alone.

    The result is printed afterwards.
    """
    if _KEPT.get() is not None or sys.stdout is sys.stderr:
        yield
        return
    kept = None
    sys.stdout.flush()
    with suppress(OSError, ValueError):  # a stream of a test, or one that is closed
        if sys.stdout.fileno() == 1:
            kept = os.dup(1)
            os.dup2(2, 1)
    token, stdout = _KEPT.set(kept), sys.stdout
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = stdout
        _KEPT.reset(token)
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


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
        last = textwrap.wrap(row[-1], room, break_on_hyphens=False) if room and len(row[-1]) > room else [row[-1]]
        cells = [
            cell.rjust(w) if k in right else cell.ljust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join([*cells[:-1], cells[-1] if len(last) == 1 else last[0]]))
        lines += [" " * sum(w + 2 for w in widths[:-1]) + more for more in last[1:]]
    return "\n".join(line.rstrip() for line in lines)


def terminal_width() -> int:
    """Characters that a line may have; 0 where nobody says, as in a file."""
    kept = _KEPT.get()
    if kept is None or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size((0, 0)).columns
    try:
        return os.get_terminal_size(kept).columns
    except OSError:
        return 0


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
