"""Files that `dlc train` writes: what would fail at the end, or destroy what the run needs, is refused at the start."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.training.loop.checkpoint import SUFFIX


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


def checkpoint_file(program: Path, given: Path | None) -> Path:
    """Where the checkpoint is.

    Args:
        program: The program's directory or file.
        given: What --checkpoint says.

    Raises:
        DlcError: (USAGE) it would be taken for a graph in text.
    """
    path = given or (program / f"checkpoint{SUFFIX}" if program.is_dir() else program.with_suffix(SUFFIX))
    if path.suffix == ".dlc":
        raise error(
            "bad-option",
            f"--checkpoint {path}: .dlc is the suffix of graphs in text",
            help=f"call it {path.with_suffix(SUFFIX)}; a checkpoint that was written by dlc 0.1 may be renamed",
            exit_code=ExitCode.USAGE,
        )
    return path


def check_resume(path: Path, *, resume: bool, fresh: bool) -> None:
    """Refuse to go on and begin anew at once, and say where the checkpoint of a run of dlc 0.1 is if it is asked for.

    Raises:
        DlcError: (USAGE).
    """
    if resume and fresh:
        message = "--fresh has no effect beside --resume"
        raise error("no-effect", message, help="leave one of the two out", exit_code=ExitCode.USAGE)
    older = (path.with_suffix(".dlc"), path.with_suffix(".checkpoint.dlc"))
    found = next((p for p in older if p.exists()), None)
    if resume and found and not path.exists():
        raise error(
            "bad-checkpoint",
            f"there is no {path}; {found} has the name that dlc 0.1 gave",
            location=Location(str(found)),
            help=f"mv {found} {path}",
            exit_code=ExitCode.USAGE,
        )


def kept_as(path: Path, *, fresh: bool) -> Path | None:
    """Where a checkpoint goes that is there already when a run begins; None: there is none.

    Raises:
        DlcError: (USAGE) nobody has said that the run is to begin anew.
    """
    if not path.exists():
        return None
    names = (path.with_name(f"{path.stem}.{k}{path.suffix}") for k in count(1))
    free = next(p for p in names if not p.exists())
    if fresh:
        return free
    raise error(
        "checkpoint-exists",
        f"{path} is the checkpoint of an earlier run, which this one would replace",
        location=Location(str(path)),
        help=f"--resume continues from it; --fresh starts a new run and keeps it as {free}; --checkpoint names another "
        "file",
        exit_code=ExitCode.USAGE,
    )


def _reason(path: Path) -> str:
    """Why a file cannot be written, or ""."""
    if path.is_dir():
        return "it is a directory"
    if path.exists() and not path.is_file():
        return "it is not an ordinary file"  # it would be replaced, even where it is a device
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    return "" if os.access(path.parent, os.W_OK) else "permission denied"


def _place(path: Path | str) -> str:
    return os.path.realpath(path)


def _refused(message: str) -> DlcError:
    return error("cannot-write", message, help="choose another place", exit_code=ExitCode.USAGE)
