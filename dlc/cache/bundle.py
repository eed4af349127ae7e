"""Results of a cache as one compressed file, to be carried to another machine.

    offset  0  8 bytes   magic  b"dlc\\xf0\\x9f\\x93\\xa6\\n"
            8  u32       version of this layout
           12  u32       zero
           16  zlib      members, each a header (`dlc.cache.envelope`) and its payload; then the end

The objects of a result stand before its record, so whatever was read up to a damage is whole. Results are in the order
of their keys' texts: the same results make the same bytes. The end has the size of a header and says how many members
and bytes of payload there were, and the SHA-256 of all headers. Digests of files on disk stay at home: they are facts
about one machine.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from dlc.base.diagnostics import DlcError, Location, error
from dlc.cache.envelope import HEADER_SIZE, Damaged, Header, Table, pack_header, read_header
from dlc.cache.files import STEP as FILE_STEP
from dlc.cache.record import Record, without_mac
from dlc.cache.signing import EVERYTHING, Policy
from dlc.cache.store import CHUNK, Store
from dlc.cache.upkeep import complete, records
from dlc.files.hashing import OwnedFile
from dlc.files.linking import LINK_ABOVE
from dlc.files.writing import write_atomically

_MAGIC: Final = b"dlc\xf0\x9f\x93\xa6\n"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sII")
_END: Final = struct.Struct("<8sQQ32s72s")
_END_MAGIC: Final = b"dlc-end\n"
assert _END.size == HEADER_SIZE
_LEVEL: Final = 6
_LONGEST_RECORD: Final = 64 << 20
"""Bytes; a row of the index is no longer either."""

Telling = Callable[[str, int], None]
"""Told what is at work, and how many bytes (of the file that is read, of payload that is written) are done."""


def _silent(what: str, done: int) -> None:
    del what, done


@dataclass(frozen=True)
class Exported:
    """What a bundle was made of."""

    records: int
    objects: int
    size: int
    """Bytes of payload."""
    lacking: int
    """Results of which some object is gone, by eviction or damage."""


@dataclass
class Imported:
    """What was read from a bundle, up to its end or to where it is damaged."""

    members: int = 0
    size: int = 0
    """Bytes of payload."""
    new_records: int = 0
    new_objects: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    """Records that were not taken, by cause."""
    digests: set[str] = field(default_factory=set[str])
    """Of all entries that are in the cache now."""

    @property
    def new(self) -> int:
        """Entries that the cache had not."""
        return self.new_records + self.new_objects


def chosen(store: Store, uses: Set[str] | None) -> list[Record]:
    """The results that a bundle of these digests holds (None: all there are), in their order."""
    found = [r for e, r in records(store) if e.digest == r.key.digest and (uses is None or e.digest in uses)]
    return sorted((r for r in found if r.key.step_name != FILE_STEP), key=lambda record: record.key_text)


def export_bundle(store: Store, results: Iterable[Record], target: Path, tell: Telling = _silent) -> Exported:
    """Write results with their objects to a file, whole or not at all. OSError if it cannot be written."""
    counts: Counter[str] = Counter()

    def members() -> Iterator[bytes | memoryview]:
        headers, done = hashlib.sha256(), set[str]()

        def member(table: Table, name: str, payload: bytes | memoryview) -> Iterator[bytes | memoryview]:
            sha256 = name if table == "object" else hashlib.sha256(payload).hexdigest()
            header = pack_header(table, name, len(payload), sha256)
            headers.update(header)
            counts[table] += 1
            counts["bytes"] += len(payload)
            yield header
            for start in range(0, len(payload), CHUNK):
                yield payload[start : start + CHUNK]
            tell(name, counts["bytes"])

        for record in results:
            for digest in dict.fromkeys(digest for _, digest in record.outputs):
                if digest not in done and store.has(digest) and (payload := store.view(digest)) is not None:
                    done.add(digest)
                    yield from member("object", digest, payload)
            counts["lacking"] += not all(digest in done for _, digest in record.outputs)
            yield from member("record", record.key.digest, without_mac(record).to_bytes())
        total = counts["object"] + counts["record"]
        yield _END.pack(_END_MAGIC, total, counts["bytes"], headers.digest(), bytes(72))

    def chunks() -> Iterator[bytes]:
        packing = zlib.compressobj(_LEVEL)
        yield _HEAD.pack(_MAGIC, _VERSION, 0)
        for part in members():
            yield packing.compress(part)
        yield packing.flush()

    write_atomically(target, chunks())
    return Exported(counts["record"], counts["object"], counts["bytes"], counts["lacking"])


def import_bundle(
    store: Store,
    path: Path,
    limit: int,
    policy: Policy = EVERYTHING,
    tell: Telling = _silent,
) -> Imported:
    """Put what a bundle holds into a store that can be written to.

    Args:
        store: Where it goes; nothing is written anywhere else.
        path: The bundle. It may be anybody's: lengths are held against `limit` before anything is kept, and every
            payload against its digest.
        limit: Bytes of payload that are taken at most.
        policy: Which records are taken; they are the user's own then.
        tell: See `Telling`.

    Raises:
        DlcError: the file cannot be read, or is damaged, with the offset; what stood before that is in the store.
    """
    done = Imported()
    try:
        with path.open("rb") as file:
            _Reading(store, file, limit, policy, tell, done).run()
    except OSError as problem:
        raise error(
            "cannot-read", f"{path} cannot be read: {problem.strerror or problem}", location=Location(str(path))
        ) from None
    except _Stop as stop:
        raise _problem(path, stop, done) from None
    return done


class _Stop(Exception):
    """Reading cannot go on: a code, a sentence, an offset and what to do."""

    def __init__(self, code: str, message: str, offset: int, help: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.offset, self.help = code, message, offset, help


def _problem(path: Path, stop: _Stop, done: Imported) -> DlcError:
    notes = [f"{done.members} members before that were read; {done.new} entries of them are new in the cache"]
    return error(
        stop.code,
        f"{path}: {stop.message}",
        location=Location(str(path), byte=stop.offset),
        notes=notes if done.members else (),
        help=stop.help or "transfer the file again, or export it anew",
    )


@dataclass
class _Reading:
    """One bundle on its way into a store."""

    store: Store
    file: BinaryIO
    limit: int
    policy: Policy
    tell: Telling
    done: Imported
    _inflate: zlib._Decompress = field(default_factory=zlib.decompressobj)  # pyright: ignore[reportPrivateUsage]
    _pending: bytes = b""
    _read: int = 0

    def run(self) -> None:
        """Read it to its end."""
        head = self.file.read(_HEAD.size)
        self._read = len(head)
        if len(head) < _HEAD.size or not head.startswith(_MAGIC):
            raise _Stop("bad-bundle", "not a bundle of dlc's cache", 0, "give a file of `dlc cache export`")
        _, version, rest = _HEAD.unpack(head)
        if version != _VERSION or rest:
            message = f"version {version} of the bundle's layout is not known; this dlc reads version {_VERSION}"
            raise _Stop("bad-bundle", message, 8, "export it anew with this version of dlc")
        headers = hashlib.sha256()
        while not (raw := self._bytes(HEADER_SIZE)).startswith(_END_MAGIC):
            headers.update(raw)
            self._member(raw)
        expected = _END.pack(_END_MAGIC, self.done.members, self.done.size, headers.digest(), bytes(72))
        if raw != expected:
            raise self._bad("its end does not fit the members before it")
        if self._more() or self._inflate.unused_data or self._pending or self.file.read(1):
            raise self._bad("there is something behind its end")

    @property
    def offset(self) -> int:
        """Bytes of the file that were used up."""
        return self._read - len(self._pending) - len(self._inflate.unused_data)

    def _bad(self, what: str) -> _Stop:
        return _Stop("bad-bundle", f"the bundle is damaged: {what}", self.offset)

    def _member(self, raw: bytes) -> None:
        try:
            table, name, header = read_header(raw)
            if table == "stat":
                raise Damaged("member is neither a result nor an object")
            if table == "record" and header.length > _LONGEST_RECORD:
                raise Damaged(f"record of {header.length:,} bytes; the longest has {_LONGEST_RECORD:,}")
            if self.done.size + header.length > self.limit:
                message = f"its payload is longer than the cache may be, which is {self.limit:,} bytes"
                raise _Stop("cache-limit", message, self.offset, "set cache.size of the configuration higher")
            self.tell(name, self.offset)
            if table == "record":
                self._record(name, header)
            else:
                self._object(name, header)
        except Damaged as damage:
            raise self._bad(f"member {self.done.members + 1}: {damage}") from None
        self.done.members += 1
        self.done.size += header.length

    def _record(self, name: str, header: Header) -> None:
        payload = self._bytes(header.length)
        header.check(len(payload), hashlib.sha256(payload).hexdigest())
        record = Record.from_bytes(payload)
        if record.key.digest != name:
            raise Damaged("record is not filed under the SHA-256 of its key")
        if record.key.step_name == FILE_STEP:
            raise Damaged("record is about a file of another machine")
        if cause := self.policy.refusal_elsewhere(record):
            self.done.refused[cause] += 1
            return
        if not self._has_record(name):
            self.store.put(name, self.policy.adopted(record).to_bytes(), "record")
            self._check_stored(name, "record")
            self.done.new_records += 1
        self.done.digests.add(name)

    def _has_record(self, name: str) -> bool:
        """Whether the store has a record of its own that it would use."""
        if not self.store.has(name, "record") or (payload := self.store.get(name, "record")) is None:
            return False
        try:
            own = Record.from_bytes(payload)
        except Damaged:
            return False
        return not self.policy.refusal(own) and complete(self.store, own)

    def _object(self, name: str, header: Header) -> None:
        if self.store.has(name):
            self._hashed(header, lambda _piece: None)
        else:
            if header.length > LINK_ABOVE:
                self._large(name, header)
            else:
                pieces: list[bytes] = []
                self._hashed(header, pieces.append)
                self.store.put(name, b"".join(pieces))
            self._check_stored(name, "object")
            self.done.new_objects += 1
        self.done.digests.add(name)

    def _large(self, name: str, header: Header) -> None:
        scratch = self.store.scratch(header.length)
        if scratch is None:
            message = f"the cache has no room for an object of {header.length:,} bytes"
            raise _Stop("no-space", message, self.offset, "free space, or give another directory with --cache-dir")
        temporary = OwnedFile.create("object", scratch)
        try:
            with temporary.open("xb") as file:
                self._hashed(header, file.write)
            temporary.written(name)
            self.store.put_file(temporary)
        finally:
            temporary.discard()

    def _hashed(self, header: Header, take: Callable[[bytes], object]) -> None:
        """Give the payload away in pieces. Raises Damaged at its end if it was another."""
        content = hashlib.sha256()
        for piece in self._pieces(header.length):
            content.update(piece)
            take(piece)
        header.check(header.length, content.hexdigest())

    def _check_stored(self, name: str, table: Table) -> None:
        if not self.store.has(name, table):
            notes = "; ".join(w.message for w in self.store.warnings) or "it cannot be written to"
            raise _Stop("cannot-write", f"the cache does not take it: {notes}", self.offset, "see to the cache first")

    def _bytes(self, length: int) -> bytes:
        return b"".join(self._pieces(length))

    def _pieces(self, length: int) -> Iterator[bytes]:
        """Inflated bytes: as many as asked for, at most `CHUNK` at a time."""
        while length:
            piece = self._some(min(length, CHUNK))
            length -= len(piece)
            yield piece

    def _some(self, most: int) -> bytes:
        """At least one inflated byte."""
        while True:
            try:
                piece = self._inflate.decompress(self._pending, most)
            except zlib.error as problem:
                raise self._bad(str(problem)) from None
            self._pending = self._inflate.unconsumed_tail
            if piece:
                return piece
            if self._inflate.eof or not self._fill():
                raise _Stop("bad-bundle", f"the bundle is truncated: it ends after {self._read:,} bytes", self._read)

    def _more(self) -> bool:
        """Whether there is inflated content left; the checksum at the end of it is read here."""
        while not self._inflate.eof:
            try:
                if self._inflate.decompress(self._pending, 1):
                    return True
            except zlib.error as problem:
                raise self._bad(str(problem)) from None
            self._pending = self._inflate.unconsumed_tail
            if not self._inflate.eof and not self._pending and not self._fill():
                raise _Stop("bad-bundle", f"the bundle is truncated: it ends after {self._read:,} bytes", self._read)
        return False

    def _fill(self) -> bool:
        self._pending = self.file.read(CHUNK)
        self._read += len(self._pending)
        return bool(self._pending)
