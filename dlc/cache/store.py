"""What a cache needs from a place that keeps bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dlc.base.diagnostics import Diagnostic
from dlc.cache.counts import LevelCounts
from dlc.cache.envelope import Table
from dlc.files.hashing import OwnedFile

CHUNK: Final = 1 << 20  # bytes hashed or copied at a time


@dataclass(frozen=True)
class Entry:
    """One stored payload, as listed."""

    digest: str  # the name it is filed under, 64 hex digits
    table: Table
    size: int  # bytes it takes in the store, envelope included
    used: float  # Unix time of the last use, to the store's resolution
    shared: bool = False  # whether a result holds the same file by another name

    @property
    def cost(self) -> int:
        """Bytes that are free once it is removed."""
        return 0 if self.shared else self.size


class Store(Protocol):
    """Payloads by 64-digit hex name in three tables. No method raises for trouble with the medium: a read answers
    None, a write does nothing, and the trouble is reported once in `warnings`."""

    @property
    def warnings(self) -> list[Diagnostic]:
        """What the user should hear of."""
        ...

    @property
    def errors(self) -> int:
        """Entries found damaged, and operations that failed, since the store was opened."""
        ...

    @property
    def levels(self) -> tuple[LevelCounts, ...]:
        """What came from and went to other levels than this machine, since the store was opened."""
        ...

    @property
    def here(self) -> Store:
        """The part of it that is on this machine: for what says nothing to others."""
        ...

    def get(self, digest: str, table: Table = "object") -> bytes | None:
        """The verified payload; None if absent, or if damaged (it is then set aside and counted in `errors`)."""
        ...

    def put(self, digest: str, payload: bytes | memoryview, table: Table = "object", *, replace: bool = False) -> None:
        """File `payload` atomically. For `object`, `digest` must be the payload's SHA-256, and a present object is
        left as it is unless `replace`."""
        ...

    def put_file(self, path: Path, *, replace: bool = False) -> str:
        """File the content of `path` as an object without loading it; returns its SHA-256.

        OSError if `path` itself cannot be read."""
        ...

    def has(self, digest: str, table: Table = "object") -> bool:
        """Whether the entry is there, without verifying it."""
        ...

    def size(self, digest: str) -> int:
        """Bytes that an entry takes, envelope included; 0 if it is absent, or if a result holds the same file."""
        ...

    def cost(self, payload: bytes | memoryview | Path) -> int:
        """Bytes that an object takes once `payload` is filed, by the same count."""
        ...

    def hold(self, digests: Sequence[str]) -> None:
        """Note entries as used by this process until `close`, so that no other process evicts them."""
        ...

    def held_elsewhere(self) -> Set[str]:
        """What other processes hold."""
        ...

    def view(self, digest: str) -> memoryview | None:
        """Like `get` for an object, but a large one is verified as a stream and then memory-mapped."""
        ...

    def file(self, digest: str) -> OwnedFile | None:
        """The verified file of a large object, which a result may link to; None if it is small, absent or damaged."""
        ...

    def scratch(self, size: int) -> Path | None:
        """A directory where a temporary file of at most `size` bytes becomes an object without a copy, if that is worth
        while and there is room for it."""
        ...

    def export(self, digest: str, target: Path) -> bool:
        """Copy an object to the file `target` (replaced atomically), verifying it on the way; False if it is absent
        or damaged. A large one may get a second name instead. OSError if `target` cannot be written."""
        ...

    def check(self, digest: str, table: Table = "object") -> bool:
        """Verify one entry as `get` does, without keeping its payload."""
        ...

    def entries(self) -> Iterator[Entry]:
        """All entries, in no particular order."""
        ...

    def delete(self, digests: Sequence[str]) -> Set[str]:
        """Remove entries, as many of them as the medium lets go; those that are gone. Absent ones count among them."""
        ...

    def compact_stats(self, merge: Callable[[Sequence[bytes]], bytes]) -> None:
        """Replace all payloads of the table `stat` by the one `merge` makes of them, in one transaction."""
        ...

    def set_aside(self) -> int:
        """How many damaged things are kept for inspection."""
        ...

    def sweep(self) -> None:
        """Remove left-overs of killed processes, and things set aside long ago."""
        ...

    def clear(self) -> None:
        """Remove everything set aside, and what is left of entries that are not ours."""
        ...

    def settle(self) -> None:
        """Wait, for a limited time, for what is on its way to other levels."""
        ...

    def close(self) -> None:
        """Write what is pending and release the medium; the store may be used again afterwards."""
        ...
