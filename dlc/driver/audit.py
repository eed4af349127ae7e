"""Entries of a cache held against what building them again gives: builds are deterministic, so any difference tells."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dlc.cache import Cache, Key, Payload, Record
from dlc.driver.pipeline import BUILD, EMIT, SCHEDULE

if TYPE_CHECKING:
    from dlc.cache.step_record import StepRecord

T = TypeVar("T")

_FACTS: Final = ("kind", "digest", "part_digests", "cover")
"""What a record says of a state and later keys are made of; times differ, and what people call it may."""
_SPLIT: Final = (SCHEDULE, EMIT, BUILD)
"""Steps that always run again: their parts, as single kernels, have entries of their own and are met only so."""


@dataclass(frozen=True)
class Difference:
    """An entry that is not what building it again gives."""

    key: str
    """SHA-256 of the key's text: the name of the record."""
    step: str
    """Spec text of the step."""
    parts: tuple[str, ...]
    """Names of outputs and facts that differ."""


@dataclass
class Audited:
    """What an audit found."""

    met: int = 0
    """Entries of the build that the cache has."""
    rebuilt: int = 0
    """Those of them that were built again."""
    absent: int = 0
    """Entries that the cache lacks, or does not trust."""
    differences: list[Difference] = field(default_factory=list[Difference])


class Auditing(Cache):
    """A cache that lets a sample of what it has be built again and compares; it stores nothing."""

    def __init__(self, cache: Cache, share: float, seed: int) -> None:
        """Entries are in the sample with a probability of `share`, the same for equal seeds."""
        super().__init__(cache.store, "ro", policy=cache.policy)
        self._share, self._seed = share, seed
        self._expected: dict[str, Record] = {}
        self.found = Audited()

    def lookup(self, key: Key) -> Record | None:
        """See `Cache.lookup`; entries of the sample are missed."""
        record = super().lookup(key)
        with self._lock:
            if record is None:
                self.found.absent += 1
                return None
            if record.leads_on:
                return record
            self.found.met += 1
            if not self._sampled(key):
                return record
            self._expected[key.digest] = record
        return None

    def save(self, key: Key, outputs: Mapping[str, Payload], meta: Mapping[str, str]) -> Record:
        """Compare instead of saving."""
        made = super().save(key, outputs, meta)
        with self._lock:
            expected = self._expected.pop(key.digest, None)
            if expected is not None:
                self.found.rebuilt += 1
                if parts := _different(expected, made):
                    self.found.differences.append(Difference(key.digest, key.value("step"), parts))
        return made

    def _sampled(self, key: Key) -> bool:
        if key.value("step").partition(" ")[0] in _SPLIT:
            return True
        drawn = hashlib.sha256(f"{self._seed} {key.digest}".encode()).digest()
        return int.from_bytes(drawn[:8], "little") < self._share * (1 << 64)


def audited(cache: Cache, follow: Callable[[Cache], T], share: float, seed: int) -> tuple[T, Audited]:
    """What building with a cache gives, and what running a sample of the steps and kernels again showed that it has.

    Args:
        cache: What is examined. Nothing is written to it.
        follow: Builds with the cache that it is given.
        share: Of the entries that are built again, 0 to 1; the steps around single kernels always are.
        seed: Draws the sample.
    """
    auditing = Auditing(cache, share, seed)
    return follow(auditing), auditing.found


def audit_request(found: Audited, request: Record | None, steps: tuple[StepRecord[Any], ...]) -> None:
    """Hold the record of what was asked for against the steps that it leads to; it is a shortcut to those."""
    from dlc.driver.replay import steps_of

    if request is not None:
        found.met += 1
        found.rebuilt += 1
        if steps_of(request) != frozenset(step.key.digest for step in steps):
            found.differences.append(Difference(request.key.digest, request.key.value("step"), ("steps",)))


def _different(stored: Record, made: Record) -> tuple[str, ...]:
    before, after = dict(stored.outputs), dict(made.outputs)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    old, new = dict(stored.meta), dict(made.meta)
    return (*names, *(fact for fact in _FACTS if old.get(fact) != new.get(fact)))
