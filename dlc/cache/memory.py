"""A store in memory: the reference for tests, and what `--cache off` gets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from dlc.base.diagnostics import Diagnostic
from dlc.cache.counts import LevelCounts
from dlc.cache.envelope import HEADER_SIZE, Damaged, Table, seal, unseal
from dlc.cache.store import Entry, Store
from dlc.files.hashing import OwnedFile, content_size
from dlc.files.writing import write_atomically


@dataclass
class MemoryStore:
    """A `Store` in a dictionary of sealed entries."""

    sealed: dict[str, bytes] = field(default_factory=dict[str, bytes])
    kinds: dict[str, Table] = field(default_factory=dict[str, Table])
    warnings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    errors: int = 0
    levels: tuple[LevelCounts, ...] = ()
    aside: int = 0
    clock: int = 0  # stands in for time: one tick per use
    used: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def here(self) -> Store:
        """See `Store.here`."""
        return self

    def get(self, digest: str, table: Table = "object") -> bytes | None:
        """See `Store.get`."""
        raw = self.sealed.get(digest)
        if raw is None:
            return None
        try:
            payload = unseal(raw, table, digest)
        except Damaged:
            self.errors += 1
            self.aside += 1
            self.delete([digest])
            return None
        self._touch(digest)
        return payload

    def put(self, digest: str, payload: bytes | memoryview, table: Table = "object", *, replace: bool = False) -> None:
        """See `Store.put`."""
        self.sealed[digest] = seal(table, digest, payload)
        self.kinds[digest] = table
        self._touch(digest)

    def put_file(self, path: Path, *, replace: bool = False) -> str:
        """See `Store.put_file`."""
        payload = path.read_bytes()
        digest = hashlib.sha256(payload).hexdigest()
        self.put(digest, payload, replace=replace)
        return digest

    def has(self, digest: str, table: Table = "object") -> bool:
        """See `Store.has`."""
        return self.kinds.get(digest) == table

    def size(self, digest: str) -> int:
        """See `Store.size`."""
        return len(self.sealed.get(digest, b""))

    def cost(self, payload: bytes | memoryview | Path) -> int:
        """See `Store.cost`."""
        return HEADER_SIZE + content_size(payload)

    def hold(self, digests: Sequence[str]) -> None:
        """See `Store.hold`: there are no other processes."""

    def held_elsewhere(self) -> Set[str]:
        """See `Store.held_elsewhere`."""
        return frozenset()

    def view(self, digest: str) -> memoryview | None:
        """See `Store.view`."""
        payload = self.get(digest)
        return None if payload is None else memoryview(payload)

    def file(self, digest: str) -> OwnedFile | None:
        """See `Store.file`: there are no files."""

    def scratch(self, size: int) -> Path | None:
        """See `Store.scratch`."""

    def export(self, digest: str, target: Path) -> bool:
        """See `Store.export`."""
        payload = self.get(digest)
        if payload is None:
            return False
        write_atomically(target, [payload])
        return True

    def check(self, digest: str, table: Table = "object") -> bool:
        """See `Store.check`."""
        return self.get(digest, table) is not None

    def entries(self) -> Iterator[Entry]:
        """See `Store.entries`."""
        for digest, raw in list(self.sealed.items()):
            yield Entry(digest, self.kinds[digest], len(raw), float(self.used[digest]))

    def delete(self, digests: Sequence[str]) -> Set[str]:
        """See `Store.delete`."""
        for digest in digests:
            self.sealed.pop(digest, None)
            self.kinds.pop(digest, None)
            self.used.pop(digest, None)
        return frozenset(digests)

    def compact_stats(self, merge: Callable[[Sequence[bytes]], bytes]) -> None:
        """See `Store.compact_stats`."""
        names = [digest for digest, table in self.kinds.items() if table == "stat"]
        payloads = [payload for name in names if (payload := self.get(name, "stat")) is not None]
        self.delete(names)
        merged = merge(payloads)
        self.put(hashlib.sha256(merged).hexdigest(), merged, "stat")

    def set_aside(self) -> int:
        """See `Store.set_aside`."""
        return self.aside

    def sweep(self) -> None:
        """See `Store.sweep`: nothing is left over in memory."""

    def clear(self) -> None:
        """See `Store.clear`."""
        self.delete(list(self.sealed))
        self.aside = 0

    def settle(self) -> None:
        """See `Store.settle`: nothing is on its way."""

    def close(self) -> None:
        """Nothing is pending."""

    def _touch(self, digest: str) -> None:
        self.clock += 1
        self.used[digest] = self.clock
