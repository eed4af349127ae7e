"""The connections to the newest index database: opened when needed, never shared with a child process, begun anew when
the database is corrupt."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.cache.directory import current_index, next_index
from dlc.cache.envelope import Damaged
from dlc.cache.rows import DATABASE, Reader

if TYPE_CHECKING:
    from dlc.cache.safedisk import Writer  # imports diskcache, which a build with only hits does not need

_RENEWALS = 2  # more corrupt databases than this in one process mean that the disk is bad


class Index:
    """Reader and writer of the index under a cache directory. Not thread-safe: its owner holds a lock."""

    def __init__(self, directory: Path, timeout: float) -> None:
        self._directory = directory
        self._timeout = timeout
        self._pid = os.getpid()
        self._reader: Reader | None = None
        self._writer: Writer | None = None
        self._abandoned: list[object] = []  # connections of a parent process, which must not be closed here
        self._renewals = 0
        self._place = current_index(directory)

    @property
    def database(self) -> Path:
        """The file; it need not exist."""
        return self._place / DATABASE

    def reader(self) -> Reader | None:
        """A reader, or None while there is no database. Raises sqlite3.Error."""
        self._after_fork()
        if self._reader is None and self.database.exists():
            try:
                self._reader = Reader(self.database, self._timeout)
            except Damaged as damage:  # the database as a whole, not the entry that is being read
                raise sqlite3.DatabaseError(str(damage)) from damage
        return self._reader

    def writer(self) -> Writer:
        """A writer; makes the database if there is none. Raises OSError, sqlite3.Error, Damaged."""
        self._after_fork()
        if self._writer is None:
            from dlc.cache.safedisk import Writer

            self._place.mkdir(mode=0o700, exist_ok=True)
            self._writer = Writer(self._place, self._timeout)
        return self._writer

    def renew(self, *, writes: bool) -> bool:
        """Leave a corrupt database behind for the next generation; False if there can be none."""
        self.disconnect()
        self._renewals += 1
        newest = current_index(self._directory)
        if self._renewals > _RENEWALS or (not writes and newest == self._place):
            return False
        # Another process may have begun the next generation already.
        self._place = newest if newest != self._place else next_index(self._place)
        return True

    def disconnect(self) -> None:
        """Close what is open."""
        # The writer last: then it is the last one out, and SQLite folds the write-ahead log into the database.
        reader, writer, self._reader, self._writer = self._reader, self._writer, None, None
        if self._pid == os.getpid():
            for connection in (reader, writer):
                with suppress(sqlite3.Error):  # nothing is pending on it
                    if connection is not None:
                        connection.close()

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            self._abandoned += [self._reader, self._writer]  # closing them would drop the parent's locks
            self._reader, self._writer, self._pid = None, None, os.getpid()
