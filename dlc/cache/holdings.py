"""What one build has in the cache: what its own eviction leaves alone, and what it may still add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlc.base.diagnostics import Diagnostic
from dlc.cache.store import Store


@dataclass
class Holdings:
    """The entries that a build uses, and those that its cache refused. Not thread-safe: its owner holds a lock.

    An entry is refused when all that the build uses would take more than the limit with it: another entry of the same
    build would have to go for it, which the next build would miss instead.
    """

    limit: int | None
    """Bytes; None: no limit."""
    entries: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    """Digest → bytes, as far as they are known."""
    refused: int = 0
    """Results."""
    refused_bytes: int = 0
    largest: tuple[int, str] = (0, "")
    """Of the results that were refused: bytes and the name of the step."""

    def use(self, digests: Iterable[str]) -> list[str]:
        """Note entries whose sizes are not known; those that were not noted before."""
        new = [digest for digest in dict.fromkeys(digests) if digest not in self.entries]
        self.entries.update(dict.fromkeys(new))
        return new

    def admit(self, sizes: Mapping[str, int], step: str, store: Store) -> bool:
        """Whether there is room for the entries of one result, which are then held; `sizes` are bytes by digest."""
        if self.limit is not None:
            for digest, size in self.entries.items():
                if size is None:  # only a build that adds something has to know
                    self.entries[digest] = store.size(digest)
            result = sum(sizes.values())
            if self.held + sum(n for digest, n in sizes.items() if digest not in self.entries) > self.limit:
                self.refused += 1
                self.refused_bytes += result
                self.largest = max(self.largest, (result, step))
                return False
        self.entries.update(sizes)
        return True

    @property
    def held(self) -> int:
        """Bytes of the entries whose sizes are known."""
        return sum(size for size in self.entries.values() if size is not None)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """That results were refused, with the numbers; none where none was."""
        if not self.refused or self.limit is None:
            return ()
        size, step = self.largest
        results, they = ("1 result", "it is") if self.refused == 1 else (f"{self.refused} results", "they are")
        return (
            Diagnostic(
                "cache-limit",
                f"{results} of {self.refused_bytes:,} bytes exceed the cache's limit of {self.limit:,} bytes: "
                f"{they} not kept",
                "warning",
                notes=(
                    f"the largest is that of step {step}, with {size:,} bytes",
                    f"other results of this build take {self.held:,} bytes of the cache",
                ),
                help=f"set cache.size to at least {_mebibytes(self.held + self.refused_bytes)} in dlc.toml",
            ),
        )


def _mebibytes(size: int) -> str:
    return f"{-(-size // (1 << 20))}MiB"
