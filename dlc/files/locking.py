"""A lock on a directory: installers of one directory take turns, and who reads it sees the work of one of them.

It is an advisory lock of the system (flock) on the directory itself: no file is left behind, and it goes with the
process that holds it. Where there are no such locks (some network file systems), nobody waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PATIENCE: Final = 60.0
"""Seconds. Installers hold the lock while they rename files, so whoever has it for so long is another program."""
_LONGEST_NAP: Final = 0.02


@contextmanager
def directory_lock(directory: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the lock of a directory, alone or with others that share it. A missing directory is not locked.

    Raises:
        TimeoutError: another process held it for a whole minute.
    """
    held = _opened(directory)
    try:
        locked = held is not None and _acquired(held, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, directory)
        try:
            yield
        finally:
            if locked and held is not None:
                with suppress(OSError):
                    fcntl.flock(held, fcntl.LOCK_UN)  # a child that was forked meanwhile holds a copy of the descriptor
    finally:
        if held is not None:
            os.close(held)


def _opened(directory: Path) -> int | None:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None  # absent, or not to be read: what is done in it says so better


def _acquired(held: int, kind: int, directory: Path) -> bool:
    """Whether the lock was taken; False where the file system has none."""
    until, nap = time.monotonic() + _PATIENCE, 0.001
    while True:
        try:
            fcntl.flock(held, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                message = f"another process has held the lock of the directory for {_PATIENCE:.0f} s"
                raise TimeoutError(errno.ETIMEDOUT, message, str(directory)) from None
        except OSError:
            return False
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)
