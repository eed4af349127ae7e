"""What builds that are running use: nobody who makes room in the cache may evict it; and what the last ones used.

    running/….uses     the digests, 32 bytes each, that one process has looked up or saved; locked while it lives
    used/….uses        the same of processes that have ended, named by the time of that; the last few are kept

Noting a use in the index or on an object would be a write per entry and build, so those notes are coarse and late. A
file per process is appended to instead; the lock goes with the process, however it ends, so a file without one is left
over.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER: Final = "running"
PAST: Final = "used"
_PAST_KEPT: Final = 64
"""Notes of processes that have ended."""
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_NAME: Final = 32
"""Bytes of a digest."""
_OWN_NAME: Final = re.compile(r"\.?[0-9a-f]{24}\.uses")
_PAST_NAME: Final = re.compile(r"\d{20}-[0-9a-f]{24}\.uses")
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
                if not _OWN_NAME.fullmatch(name):
                    continue  # somebody else's
                if self._own is None or path != self._own[0]:
                    with suppress(OSError):
                        found |= _used(path)
        return frozenset(found)

    def close(self) -> None:
        """File the note of this process under what is past."""
        own, self._own = self._own, None
        if own is not None and self._pid == os.getpid():
            with suppress(OSError):
                self._keep(own[0])
            with suppress(OSError):
                own[0].unlink(missing_ok=True)
            with suppress(OSError):
                os.close(own[1])

    def _keep(self, note: Path) -> None:
        folder = self._folder.with_name(PAST)
        folder.mkdir(mode=0o700, exist_ok=True)
        os.rename(note, folder / f"{time.time_ns():020}-{note.name}")
        for old in sorted(filter(_PAST_NAME.fullmatch, os.listdir(folder)))[:-_PAST_KEPT]:
            with suppress(OSError):
                (folder / old).unlink()

    def _begun(self) -> tuple[Path, int]:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{secrets.token_hex(12)}.uses"
        # Locked before anybody else can find it under its name.
        hidden = self._folder / f".{path.name}"
        file = os.open(hidden, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(hidden, path)
        return path, file


def past_uses(directory: Path, since: float | None = None) -> frozenset[str] | None:
    """Digests that processes which ended after `since`, in Unix seconds, have looked up or saved in a cache directory.

    Without `since`, those of the last one. None where no such process is known.
    """
    folder = directory / PAST
    try:
        names = sorted(name for name in os.listdir(folder) if _PAST_NAME.fullmatch(name))
    except OSError:
        return None
    chosen = names[-1:] if since is None else [name for name in names if int(name[:20]) > since * 1e9]
    found: set[str] = set()
    for name in chosen:
        with suppress(OSError):  # pruned by another process since it was listed
            file = os.open(folder / name, os.O_RDONLY | _FLAGS)
            try:
                found |= _digests(file)
            finally:
                os.close(file)
    return frozenset(found) if chosen else None


def forget_past(directory: Path) -> None:
    """Remove the notes of processes that have ended. OSError as usual."""
    folder = directory / PAST
    for name in filter(_PAST_NAME.fullmatch, os.listdir(folder) if folder.is_dir() else ()):
        (folder / name).unlink(missing_ok=True)


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
        return _digests(file)
    finally:
        os.close(file)


def _digests(file: int) -> set[str]:
    """The digests in an opened note."""
    size = os.fstat(file).st_size // _NAME * _NAME
    content = b""
    while len(content) < size and (part := os.pread(file, size - len(content), len(content))):
        content += part
    return {content[k : k + _NAME].hex() for k in range(0, len(content) - _NAME + 1, _NAME)}
