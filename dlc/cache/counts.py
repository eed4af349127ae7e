"""Counting what the cache did, in one process and, summed from the store, in all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from dlc.cache.signing import CAUSES


@dataclass(frozen=True)
class LevelCounts:
    """Sums over what one level behind the local cache gave and took."""

    level: str  # its URL without credentials
    hits: int = 0  # records of results that it gave
    bytes_read: int = 0  # of records and objects that it gave
    bytes_written: int = 0  # of records and objects that it took
    failures: int = 0  # requests that failed, also when tried again, and answers that were refused
    ms_saved: float = 0.0  # milliseconds that the hits took when they were built

    def __add__(self, other: LevelCounts) -> LevelCounts:
        return LevelCounts(self.level, *(getattr(self, name) + getattr(other, name) for name in _numbers(self)))

    def __neg__(self) -> LevelCounts:
        return LevelCounts(self.level, *(-getattr(self, name) for name in _numbers(self)))


@dataclass(frozen=True)
class Counts:
    """Sums over a process, or over all that ever used the store."""

    hits: int = 0  # lookups that gave a record whose outputs were all present
    misses: int = 0  # lookups that did not
    errors: int = 0  # damaged entries met, and operations of the store that failed
    bytes_read: int = 0  # of payload
    bytes_written: int = 0  # of payload handed to the store; what was there already counts too
    ms_saved: float = 0.0  # milliseconds that the hits took when they were built
    unsigned: int = 0  # misses although there was a record, by what it lacked (dlc.cache.signing.CAUSES)
    unknown_key: int = 0
    bad_signature: int = 0
    outdated: int = 0
    foreign: int = 0
    altered: int = 0
    levels: tuple[LevelCounts, ...] = ()  # what came from and went to other levels than the local one

    @property
    def hit_rate(self) -> float:
        """Share of lookups that hit, 0 to 1; 0 without lookups."""
        return self.hits / (self.hits + self.misses) if self.hits else 0.0

    def __add__(self, other: Counts) -> Counts:
        levels: dict[str, LevelCounts] = {}
        for one in (*self.levels, *other.levels):
            levels[one.level] = levels.get(one.level, LevelCounts(one.level)) + one
        used = tuple(one for one in levels.values() if one != LevelCounts(one.level))
        return Counts(*(getattr(self, name) + getattr(other, name) for name in _numbers(self)), levels=used)

    def __sub__(self, other: Counts) -> Counts:
        return self + Counts(
            *(-getattr(other, name) for name in _numbers(other)), levels=tuple(-x for x in other.levels)
        )

    def to_bytes(self) -> bytes:
        """UTF-8 JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, payload: bytes) -> Counts:
        """Inverse of `to_bytes`; fields that are missing or not counts are 0, so that versions can differ."""
        try:
            parsed: object = json.loads(payload)
        except (ValueError, RecursionError):
            return cls()
        table = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
        rows = table.get("levels")
        levels = (_level(row) for row in cast("list[object]", rows)) if isinstance(rows, list) else ()
        return cls(**_read(cls, table), levels=tuple(level for level in levels if level))

    @property
    def refused(self) -> dict[str, int]:
        """Records that were not used, by cause; only causes that occurred."""
        return {cause: count for cause in CAUSES if (count := getattr(self, cause))}


def _numbers(counts: Counts | LevelCounts | type[Counts] | type[LevelCounts]) -> tuple[str, ...]:
    """Names of the fields that are sums."""
    return tuple(field.name for field in fields(counts) if field.default == 0)


def _read(kind: type[Counts] | type[LevelCounts], table: Mapping[str, object]) -> dict[str, Any]:
    def number(name: str) -> float:
        value = table.get(name)
        return value if isinstance(value, (int, float)) and 0 <= value < 1 << 62 else 0

    return {name: float(number(name)) if name == "ms_saved" else int(number(name)) for name in _numbers(kind)}


def _level(row: object) -> LevelCounts | None:
    match row:
        case {"level": str(name)}:
            return LevelCounts(name, **_read(LevelCounts, cast("dict[str, object]", row)))
        case _:
            return None


def merge_counts(payloads: Sequence[bytes]) -> bytes:
    """One payload with the sums of several."""
    return sum((Counts.from_bytes(payload) for payload in payloads), Counts()).to_bytes()
