"""The cache on this machine's disk: small entries as diskcache rows, large objects as files, one private directory.

    index-0/cache.db           records, statistics and objects up to 32 KiB (dlc.cache.safedisk, dlc.cache.rows)
    objects/, tmp/, corrupt/   large objects (dlc.cache.blobs)
    running/, used/            what builds that are running, or have ended, use (dlc.cache.running)

Trouble never stops a build. Each kind of it is reported once in `warnings`, and the store steps down: from reading and
writing to reading only (disk full, read-only medium, a lock that nobody releases), or to nothing at all.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from dlc.base.diagnostics import Diagnostic
from dlc.cache.blobs import Blobs
from dlc.cache.counts import LevelCounts
from dlc.cache.directory import drop_old_indexes, generations, prepare
from dlc.cache.envelope import HEADER_SIZE, TABLES, Damaged, Table, seal, unseal
from dlc.cache.flights import Flights
from dlc.cache.index import Index
from dlc.cache.running import Running, forget_past
from dlc.cache.store import Entry, Store
from dlc.cache.trouble import TROUBLE, classify, warning
from dlc.files.hashing import OwnedFile, content_sha256, content_size
from dlc.files.linking import LINK_ABOVE
from dlc.files.writing import write_atomically

Access: TypeAlias = Literal["rw", "ro", "off"]

_AT_ONCE: Final = 100  # rows of one transaction: it must not hold up other processes
_ROOM: Final = 64 << 20
"""Bytes that a temporary file leaves free, for what else a build stores."""
INLINE_LIMIT: Final = 32 << 10  # bytes up to which an object is a database row


class LocalStore:
    """A `Store` in `directory`. Threads may share one; any number of processes may use one directory at once.

    `readonly` never writes and also works on a read-only medium. `timeout` is how long, in seconds, to wait for another
    process's lock before going on without. `touch_after` is the resolution of "last used", in seconds.
    """

    def __init__(
        self, directory: Path, *, readonly: bool = False, timeout: float = 10.0, touch_after: float = 600.0
    ) -> None:
        self.directory = directory
        self.warnings: list[Diagnostic] = []
        self.errors = 0
        self.levels: tuple[LevelCounts, ...] = ()
        self.access: Access = "ro" if readonly else "rw"
        self._touch_after = touch_after
        self._blobs = Blobs(directory, touch_after)
        self._lock = threading.RLock()  # guards everything below; object files are read outside it
        self._used: dict[str, None] = {}  # rows read since the last flush
        self._running = Running(directory)
        self.flights = Flights(directory)
        self._index = Index(directory, timeout)
        if problem := prepare(directory, readonly=readonly):
            self.warnings.append(problem)
            self.access = "off"

    @property
    def here(self) -> Store:
        """See `Store.here`."""
        return self

    def get(self, digest: str, table: Table = "object") -> bytes | None:
        """See `Store.get`."""
        if self.access == "off":
            return None
        with self._guard(digest):
            if (raw := self._row(digest)) is not None:
                payload = unseal(raw, table, digest)
                self._used[digest] = None
                return payload
            if table == "object" and (payload := self._blobs.read(digest)) is not None:
                self._touch(digest)
                return payload
        return None

    def has(self, digest: str, table: Table = "object") -> bool:
        """See `Store.has`."""
        if self.access == "off":
            return False
        with self._guard(digest):
            return (table == "object" and self._blobs.has(digest)) or self._row(digest) is not None
        return False

    def size(self, digest: str) -> int:
        """See `Store.size`."""
        if self.access == "off":
            return 0
        with self._guard(digest):
            size = self._blobs.size(digest)
            return (0 if self._blobs.shared(digest) else size) if size else len(self._row(digest) or b"")
        return 0

    def cost(self, payload: bytes | memoryview | Path) -> int:
        """See `Store.cost`."""
        size = content_size(payload)
        if size > INLINE_LIMIT:
            return 0 if self._blobs.becomes_shared(payload) else size
        return HEADER_SIZE + size

    def hold(self, digests: Sequence[str]) -> None:
        """See `Store.hold`."""
        if self.access == "rw":
            with self._lock:
                self._running.note(digests)

    def held_elsewhere(self) -> Set[str]:
        """See `Store.held_elsewhere`."""
        return self._running.others() if self.access == "rw" else frozenset()

    def view(self, digest: str) -> memoryview | None:
        """See `Store.view`."""
        if self.access != "off" and self._blobs.has(digest):
            with self._guard(digest):
                view = self._blobs.view(digest)
                self._touch(digest)
                return view
            return None
        payload = self.get(digest)
        return None if payload is None else memoryview(payload)

    def file(self, digest: str) -> OwnedFile | None:
        """See `Store.file`."""
        if self.access != "rw":  # a second name changes what the file system says of the first
            return None
        with self._guard(digest):
            found = self._blobs.file(digest)
            if found:
                self._touch(digest)
            return found
        return None

    def scratch(self, size: int) -> Path | None:
        """See `Store.scratch`."""
        if self.access == "rw" and size > LINK_ABOVE:
            with suppress(OSError):
                folder = self._blobs.scratch()
                if shutil.disk_usage(folder).free > size + _ROOM:
                    return folder
        return None

    def export(self, digest: str, target: Path) -> bool:
        """See `Store.export`."""
        if self.access != "off" and self._blobs.has(digest):
            try:
                self._blobs.export(digest, target, link=self.access == "rw")
            except Damaged:
                self.errors += 1
                self._set_aside(digest)
                return False
            self._touch(digest)
            return True
        payload = self.get(digest)
        if payload is not None:
            write_atomically(target, [payload])
        return payload is not None

    def check(self, digest: str, table: Table = "object") -> bool:
        """See `Store.check`."""
        if table == "object" and self.access != "off" and self._blobs.has(digest):
            with self._guard(digest):
                return self._blobs.check(digest)
            return False
        return self.get(digest, table) is not None

    def entries(self) -> Iterator[Entry]:
        """See `Store.entries`."""
        found: list[Entry] = []
        known: dict[str, Table] = {table: table for table in TABLES}
        if self.access != "off":
            with self._guard(), self._lock:
                if reader := self._index.reader():
                    found.extend(Entry(name, known.get(tag, "object"), n, used) for name, tag, n, used in reader.rows())
            with self._guard():
                found.extend(self._blobs.entries())
        yield from found

    def put(self, digest: str, payload: bytes | memoryview, table: Table = "object", *, replace: bool = False) -> None:
        """See `Store.put`."""
        if self.access != "rw" or (table == "object" and not replace and self._renewed(digest)):
            return
        for _ in range(2):  # once more if the index was corrupt and a new one has been begun
            with self._guard(writing=True):
                if table == "object" and len(payload) > INLINE_LIMIT:
                    self._blobs.write(digest, payload)
                else:
                    sealed = seal(table, digest, payload)
                    with self._lock:
                        self._index.writer().put_row(digest, sealed, table)
                return
            if self.access != "rw":
                return

    def put_file(self, path: Path, *, replace: bool = False) -> str:
        """See `Store.put_file`."""
        digest = content_sha256(path)  # first, because a file that is already here is the usual case
        if self.access != "rw" or (not replace and self._renewed(digest)):
            return digest
        if path.stat().st_size <= INLINE_LIMIT:
            payload = path.read_bytes()
            self.put(digest, payload, replace=True)
        else:
            with self._guard(writing=True):
                self._blobs.write_file(path, digest)
        return digest

    def delete(self, digests: Sequence[str]) -> Set[str]:
        """See `Store.delete`. A file that stays does not keep the others."""
        gone: set[str] = set()
        if self.access != "rw":
            return gone
        files = [digest for digest in digests if self._blobs.has(digest)]
        for digest in files:
            try:
                self._blobs.remove(digest)
                gone.add(digest)
            except OSError as failure:
                self.errors += 1
                self._warn(warning(classify(failure, self._index.database), self.directory, failure))
        rows = [digest for digest in digests if digest not in set(files)]
        with self._guard(writing=True):
            for start in range(0, len(rows), _AT_ONCE):
                some = rows[start : start + _AT_ONCE]
                with self._lock:
                    self._index.writer().delete_rows(some)
                gone.update(some)
        return gone

    def compact_stats(self, merge: Callable[[Sequence[bytes]], bytes]) -> None:
        """See `Store.compact_stats`."""

        def merged(rows: Mapping[str, bytes]) -> bytes:
            payloads: list[bytes] = []
            for name, raw in rows.items():
                with suppress(Damaged):  # a damaged count is dropped with the rest
                    payloads.append(unseal(raw, "stat", name))
            return seal("stat", min(rows), merge(payloads))

        if self.access == "rw":
            with self._guard(writing=True), self._lock:
                self._index.writer().merge_rows("stat", merged)

    def set_aside(self) -> int:
        """See `Store.set_aside`."""
        return self._blobs.quarantined() + max(0, len(generations(self.directory)) - 1)

    def sweep(self) -> None:
        """See `Store.sweep`."""
        if self.access == "rw":
            with self._guard(writing=True):
                self._blobs.sweep()
                self._running.others()  # which removes the notes of processes that have ended

    def clear(self) -> None:
        """See `Store.clear`."""
        if self.access == "rw":
            with self._guard(writing=True), self._lock:
                self._index.writer().clear_rows()
                self._blobs.sweep(corrupt_age=0.0)
                drop_old_indexes(self.directory)
                forget_past(self.directory)

    def settle(self) -> None:
        """See `Store.settle`: nothing is on its way."""

    def close(self) -> None:
        """See `Store.close`."""
        with self._lock:
            self._flush_uses()
            self._running.close()
            self.flights.close()
            self._index.disconnect()

    @contextmanager
    def _guard(self, digest: str = "", *, writing: bool = False) -> Generator[None]:
        """Turn trouble into a miss or a step down. Code after the `with` block runs only after trouble.

        `digest` names the entry that is read: if that entry alone is damaged, it is set aside.
        """
        try:
            yield
        except TROUBLE as failure:
            self.errors += 1
            if digest and isinstance(failure, Damaged):
                self._set_aside(digest)
            elif (trouble := classify(failure, self._index.database)) == "corrupt":
                self._renew_index(failure)
            else:
                self._step_down(warning(trouble, self.directory, failure), writing=writing)

    def _row(self, digest: str) -> bytes | None:
        with self._lock:
            reader = self._index.reader()
            return None if reader is None else reader.fetch(digest)

    def _renewed(self, digest: str) -> bool:
        """Whether the object is here already; writing it again is a use like reading it.

        Where something was damaged, more may be: from then on being here is not enough, or what a step made anew would
        be taken for stored beside a damaged object of the same name.
        """
        if not self.has(digest) or (self.errors and not self.check(digest)):
            return False
        self._used[digest] = None
        self._touch(digest)
        return True

    def _touch(self, digest: str) -> None:
        if self.access == "rw":
            self._blobs.touch(digest, time.time())

    def _flush_uses(self) -> None:
        """Note when rows were last used. Only those not noted lately: most builds then write nothing."""
        names, self._used = list(self._used), {}
        if self.access == "rw" and names:
            with self._guard(writing=True):
                now, reader = time.time(), self._index.reader()
                stale = [name for name in names if reader and now - (reader.used(name) or now) > self._touch_after]
                if stale:
                    self._index.writer().mark_used(stale, now)

    def _set_aside(self, digest: str) -> None:
        """Move one damaged entry out of the way, where that is allowed; it is a miss in any case."""
        text = f"entry {digest[:16]}… of the cache in {self.directory} is damaged; it is rebuilt"
        self._warn(Diagnostic("cache-damaged-entry", text, "warning", help="`dlc cache verify` examines all entries"))
        if self.access != "rw":
            return
        with self._guard(writing=True):
            if os.path.lexists(self._blobs.path(digest)):
                self._blobs.quarantine(digest)
                return
            with self._lock:
                with suppress(Damaged):  # a row of a foreign kind: its content is not worth keeping
                    self._blobs.quarantine_bytes(digest, self._row(digest) or b"")
                self._index.writer().delete_rows([digest])

    def _renew_index(self, failure: Exception) -> None:
        """Leave a corrupt database behind and begin an empty one; thrice in one process means the disk is bad."""
        self._warn(warning("corrupt", self.directory, failure))
        with self._lock:
            if not self._index.renew(writes=self.access == "rw"):
                self.access = "off"

    def _step_down(self, warning: Diagnostic, *, writing: bool) -> None:
        """Stop writing after a failed write, or stop altogether after a failed read."""
        self._warn(warning)
        with self._lock:
            self.access = "ro" if writing and self.access == "rw" else "off"
            self._index.disconnect()

    def _warn(self, warning: Diagnostic) -> None:
        if all(earlier.code != warning.code for earlier in self.warnings):
            self.warnings.append(warning)
