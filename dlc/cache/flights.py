"""Who makes which result now: processes that share a cache do the same step once.

    running/flights     empty; the byte at a number that follows from a key is locked while one process makes the result

A lock is one of the system on a byte of a file (fcntl): it goes with the process that holds it, however it ends, and a
key needs no file of its own. Who finds it taken waits and then finds the result. Where there are no such locks nobody
waits, and nobody waits for ever: then two do the same work, and only time is lost. A step is waited for by one that
holds no lock, and a sub-step, which waits for nothing, by one that holds a step's; so nobody waits in a circle.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dlc.cache.running import FOLDER

PATIENCE: Final = 120.0
"""Seconds that a process waits for another one, then it does the work itself."""
_NAME: Final = "flights"
_LONGEST_NAP: Final = 0.05
_TAKEN: Final = (errno.EAGAIN, errno.EACCES)


class Flights:
    """The locks of one cache directory, for threads that do not ask for one key at once."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._file: int | None = None

    @contextmanager
    def alone(self, digest: str, waiting: Callable[[], None], patience: float | None = None) -> Generator[bool]:
        """Hold the lock of a key's digest; whether another process had it before.

        Args:
            digest: Of the key, in hex.
            waiting: Called once if another process has it.
            patience: Seconds to wait at most, by default `PATIENCE`.
        """
        at = int(digest[:15], 16)
        held, waited = self._taken(at, waiting, PATIENCE if patience is None else patience)
        try:
            yield waited
        finally:
            if held and self._file is not None:
                with suppress(OSError):
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, at)

    def close(self) -> None:
        """Give up all locks."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def _taken(self, at: int, waiting: Callable[[], None], patience: float) -> tuple[bool, bool]:
        """Whether the lock was taken, and whether another process had it."""
        until, nap, waited = time.monotonic() + patience, 0.001, False
        while True:
            try:
                fcntl.lockf(self._opened(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                return True, waited
            except OSError as problem:
                if problem.errno not in _TAKEN or time.monotonic() > until:
                    return False, waited
            if not waited:
                waiting()
            waited = True
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)

    def _opened(self) -> int:
        """The file. OSError as usual."""
        if self._file is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._file = os.open(self._folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return self._file
