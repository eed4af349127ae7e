"""What builds that are running use: nobody who makes room in the cache may evict it.

    running/….uses     the digests, 32 bytes each, that one process has looked up or saved; locked while it lives

Noting a use in the index or on an object would be a write per entry and build, so those notes are coarse and late. A
file per process is appended to instead; the lock goes with the process, however it ends, so a file without one is left
over.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "running"
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_NAME: Final = 32
"""Bytes of a digest."""
_STALE: Final = 3600.0
"""Seconds; a note without a lock is locked and gets its name within far less."""


class Running:
    """The note of this process in a cache directory, and those of others. Trouble is ignored: a note prevents a loss
    of time only. Not thread-safe: its owner holds a lock."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / FOLDER
        self._own: tuple[Path, int] | None = None
        self._pid = 0

    def note(self, digests: Iterable[str]) -> None:
        """Add entries to what this process uses."""
        with suppress(OSError):
            if self._own is None or self._pid != os.getpid():  # a child process notes for itself
                self._own, self._pid = self._begun(), os.getpid()
            os.write(self._own[1], b"".join(map(bytes.fromhex, digests)))

    def others(self) -> frozenset[str]:
        """What other running processes use. Notes of processes that have ended are removed."""
        found: set[str] = set()
        with suppress(OSError):
            for name in os.listdir(self._folder):
                path = self._folder / name
                if self._own is None or path != self._own[0]:
                    with suppress(OSError):
                        found |= _used(path)
        return frozenset(found)

    def close(self) -> None:
        """Remove the note of this process."""
        own, self._own = self._own, None
        if own is not None and self._pid == os.getpid():
            with suppress(OSError):
                own[0].unlink()
            with suppress(OSError):
                os.close(own[1])

    def _begun(self) -> tuple[Path, int]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{secrets.token_hex(12)}.uses"
        # Locked before anybody else can find it under its name.
        hidden = self._folder / f".{path.name}"
        file = os.open(hidden, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(hidden, path)
        return path, file


def _used(path: Path) -> set[str]:
    """The digests in a note; none, and no note any more, where nobody holds it."""
    file = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            if not path.name.startswith(".") or time.time() - os.fstat(file).st_mtime > _STALE:
                path.unlink()
            return set()
        size = os.fstat(file).st_size // _NAME * _NAME
        content = b""
        while len(content) < size and (part := os.pread(file, size - len(content), len(content))):
            content += part
        return {content[k : k + _NAME].hex() for k in range(0, len(content) - _NAME + 1, _NAME)}
    finally:
        os.close(file)
