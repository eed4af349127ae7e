"""A level that is asked with care: answers are checked, trouble is retried once, and a level in trouble is left alone.

closed ──3 failures in a row, or one that lasts──▶ open ──after 30 s, then 60, 120, … 300──▶ one request is tried
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from dlc.base.cache_levels import Level
from dlc.base.diagnostics import Diagnostic
from dlc.cache.counts import LevelCounts
from dlc.cache.envelope import Damaged, seal, unseal
from dlc.cache.record import Record
from dlc.cache.remote import LevelFailed, Received, Remote
from dlc.cache.remotes import open_remote
from dlc.files.hashing import OwnedFile

T = TypeVar("T")

_FAILURES: Final = 3  # in a row that open a breaker
_PAUSE: Final = 0.1  # seconds before a request is sent once more
_FIRST_REST: Final = 30.0  # seconds
_LONGEST_REST: Final = 300.0
_LARGEST_RECORD: Final = 16 << 20  # bytes; those of steps have kilobytes


@dataclass
class Breaker:
    """Whether a level is asked. Threads may share one."""

    clock: Callable[[], float] = time.monotonic
    _failures: int = 0
    _rest: float = 0.0
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def allows(self) -> bool:
        """Whether to ask now. While the breaker is open, one of all that ask after its rest may try."""
        with self._lock:
            if not self._rest:
                return True
            if self.clock() < self._until:
                return False
            self._until = self.clock() + self._rest
            return True

    def failed(self, *, lasting: bool) -> None:
        """Note a failure."""
        with self._lock:
            self._failures += 1
            if lasting or self._rest or self._failures >= _FAILURES:
                self._rest = min(max(2 * self._rest, _FIRST_REST), _LONGEST_REST)
                self._until = self.clock() + self._rest

    def worked(self) -> None:
        """Note that the level did what it was asked."""
        with self._lock:
            self._failures, self._rest = 0, 0.0


class GuardedLevel:
    """A level that nothing can go wrong with: what fails is absent, or not kept. Threads may share one."""

    def __init__(self, level: Level, timeout: float, largest: int, warn: Callable[[Diagnostic], None]) -> None:
        """`largest`: bytes of an object that are taken; `warn`: told of the first trouble, and of no other."""
        self.level = level
        self.counts = LevelCounts(level.label)
        self._timeout, self._largest, self._warn = timeout, largest, warn
        self._remote: Remote | None = None
        self._reads, self._writes = Breaker(), Breaker()  # a full server can still be read
        self._lock = threading.Lock()  # guards the three below and the two above
        self._warned = False

    def record(self, digest: str) -> tuple[Record, bytes] | None:
        """The record under the digest of its key, and its bytes; None if it is not to be had."""

        def ask(remote: Remote) -> tuple[Record, bytes] | None:
            received = Received(_LARGEST_RECORD)
            if not remote.get(f"ac/{digest}", received):
                return None
            raw = received.content()
            assert isinstance(raw, bytes)
            try:
                payload = unseal(raw, "record", digest)
                record = Record.from_bytes(payload)
            except Damaged as damage:
                raise LevelFailed(f"sent a record that is damaged or of another kind: {damage}") from None
            if record.key.digest != digest:
                raise LevelFailed("sent a record under the name of another")
            return record, payload

        found = self._do(self._reads, ask)
        if found is not None:
            self.count(hits=1, bytes_read=len(found[1]), ms_saved=found[0].milliseconds)
        return found

    def object(self, digest: str, scratch: Path | None = None) -> bytes | OwnedFile | None:
        """The object of a digest, verified; None if it is not to be had. A large one is a temporary file."""

        def ask(remote: Remote) -> bytes | OwnedFile | None:
            received = Received(self._largest, scratch)
            try:
                if not remote.get(f"cas/{digest}", received):
                    return None
                if received.sha256 != digest:
                    raise LevelFailed("sent an object that has not the digest it is named by")
            except BaseException:
                received.drop()
                raise
            self.count(bytes_read=received.size)
            return received.content()

        return self._do(self._reads, ask)

    def has(self, digest: str) -> bool | None:
        """Whether there is an object; None if the level does not say."""
        return self._do(self._reads, lambda remote: remote.has(f"cas/{digest}"))

    def put_object(self, digest: str, content: memoryview) -> bool:
        """Keep an object; whether that was done."""
        return self._put(f"cas/{digest}", content)

    def put_record(self, digest: str, payload: bytes) -> bool:
        """Keep a record, of which all objects are there; whether that was done."""
        return self._put(f"ac/{digest}", memoryview(seal("record", digest, payload)))

    def count(self, **more: float) -> None:
        """Add to `counts`."""
        with self._lock:
            self.counts += LevelCounts(self.level.label, **more)  # pyright: ignore[reportArgumentType]

    def trouble(self, failure: LevelFailed) -> None:
        """Count a failure; the user is told of the first."""
        self.count(failures=1)
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            text = f"cache level {self.level.label} failed; the build goes on without it"
            help = failure.help or "`dlc doctor` asks every level"
            self._warn(Diagnostic("cache-level", text, "warning", notes=(failure.reason,), help=help))

    def close(self) -> None:
        """Let connections go."""
        if self._remote is not None:
            self._remote.close()

    def _put(self, place: str, content: memoryview) -> bool:
        def ask(remote: Remote) -> bool:
            remote.put(place, content)
            return True

        done = self._do(self._writes, ask) or False
        if done:
            self.count(bytes_written=content.nbytes)
        return done

    def _do(self, breaker: Breaker, ask: Callable[[Remote], T]) -> T | None:
        if not breaker.allows():
            return None
        for attempt in range(2):
            try:
                result = ask(self._opened())
            except LevelFailed as failure:
                if failure.again and not attempt:
                    time.sleep(_PAUSE)
                    continue
                breaker.failed(lasting=failure.lasting)
                self.trouble(failure)
                return None
            except OSError as failure:  # of this machine: a full disk, too many open files
                self.trouble(LevelFailed(f"what it sent could not be kept: {failure.strerror}"))
                return None
            breaker.worked()
            return result
        return None

    def _opened(self) -> Remote:
        with self._lock:
            self._remote = self._remote or open_remote(self.level, self._timeout)
            return self._remote
