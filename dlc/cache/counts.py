"""Counting what the cache did, in one process and, summed from the store, in all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import cast

from dlc.cache.signing import CAUSES


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

    @property
    def hit_rate(self) -> float:
        """Share of lookups that hit, 0 to 1; 0 without lookups."""
        return self.hits / (self.hits + self.misses) if self.hits else 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, field.name) - getattr(other, field.name) for field in fields(self)))

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

        def number(name: str) -> float:
            value = table.get(name)
            return value if isinstance(value, (int, float)) and 0 <= value < 1 << 62 else 0

        whole = {field.name: int(number(field.name)) for field in fields(cls) if field.name != "ms_saved"}
        return cls(**whole, ms_saved=float(number("ms_saved")))

    @property
    def refused(self) -> dict[str, int]:
        """Records that were not used, by cause; only causes that occurred."""
        return {cause: count for cause in CAUSES if (count := getattr(self, cause))}


def merge_counts(payloads: Sequence[bytes]) -> bytes:
    """One payload with the sums of several."""
    return sum((Counts.from_bytes(payload) for payload in payloads), Counts()).to_bytes()
