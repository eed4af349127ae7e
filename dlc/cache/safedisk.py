"""diskcache, hardened: rows hold sealed bytes and nothing a stranger put into the database is run, read or removed.

diskcache trusts its own file: the `mode` column can ask for unpickling, `filename` names any file to read or delete,
Settings rows become PRAGMA text and attributes. Here rows never have files, only raw bytes under hex names are
accepted on every path, and settings other than ours are deleted before diskcache looks and refused if it looks again.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diskcache

from dlc.cache.envelope import Damaged
from dlc.cache.rows import COUNTERS, DATABASE, HEX_NAME, RAW, SETTINGS, row_value, sanitise


class SafeDisk(diskcache.Disk):
    """Only raw bytes under 64-digit hex names; never a file. Everything else raises Damaged."""

    def put(self, key: Any) -> tuple[str, bool]:
        """`key` itself, if it is a name."""
        if not isinstance(key, str) or not HEX_NAME.fullmatch(key):
            raise Damaged("name is not 64 hex digits")
        return key, True

    def get(self, key: Any, raw: Any) -> str:
        """`key` itself, if it is a name that was not pickled."""
        if raw != 1:
            raise Damaged("name is pickled")
        return self.put(key)[0]

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, str | None, Any]:
        """A row that holds `value`."""
        if read or not isinstance(value, bytes):
            raise Damaged("value is not bytes")
        return 0, RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> bytes:
        """The bytes of a row."""
        if read:
            raise Damaged("value is not kept in a file")
        return row_value(mode, filename, value)

    def filename(self, key: Any = None, value: Any = None) -> tuple[str, str]:
        """Refused: no value is kept in a file."""
        raise Damaged("values are not kept in files")

    def remove(self, file_path: Any) -> None:
        """No row of ours names a file, so a name found in a row (eviction, delete, clear) is never acted on."""


class Writer(diskcache.Cache):
    """diskcache's Cache that takes its settings from `SETTINGS` whatever the database says."""

    def __init__(self, directory: Path, timeout: float) -> None:
        sanitise(directory / DATABASE, timeout)
        super().__init__(str(directory), timeout=timeout, disk=SafeDisk, **SETTINGS)

    def reset(self, key: str, value: Any = diskcache.core.ENOVAL, update: bool = True) -> Any:
        """Apply our own value of a known setting, and nothing of an unknown one."""
        # diskcache calls this for every Settings row on each new connection and turns it into a PRAGMA or setattr.
        if key in SETTINGS:
            return super().reset(key, SETTINGS[key], update)
        return super().reset(key, value, update) if key in COUNTERS else None

    def put_row(self, name: str, sealed: bytes, tag: str) -> None:
        """File a row, replacing one of the same name."""
        with _locks_reported():
            self.set(name, sealed, tag=tag)

    def mark_used(self, names: Sequence[str], now: float) -> None:
        """Set the access time of rows, in one transaction."""
        with _locks_reported(), self.transact():
            for name in names:
                self._sql("UPDATE Cache SET access_time = ? WHERE key = ? AND raw = 1", (now, name))

    def delete_rows(self, names: Sequence[str]) -> None:
        """Delete rows, in one transaction."""
        with _locks_reported(), self.transact():
            for name in names:
                self.delete(name)

    def merge_rows(self, tag: str, merge: Callable[[Mapping[str, bytes]], bytes]) -> None:
        """Replace all rows with `tag` by one, filed under one of their names, in one transaction."""
        with _locks_reported(), self.transact():
            found = self._sql("SELECT key FROM Cache WHERE raw = 1 AND tag = ?", (tag,)).fetchall()
            rows = {str(name): self.get(name) or b"" for (name,) in found}
            for name in rows:
                self.delete(name)
            if rows:
                self.set(min(rows), merge(rows), tag=tag)

    def clear_rows(self) -> None:
        """Delete every row, those that are not ours included."""
        with _locks_reported():
            self.clear()


@contextmanager
def _locks_reported() -> Generator[None]:
    """Turn diskcache's Timeout into the OSError that says what it means."""
    try:
        yield
    except diskcache.Timeout as failure:
        raise BlockingIOError(errno.EAGAIN, "the write lock of the index could not be had") from failure
