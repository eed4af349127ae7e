"""The local cache with levels behind it that several machines share.

Reads go down the levels, and what is found is written back to the levels above. Writes go to the local cache at once,
and to other levels behind the build. What concerns this machine alone stays here: eviction, statistics, digests of
files.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from dlc.base.cache_levels import Levels
from dlc.base.diagnostics import Diagnostic
from dlc.cache.counts import LevelCounts
from dlc.cache.envelope import Damaged, Table
from dlc.cache.guard import GuardedLevel
from dlc.cache.record import Record, without_mac
from dlc.cache.signing import EVERYTHING, Policy
from dlc.cache.store import Entry, Store
from dlc.cache.uploads import Upload, Uploads
from dlc.files.hashing import OwnedFile
from dlc.files.writing import write_atomically


class LeveledStore:
    """A `Store`: `local`, then `levels`. Threads may share one.

    `writes`: whether anything is written, here or elsewhere; `largest`: bytes of an object that is taken from a level;
    `policy`: which records are used: where one is not, the next level is asked.
    """

    def __init__(
        self,
        local: Store,
        levels: Levels,
        *,
        writes: bool,
        largest: int,
        policy: Policy = EVERYTHING,
    ) -> None:
        self._policy = policy
        self._local, self._writes, self._wait = local, writes, levels.upload_time
        self._lock = threading.Lock()  # guards the three below
        self._warned: list[Diagnostic] = []
        self._has: set[str] = set()  # objects that some level said to have
        self._found: dict[str, tuple[Record, int]] = {}  # records by digest, and the number of the level that gave them
        self._levels = tuple(GuardedLevel(level, levels.timeout, largest, self._warn) for level in levels.levels)
        self._uploads = {
            number: Uploads(level, local) for number, level in enumerate(self._levels) if writes and level.level.writes
        }

    @property
    def warnings(self) -> list[Diagnostic]:
        """See `Store.warnings`."""
        with self._lock:
            return [*self._local.warnings, *self._warned]

    @property
    def errors(self) -> int:
        """See `Store.errors`: trouble with levels is counted by level."""
        return self._local.errors

    @property
    def levels(self) -> tuple[LevelCounts, ...]:
        """See `Store.levels`."""
        return tuple(level.counts for level in self._levels)

    @property
    def here(self) -> Store:
        """See `Store.here`."""
        return self._local

    def get(self, digest: str, table: Table = "object") -> bytes | None:
        """See `Store.get`."""
        payload = self._local.get(digest, table)
        if table == "record":
            return payload if payload is not None and self._is_used(payload) else self._fetch_record(digest, payload)
        if payload is not None or table == "stat":
            return payload
        found = self._fetch(digest)
        return found.read_bytes() if isinstance(found, Path) else found

    def has(self, digest: str, table: Table = "object") -> bool:
        """See `Store.has`. A level is believed: what it lacks when asked for is made anew."""
        if self._local.has(digest, table):
            return True
        if table != "object":
            return False
        with self._lock:
            known = digest in self._has
        if not known and (known := any(level.has(digest) for level in self._levels)):
            with self._lock:
                self._has.add(digest)
        return known

    def view(self, digest: str) -> memoryview | None:
        """See `Store.view`."""
        view = self._local.view(digest)
        if view is not None:
            return view
        found = self._fetch(digest)
        if isinstance(found, Path):
            with found.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return None if found is None else memoryview(found)

    def file(self, digest: str) -> OwnedFile | None:
        """See `Store.file`."""
        if self._writes and not self._local.has(digest):
            self._fetch(digest)
        return self._local.file(digest)

    def export(self, digest: str, target: Path) -> bool:
        """See `Store.export`."""
        if self._local.export(digest, target):
            return True
        view = self.view(digest)
        if view is None:
            return False
        write_atomically(target, [view])
        return True

    def put(self, digest: str, payload: bytes | memoryview, table: Table = "object", *, replace: bool = False) -> None:
        """See `Store.put`. A record takes its objects along to other levels."""
        self._local.put(digest, payload, table, replace=replace)
        if table == "record" and self._uploads:
            try:
                record = Record.from_bytes(bytes(payload))
            except Damaged:  # another kind of record than that of a step
                return
            for uploads in self._uploads.values():
                uploads.add(Upload(digest, without_mac(record), replace))

    def put_file(self, path: Path, *, replace: bool = False) -> str:
        """See `Store.put_file`."""
        return self._local.put_file(path, replace=replace)

    def settle(self) -> None:
        """See `Store.settle`. What lower levels gave and is here by now goes to those between."""
        with self._lock:
            found, self._found = self._found, {}
        for number, uploads in self._uploads.items():
            for digest, (record, giver) in found.items():
                if number < giver and all(self._local.has(output) for _, output in record.outputs):
                    uploads.add(Upload(digest, record))
        until = time.monotonic() + self._wait
        for uploads in self._uploads.values():
            uploads.drain(until)

    def close(self) -> None:
        """See `Store.close`."""
        for level in self._levels:
            level.close()
        self._local.close()

    def size(self, digest: str) -> int:
        """See `Store.size`: of what is here."""
        return self._local.size(digest)

    def cost(self, payload: bytes | memoryview | Path) -> int:
        """See `Store.cost`."""
        return self._local.cost(payload)

    def hold(self, digests: Sequence[str]) -> None:
        """See `Store.hold`."""
        self._local.hold(digests)

    def held_elsewhere(self) -> Set[str]:
        """See `Store.held_elsewhere`."""
        return self._local.held_elsewhere()

    def scratch(self, size: int) -> Path | None:
        """See `Store.scratch`."""
        return self._local.scratch(size)

    def check(self, digest: str, table: Table = "object") -> bool:
        """See `Store.check`: of what is here."""
        return self._local.check(digest, table)

    def entries(self) -> Iterator[Entry]:
        """See `Store.entries`: of what is here."""
        return self._local.entries()

    def delete(self, digests: Sequence[str]) -> Set[str]:
        """See `Store.delete`: from here."""
        return self._local.delete(digests)

    def compact_stats(self, merge: Callable[[Sequence[bytes]], bytes]) -> None:
        """See `Store.compact_stats`."""
        self._local.compact_stats(merge)

    def set_aside(self) -> int:
        """See `Store.set_aside`."""
        return self._local.set_aside()

    def sweep(self) -> None:
        """See `Store.sweep`."""
        self._local.sweep()

    def clear(self) -> None:
        """See `Store.clear`: what is here."""
        self._local.clear()

    def _is_used(self, payload: bytes) -> bool:
        try:
            return not self._policy.refusal(Record.from_bytes(payload))
        except Damaged:  # of another version; nobody else's is better
            return True

    def _fetch_record(self, digest: str, refused: bytes | None) -> bytes | None:
        """A record from the first level that has one that is used; else the first that is not, which says why."""
        for number, level in enumerate(self._levels):
            if (found := level.record(digest)) is not None:
                record, payload = found
                if self._policy.refusal_elsewhere(record):
                    refused = payload if refused is None else refused
                    continue
                with self._lock:
                    self._found[digest] = record, number
                payload = self._policy.adopted(record).to_bytes()
                if self._writes:
                    self._local.put(digest, payload, "record")
                return payload
        return refused

    def _fetch(self, digest: str) -> bytes | OwnedFile | None:
        """An object from the first level that has it; it is here as well from then on, if anything is written."""
        for level in self._levels:
            found = level.object(digest, self._local.scratch(1 << 30))
            if found is None:
                continue
            if isinstance(found, Path):
                if self._writes:
                    self._local.put_file(found, replace=True)
            elif self._writes:
                self._local.put(digest, found, replace=True)
            return found
        with self._lock:
            self._has.discard(digest)
        return None

    def _warn(self, warning: Diagnostic) -> None:
        with self._lock:
            self._warned.append(warning)
