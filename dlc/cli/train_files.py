"""Files that `dlc train` writes: what would fail at the end, or destroy what the run needs, is refused at the start."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlc.diagnostics import DlcError, ExitCode, error


def check_outputs(outputs: Mapping[str, Path | None], data: Sequence[str]) -> None:
    """Refuse places that cannot be written, files of the data, and two outputs in one file.

    Args:
        outputs: Flag → file.
        data: What --data and --validation-data were given: `FILE` or `NAME=FILE`.

    Raises:
        DlcError: (USAGE) for the first that will not do.
    """
    given = (part for text in data for part in (text, text.partition("=")[2]) if part)
    taken = dict.fromkeys(map(_place, given), "data")
    for flag, path in outputs.items():
        if path is None:
            continue
        if reason := _reason(path):
            raise _refused(f"{path} cannot be written: {reason}")
        if other := taken.get(_place(path)):
            raise _refused(f"{flag} {path}: that file is {other} of this run too")
        taken[_place(path)] = flag


def _reason(path: Path) -> str:
    """Why a file cannot be written, or ""."""
    if path.is_dir():
        return "it is a directory"
    if path.exists() and not path.is_file():
        return "it is no ordinary file"  # it would be replaced, even where it is a device
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    return "" if os.access(path.parent, os.W_OK) else "permission denied"


def _place(path: Path | str) -> str:
    return os.path.realpath(path)


def _refused(message: str) -> DlcError:
    return error("cannot-write", message, help="choose another place", exit_code=ExitCode.USAGE)
