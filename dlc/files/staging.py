"""Private directories to prepare files in, which a killed process leaves behind and the next one removes."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

_ATTEMPTS = 20
_RANDOM = 6  # bytes, whose hex digits end the name of a directory


@contextmanager
def stage_in(directory: Path, prefix: str) -> Generator[Path]:
    """A new directory PREFIX… in `directory`, gone at the end. Those of processes that were killed are removed first.

    Whoever works in one holds a lock on it, which the system takes away with the process. OSError as usual.
    """
    remove_abandoned(directory, prefix)
    stage, held = _claimed(directory, prefix)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        os.close(held)


def remove_abandoned(directory: Path, prefix: str) -> None:
    """Remove the directories PREFIX… in `directory` whose processes were killed; others whose names begin so stay."""
    own = re.compile(rf"{re.escape(prefix)}[0-9a-f]{{{2 * _RANDOM}}}")
    for left in directory.glob(f"{escape(prefix)}*"):
        if own.fullmatch(left.name):
            _remove_abandoned(left)


def _claimed(directory: Path, prefix: str) -> tuple[Path, int]:
    """A new locked directory, and the descriptor that holds its lock."""
    for _ in range(_ATTEMPTS):
        stage = directory / f"{prefix}{secrets.token_hex(_RANDOM)}"
        stage.mkdir()
        try:
            held = _opened(stage)
        except FileNotFoundError:
            continue  # another process found it unlocked, took it for abandoned, and removed it
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError:
            return stage, held  # a file system without locks: then nobody can take it for abandoned either
        if stage.exists():
            return stage, held
        os.close(held)
    raise OSError(errno.EAGAIN, "other processes keep removing its temporary directory")


def _remove_abandoned(stage: Path) -> None:
    with suppress(OSError):  # in use, gone, somebody else's, or without locks
        held = _opened(stage)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(stage, ignore_errors=True)
        finally:
            os.close(held)


def _opened(stage: Path) -> int:
    return os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
