"""What to say when dlc itself is at fault: a file that reproduces the failure, and the command that does."""

from __future__ import annotations

import traceback
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.diagnostics import Diagnostic, escape

if TYPE_CHECKING:
    from dlc.session import StepFailed


def step_crash(failed: StepFailed) -> Diagnostic:
    """A step broke: its input is written to `dlc-crash-<digest>.dlc` in the current directory."""
    from dlc import __version__

    cause = failed.__cause__ or failed
    trace = [escape(line) for part in traceback.format_exception(cause) for line in part.rstrip().splitlines()]
    name = f"dlc-crash-{sha256((failed.spec + failed.input_text).encode()).hexdigest()[:12]}.dlc"
    head = [f"# RUN: {failed.spec}", f"# dlc {__version__}", "#", *(f"# {line}" for line in trace)]
    notes = [f"{type(cause).__name__}: {cause}", *_places(cause)]
    try:
        Path(name).write_text("\n".join([*head, failed.input_text]), encoding="utf-8")
    except OSError as problem:
        notes.append(f"{name} could not be written: {problem.strerror}")
        return _diagnostic(f"internal error in {failed.spec}", notes, "please report it with this message")
    notes.append(f"what reproduces it is in {name}; it holds the graph, not the weights")
    help = f"dlc opt {name}" if failed.input_text else f"the model itself is what reproduces it; {name} has the trace"
    return _diagnostic(f"internal error in {failed.spec}", notes, f"{help}; please report it with that file")


def tool_crash(bug: Exception) -> Diagnostic:
    """Something outside every step broke."""
    notes = [f"{type(bug).__name__}: {bug}", *_places(bug)]
    return _diagnostic("internal error", notes, "please report it with the command line and this message")


def _diagnostic(message: str, notes: list[str], help: str) -> Diagnostic:
    return Diagnostic("internal-error", message, notes=tuple(notes), help=help)


def _places(bug: BaseException) -> list[str]:
    """The last frames, innermost first."""
    frames = traceback.extract_tb(bug.__traceback__)[-3:]
    return [f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
