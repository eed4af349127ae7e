"""The index database that diskcache writes, read with suspicion and without diskcache.

A builder that only has hits never opens the database for writing, so reading goes through a plain read-only connection;
that is also the only way to read a cache in a read-only directory. Before diskcache opens a database for writing,
`sanitise` deletes the settings it would act upon.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dlc.cache.envelope import Damaged

HEX_NAME: Final = re.compile(r"[0-9a-f]{64}")
DATABASE: Final = "cache.db"  # the name diskcache gives it
RAW: Final = 1  # diskcache's mode of a value that is stored in the row as it is
_LONGEST_VALUE: Final = 64 << 20  # bytes of one row; a damaged length must not make us allocate more
_UNOPENED: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR})

# Reading never takes the write lock: uses are noted in batches (`mark_used`) and eviction is ours (`Cache.trim`), so
# diskcache's own policy is off. No memory map: a truncated database would be a SIGBUS instead of an error.
SETTINGS: Final[dict[str, int | str]] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "none",
    "size_limit": 1 << 62,
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 1 << 13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,
    "sqlite_synchronous": 1,
    "disk_min_file_size": 1 << 62,
    "disk_pickle_protocol": 0,
}
COUNTERS: Final = ("count", "size", "hits", "misses")
_TRIGGERS: Final = ("count_insert", "count_delete", "size_insert", "size_update", "size_delete")
_SCHEMA: Final = frozenset(
    [("table", "Settings"), ("table", "Cache")]
    + [("index", name) for name in ("sqlite_autoindex_Settings_1", "Cache_key_raw", "Cache_expire_time")]
    + [("trigger", f"Settings_{name}") for name in _TRIGGERS]
)


def row_value(mode: object, filename: object, value: object) -> bytes:
    """The bytes of a row. Raises Damaged for a row that we did not write: pickled, text, or kept in a file."""
    if mode != RAW or filename is not None or not isinstance(value, bytes):
        raise Damaged("row is not raw bytes; it was not written by dlc")
    return value


def sanitise(database: Path, timeout: float) -> None:
    """Delete every Settings row that is not exactly ours. Raises Damaged for a foreign schema, sqlite3.Error."""
    if not database.exists():
        return
    connection = _connect(database, "rw", timeout)
    try:
        # Taking the write lock here reports a lock held elsewhere after `timeout`; diskcache would insist for 60 s.
        connection.execute("BEGIN IMMEDIATE")
        if ("table", "Settings") in _schema(connection):
            rows = connection.execute("SELECT rowid, key, value FROM Settings").fetchall()
            foreign = [(rowid,) for rowid, key, value in rows if not _is_ours(key, value)]
            connection.executemany("DELETE FROM Settings WHERE rowid = ?", foreign)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _is_ours(key: object, value: object) -> bool:
    if not isinstance(key, str):
        return False
    return isinstance(value, int) if key in COUNTERS else SETTINGS.get(key) == value


class Reader:
    """Reads rows over one read-only connection; also works where nothing can be written. Not thread-safe."""

    def __init__(self, database: Path, timeout: float) -> None:
        """Raises sqlite3.Error, or Damaged for a foreign schema."""
        try:
            self._connection = _connect(database, "ro", timeout)
            _schema(self._connection)
        except sqlite3.OperationalError as failure:
            # A WAL database in a read-only directory can only be opened as one that nobody is writing.
            if failure.sqlite_errorcode & 0xFF not in _UNOPENED:
                raise
            self._connection = _connect(database, "ro&immutable=1", timeout)
            _schema(self._connection)

    def fetch(self, name: str) -> bytes | None:
        """The sealed bytes filed under `name`. Raises Damaged or sqlite3.Error."""
        rows = self._query("SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1", (name,))
        return row_value(*rows[0]) if rows else None

    def used(self, name: str) -> float | None:
        """Unix time of the row's last noted use; None if there is no such row."""
        rows = self._query("SELECT access_time FROM Cache WHERE key = ? AND raw = 1", (name,))
        return _number(rows[0][0]) if rows else None

    def rows(self) -> Iterator[tuple[str, str, int, float]]:
        """(name, tag, length in bytes, time of last use) of every row with a well-formed name."""
        for name, tag, length, used in self._query("SELECT key, tag, length(value), access_time FROM Cache"):
            if isinstance(name, str) and HEX_NAME.fullmatch(name):
                yield name, str(tag), int(_number(length)), _number(used)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _has_table(self) -> bool:
        return ("table", "Cache") in _schema(self._connection)

    def _query(self, statement: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, parameters).fetchall()
        except sqlite3.OperationalError:
            if self._has_table():
                raise
            return []  # another process is creating the database at this moment


def _connect(database: Path, mode: str, timeout: float) -> sqlite3.Connection:
    uri = f"{database.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _schema(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """What the database consists of. Raises Damaged if there is a view, trigger or table that diskcache lacks: a
    foreign view under a known name could make a plain SELECT run for ever."""
    found = {(str(kind), str(name)) for kind, name in connection.execute("SELECT type, name FROM sqlite_master")}
    if foreign := found - _SCHEMA:
        raise Damaged(f"database holds a foreign {min(foreign)[0]}")
    return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
