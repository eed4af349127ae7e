"""The cache as the session sees it: steps in, records out, every miss explainable.

records   by key digest        what a step made, and the text of everything it depended on
objects   by content digest    the bytes themselves, stored once however many records name them
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeAlias

from dlc.base.cache_levels import NO_LEVELS, Levels
from dlc.base.cache_settings import DEFAULT_SIZE, CacheMode
from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, error
from dlc.cache.counts import Counts, merge_counts
from dlc.cache.directory import NOT_A_CACHE
from dlc.cache.envelope import HEADER_SIZE, Damaged
from dlc.cache.files import file_digest, input_digest, remember_file
from dlc.cache.holdings import Holdings
from dlc.cache.key import Key
from dlc.cache.local import LocalStore
from dlc.cache.location import cache_directory
from dlc.cache.memory import MemoryStore
from dlc.cache.record import Record
from dlc.cache.signing import EVERYTHING, Policy, causes_of
from dlc.cache.store import Store
from dlc.cache.upkeep import Statistics, Trimmed, Verification, clear, complete, survey, trim, verify, why
from dlc.files.hashing import Algorithm, OwnedFile, content_sha256, content_size, settled_digest
from dlc.files.inputs import active_or_none

Payload: TypeAlias = bytes | memoryview | Path

_COMPACT_ABOVE: Final = 64  # statistics entries, one per process, that are kept before they are summed into one


class Cache:
    """Results of steps in a `Store`. Threads may share one.

    Modes: `rw`; `ro` writes nothing; `off` neither reads nor writes; `require` turns a miss into DlcError (exit 7);
    `refresh` rebuilds and overwrites everything. `size_limit` is in bytes and kept by evicting at `close`, where the
    entries that this cache looked up or saved stay; a result that would take these over the limit is refused. `policy`
    says which records are used, and signs those that are saved.
    """

    def __init__(
        self, store: Store, mode: CacheMode, *, size_limit: int | None = None, policy: Policy = EVERYTHING
    ) -> None:
        self.store = store
        self.mode: CacheMode = mode
        self.policy = policy
        self._size_limit = size_limit
        self._lock = threading.Lock()  # guards the five below
        self._holdings = Holdings(size_limit)
        self._counts = Counts()
        self._saved = Counts()  # the part of them that the store has
        self._refused: set[str] = set()  # key digests whose records are there and not used
        self._flights: dict[str, tuple[threading.Lock, int]] = {}  # lock and number of threads, by key digest

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings about the store for the user, each once."""
        own = self.policy.own.warnings if self.policy.own else ()
        return (*self.store.warnings, *self._holdings.warnings, *own, *_untrusted(self._counts))

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def flight(self, key: Key) -> Generator[None]:
        """Let one thread at a time look up, build and save `key`: the second then finds the first one's result."""
        with self._lock:
            lock, threads = self._flights.get(key.digest, (threading.Lock(), 0))
            self._flights[key.digest] = (lock, threads + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, threads = self._flights.pop(key.digest)
                if threads > 1:
                    self._flights[key.digest] = (lock, threads - 1)

    @contextmanager
    def alone(self, key: Key, waiting: Callable[[], None]) -> Generator[bool]:
        """Let one process at a time make the result of `key`; whether another one may have made it meanwhile.

        `waiting` is called if there is one to wait for. Only processes that read and write the cache wait.
        """
        here = self.store.here
        if self.mode != "rw" or not isinstance(here, LocalStore) or here.access != "rw":
            yield False
            return
        with here.flights.alone(key.digest, waiting) as waited:
            yield waited or here.has(key.digest, "record")

    def lookup(self, key: Key) -> Record | None:
        """The record saved under `key`, if all its outputs are present; else None.

        In `require`, DlcError with exit code 7 that names the lines in which the key differs from the nearest one.
        """
        if self.mode == "off":
            return None
        record, refusal = (None, "") if self.mode == "refresh" else self._examined(key.digest)
        if record is not None and complete(self.store, record):
            if not record.leads_on:
                self._count(Counts(hits=1, ms_saved=record.milliseconds))
            return record
        self._count(replace(Counts(misses=1), **({refusal: 1} if refusal else {})))
        if refusal:
            self._refused.add(key.digest)
        if self.mode == "require":
            raise _miss(f"step {key.value('step')} has no cached result", self.why(key))
        return None

    def read(self, object_digest: str) -> bytes | None:
        """The bytes of an output, verified; None if absent or damaged (in `require`, DlcError with exit code 7)."""
        payload = None if self.mode == "off" else self.store.get(object_digest)
        if payload is None:
            return self._lost(object_digest)
        self._count(Counts(bytes_read=len(payload)))
        return payload

    def view(self, object_digest: str) -> memoryview | None:
        """Like `read`, but a large object is memory-mapped instead of copied."""
        payload = None if self.mode == "off" else self.store.view(object_digest)
        if payload is None:
            return self._lost(object_digest)
        self._count(Counts(bytes_read=len(payload)))
        return payload

    def file(self, object_digest: str) -> OwnedFile | None:
        """The verified file of a large output; None where `view` has to be asked."""
        found = None if self.mode == "off" else self.store.file(object_digest)
        if found is not None:
            self._count(Counts(bytes_read=content_size(found)))
        return found

    def scratch(self, size: int) -> Path | None:
        """Where a temporary file of at most `size` bytes is saved without a copy; None: anywhere else."""
        return self.store.scratch(size) if self.mode in ("rw", "refresh") else None

    def export(self, object_digest: str, target: Path) -> bool:
        """Copy an output to a file, verified on the way; False (in `require`, DlcError) if absent or damaged.

        `target` is replaced atomically or stays as it was. OSError if it cannot be written.
        """
        if self.mode == "off" or not self.store.export(object_digest, target):
            self._lost(object_digest)
            return False
        self._count(Counts(bytes_read=target.stat().st_size))
        return True

    def save(self, key: Key, outputs: Mapping[str, Payload], meta: Mapping[str, str]) -> Record:
        """File the outputs of a step (bytes, or the path of a file) and the record that names them.

        `meta["ms"]` is how long the step took. In `ro`, `off` and `require` nothing is stored, nor is a result
        beyond the size limit. Returns the record.

        Raises DlcError where a file that the build has read changed since.
        """
        if (inputs := active_or_none()) is not None:
            inputs.check()
        named = {name: (content_sha256(payload), payload) for name, payload in outputs.items()}
        outputs_by_name = tuple((name, digest) for name, (digest, _) in named.items())
        record = Record(key.text, outputs_by_name, tuple(meta.items()))
        if self.mode not in ("rw", "refresh"):
            return record
        record = self.policy.signed(record)
        text = record.to_bytes()
        if not self._admitted(key, len(text), dict(named.values())):
            return record
        for digest, payload in named.values():
            if isinstance(payload, Path):
                self.store.put_file(payload, replace=self.mode == "refresh")
            else:
                self.store.put(digest, payload, replace=self.mode == "refresh")
            self._count(Counts(bytes_written=content_size(payload)))
        # Last: whoever finds the record finds its objects.
        heals = self.policy.signer is not None and key.digest in self._refused
        self.store.put(key.digest, text, "record", replace=heals or self.mode == "refresh")
        return record

    def _admitted(self, key: Key, record: int, payloads: Mapping[str, Payload]) -> bool:
        """Whether a record of so many bytes and its objects fit the size limit; they are then held."""
        sizes = {digest: self.store.cost(payload) for digest, payload in payloads.items()}
        sizes[key.digest] = HEADER_SIZE + record
        with self._lock:
            fits = self._holdings.admit(sizes, key.step_name, self.store)
        if fits:
            self.store.hold(tuple(sizes))
        return fits

    def _hold(self, *digests: str) -> None:
        """Entries that this process uses are evicted neither by itself nor by others."""
        with self._lock:
            new = self._holdings.use(digests)
        if new:
            self.store.hold(new)

    def recall(self, digests: Sequence[str]) -> tuple[Record, ...] | None:
        """The records of steps that ran one after another, by digests of their keys; None unless all are there and the
        last one's outputs are. They count as hits only then."""
        found = [] if self.mode in ("off", "refresh") else [self.peek(digest) for digest in digests]
        known = tuple(record for record in found if record is not None)
        if not known or len(known) < len(digests) or not complete(self.store, known[-1]):
            return None
        self._count(Counts(hits=len(known), ms_saved=sum(record.milliseconds for record in known)))
        return known

    def peek(self, digest: str) -> Record | None:
        """The record under the digest of a key, without counting and without asking for its outputs."""
        return self._examined(digest)[0]

    def _examined(self, digest: str) -> tuple[Record | None, str]:
        """The record under the digest of a key; where there is one that is not used, why."""
        payload = None if self.mode in ("off", "refresh") else self.store.get(digest, "record")
        try:
            record = None if payload is None else Record.from_bytes(payload)
        except Damaged:  # sealed well, so written by another version of dlc
            return None, ""
        if record is None or record.key.digest != digest:
            return None, ""
        if refusal := self.policy.refusal(record):
            return None, refusal
        # Held before its outputs are asked for: who evicts meanwhile leaves them. What it was made from is used with
        # it: after a small change the next build asks for most of that.
        self._hold(digest, *(output for _, output in record.outputs), *record.parts)
        return record, ""

    def file_sha256(self, path: Path) -> str:
        """SHA-256 of a file on disk; one that has not changed since it was last asked for is not read. OSError."""
        return self._file_digest(path, "sha256")

    def source_digest(self, path: Path) -> str:
        """The same for `Source.digest` of a model's file, as the build that is going on read it."""
        inputs = active_or_none()
        if inputs is None:
            return self._file_digest(path, "blake3")
        if self.mode in ("off", "refresh"):
            return inputs.open(path).digest("blake3")
        writes = self.mode == "rw"
        return input_digest(self.store.here, inputs, path, "blake3", writes=writes, policy=self.policy)

    def _file_digest(self, path: Path, algorithm: Algorithm) -> str:
        if self.mode in ("off", "refresh"):
            return settled_digest(path, algorithm)
        return file_digest(self.store.here, path, algorithm, writes=self.mode == "rw", policy=self.policy)

    def remember_file(self, path: Path, digest: str) -> None:
        """Note the SHA-256 of a file on disk for `file_sha256`. OSError if it is not there."""
        if self.mode in ("rw", "refresh"):
            remember_file(self.store.here, path, digest, "sha256", policy=self.policy)

    def why(self, key: Key) -> str:
        """Why `key` is a miss: the nearest earlier record of the same step, and the lines that differ."""
        return why(self.store, key, self.policy)

    def has(self, record: Record) -> bool:
        """Whether a lookup of a record's key would give it: it is trusted and its outputs are present."""
        return not self.policy.refusal(record) and complete(self.store, record)

    @property
    def counts(self) -> Counts:
        """Counts since the cache was opened."""
        return self._session()

    def statistics(self) -> Statistics:
        """Counts of this process and of all, and what the store holds."""
        return survey(self.store, session=self._session(), unsaved=self._unsaved())

    def verify(self) -> Verification:
        """Re-hash every entry. Damaged ones are set aside, where that is allowed."""
        return verify(self.store)

    def trim(self, max_bytes: int) -> Trimmed:
        """Evict the least recently used entries until all take at most `max_bytes`. Statistics stay."""
        return trim(self.store, max_bytes)

    def clear(self) -> Trimmed:
        """Remove everything, statistics and things set aside included."""
        done = clear(self.store)
        with self._lock:
            self._counts, self._saved = Counts() - self._of_store(), Counts()
        return done

    def close(self) -> None:
        """Wait for uploads, keep this process's counts, evict down to the size limit if anything was written, and
        release the store."""
        if self.mode in ("rw", "refresh"):
            self.store.settle()
            self._save_counts()
            if self._counts.bytes_written or any(level.bytes_read for level in self.store.levels):
                self.make_room(self._holdings.entries.keys())
        self.store.close()

    def make_room(self, keep: Set[str]) -> None:
        """Evict down to the size limit, but none of `keep`."""
        if self._size_limit is None:
            return
        # Down to 90 %, so that not every build has to evict.
        if sum(entry.cost for entry in self.store.entries()) > self._size_limit:
            cost = attrgetter("cost")  # what a result shares would not be free without the entry either
            trim(self.store, self._size_limit * 9 // 10, keep, cost)
        else:
            self.store.sweep()

    def _lost(self, digest: str) -> None:
        """An output that a record promised is not to be had."""
        if self.mode == "require":
            raise _miss(f"object {digest[:16]}… is absent or damaged", "a record names it as its output")

    def _count(self, more: Counts) -> None:
        with self._lock:
            self._counts += more

    def _session(self) -> Counts:
        """Counts since the cache was opened."""
        with self._lock:
            return self._counts + self._of_store()

    def _of_store(self) -> Counts:
        """What the store counts by itself."""
        return Counts(errors=self.store.errors, levels=self.store.levels)

    def _unsaved(self) -> Counts:
        session = self._session()
        return session - self._saved

    def _save_counts(self) -> None:
        """File what was counted since the last time under a fresh name: no process ever waits for another's counts,
        and a kill loses its own process's counts only."""
        unsaved = self._unsaved()
        if unsaved == Counts():
            return
        self.store.put(secrets.token_hex(32), unsaved.to_bytes(), "stat")
        self._saved += unsaved
        if sum(1 for entry in self.store.entries() if entry.table == "stat") > _COMPACT_ABOVE:
            self.store.compact_stats(merge_counts)


def open_cache(
    directory: Path | None,
    mode: CacheMode,
    *,
    size_limit: int | None = DEFAULT_SIZE,
    levels: Levels = NO_LEVELS,
    policy: Policy = EVERYTHING,
) -> Cache:
    """The cache in `directory` (None: the user's cache directory) with `levels` behind it, ready for `mode`.

    An unfit directory is no error: `Cache.warnings` then says why the build goes on without. Raises DlcError (USAGE)
    for a directory that holds something else than a cache.
    """
    if mode == "off":
        return Cache(MemoryStore(), mode)
    readonly = mode in ("ro", "require")
    place = cache_directory(directory)
    # A machine that only reads what others made may never have had a directory.
    absent = readonly and bool(levels.levels) and not place.exists()
    store: Store = MemoryStore() if absent else LocalStore(place, readonly=readonly)
    if other := next((w for w in store.warnings if w.code == NOT_A_CACHE), None):
        raise DlcError(other, exit_code=ExitCode.USAGE)
    if levels.levels:
        from dlc.cache.levels import LeveledStore  # a build that only uses the directory does not pay for it

        largest = size_limit or DEFAULT_SIZE
        store = LeveledStore(store, levels, writes=not readonly, largest=largest, policy=policy)
    return Cache(store, mode, size_limit=size_limit, policy=policy)


def _untrusted(counts: Counts) -> Iterator[Diagnostic]:
    """That results were there, but not used."""
    if refused := counts.refused:
        text = f"{sum(refused.values())} results of the cache were not used: {causes_of(refused)}"
        help = "`dlc cache why` names them; with DLC_CACHE_SIGNING_KEY, what is built here is signed"
        if refused.keys() <= {"foreign", "altered"}:
            help = "they are built again; machines that share a cache need the same secret text in DLC_CACHE_KEY"
        yield Diagnostic("cache-untrusted", text, "warning", help=help)


def _miss(message: str, reason: str) -> DlcError:
    return error(
        "cache-miss",
        f"{message}, and the cache is required to have it",
        notes=reason.splitlines(),
        help="build once with `--cache rw`, or restore the cache that this build expects",
        exit_code=ExitCode.CACHE_MISS,
    )
