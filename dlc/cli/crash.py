"""What to say when something broke that should not: whose fault it is, and a file with what reproduces it."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.base.cache_levels import without_credentials
from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, escape
from dlc.driver.session import StepFailed
from dlc.plugins.owner import owner_of

if TYPE_CHECKING:
    from dlc.plugins.plugin import Plugin


def crash(bug: BaseException, arguments: Sequence[str]) -> DlcError:
    """A failure as an error for the user: of the plugin it belongs to (PLUGIN), or else of dlc (BUG).

    The traceback is written to `dlc-crash-<digest>` in the current directory: for a step with its input, as a `.dlc`
    file that `dlc opt` runs again, and otherwise as text with the command line.
    """
    failed = bug if isinstance(bug, StepFailed) else None
    cause = (failed.__cause__ if failed else None) or bug
    owner = owner_of(cause, failed.package if failed else "")
    where = f" in {failed.spec}" if failed else ""
    name, kept = _keep(cause, failed, arguments)
    diagnostics = cause.diagnostics if isinstance(cause, DlcError) else ()
    first = [line for d in diagnostics for line in _lines(d)] or [f"{type(cause).__name__}: {cause}"]
    diagnostic = Diagnostic(
        "plugin-failed" if owner else "internal-error",
        f"plugin {owner.title} failed{where}" if owner else f"internal error{where}",
        location=Location(node=", ".join(failed.nodes)) if failed and failed.nodes else None,
        notes=(*first, *([] if diagnostics else _places(cause)), kept),
        help=_help(failed, name, owner),
    )
    return DlcError(diagnostic, exit_code=ExitCode.PLUGIN if owner else ExitCode.BUG)


def _lines(diagnostic: Diagnostic) -> tuple[str, ...]:
    """What a diagnostic says, as notes of another."""
    place = f"{diagnostic.location}: " if diagnostic.location and str(diagnostic.location) else ""
    return (f"{place}{diagnostic.message}", *diagnostic.notes)


def _keep(cause: BaseException, failed: StepFailed | None, arguments: Sequence[str]) -> tuple[str, str]:
    """(name of the file that holds the traceback, or "" if it cannot be written; what to say of it)."""
    from dlc.version import __version__

    trace = "".join(traceback.format_exception(cause))
    shown = [escape(line) for line in trace.splitlines()]
    again = failed is not None and bool(failed.input_text)
    if failed and again:
        head = [f"# RUN: {failed.spec}", f"# dlc {__version__}", "#", *(f"# {line}" for line in shown)]
        text, key = "\n".join([*head, failed.input_text]), failed.spec + failed.input_text
    else:
        command = f"dlc {without_credentials(' '.join(map(escape, arguments)))}"
        text, key = "\n".join([command, f"dlc {__version__}", "", *shown, ""]), command + trace
    digest = sha256(key.encode("utf-8", "backslashreplace")).hexdigest()[:12]
    name = f"dlc-crash-{digest}.{'dlc' if again else 'txt'}"
    try:
        Path(name).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        return "", f"{name} could not be written: {problem.strerror}"
    if again:
        return name, f"the traceback and what reproduces it are in {name}; it holds the graph, not the weights"
    return name, f"the traceback is in {name}" + ("; the model itself is what reproduces it" if failed else "")


def _help(failed: StepFailed | None, name: str, owner: Plugin | None) -> str:
    again = f"dlc opt {name} runs the step again; " if name and failed and failed.input_text else ""
    what = "that file" if name else "the command line and this message"
    if owner is None:
        return f"{again}please report it with {what}"
    return (
        f'{again}send {what} to the authors of {owner.distribution}; without it: [plugins] disable = ["{owner.name}"]'
    )


def _places(bug: BaseException) -> list[str]:
    """The last frames, innermost first."""
    frames = traceback.extract_tb(bug.__traceback__)[-3:]
    return [f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
