"""Private directories to prepare files in, which a killed process leaves behind and the next one removes."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def stage_in(directory: Path, prefix: str) -> Generator[Path]:
    """A new directory PREFIX… in `directory`, gone at the end. Those of processes that were killed are removed first.

    Whoever works in one holds a lock on it, which the system takes away with the process. OSError as usual.
    """
    for left in directory.glob(f"{prefix}*"):
        _remove_abandoned(left)
    while True:
        stage = directory / f"{prefix}{secrets.token_hex(6)}"
        stage.mkdir()
        held = _lock(stage, wait=True)
        if held is not None:
            break  # else another process found it unlocked, took it for abandoned, and removed it
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        os.close(held)


def _remove_abandoned(stage: Path) -> None:
    held = _lock(stage, wait=False)
    if held is not None:
        shutil.rmtree(stage, ignore_errors=True)
        os.close(held)


def _lock(stage: Path, *, wait: bool) -> int | None:
    """A descriptor that holds the lock; None if the directory is in use, or gone."""
    try:
        found = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(found, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.path.samestat(os.fstat(found), os.stat(stage, follow_symlinks=False)):
            return found
    os.close(found)
    return None
