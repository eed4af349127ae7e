"""Large objects: one sealed file per object, named by its digest.

    objects/ab/cdef…   the sealed object, in place by one rename
    tmp/….tmp          being written; swept by age after a kill
    corrupt/…          found damaged, kept for inspection, swept by age

Readers take no lock. Files are never changed in place, so an opened or mapped one stays what it was verified to be.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlc.cache.envelope import HEADER_SIZE, Damaged, Header, pack_header, unpack_header
from dlc.cache.rows import HEX_NAME
from dlc.cache.store import CHUNK, Entry
from dlc.files.hashing import OwnedFile

_STALE_TEMPORARY = 3600.0  # seconds; writing one object takes far less
_STALE_CORRUPT = 7 * 86400.0
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # not blocking: a planted FIFO cannot hang us
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_TOUCH_AFTER = 600.0  # seconds between two notes of use: a build that reads 500 objects should not write 500 inodes


@dataclass(frozen=True)
class Blobs:
    """The object files under a private directory. Methods raise OSError, and Damaged where they read content."""

    root: Path
    touch_after: float = _TOUCH_AFTER

    def path(self, digest: str) -> Path:
        """Where the object is or would be."""
        assert HEX_NAME.fullmatch(digest), digest  # names from outside are checked where they come in
        return self.root / "objects" / digest[:2] / digest[2:]

    def has(self, digest: str) -> bool:
        """Whether a file is there."""
        return self.path(digest).is_file()

    def size(self, digest: str) -> int:
        """Bytes of the file; 0 if there is none."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, digest: str) -> bytes | None:
        """The verified payload, None if absent."""
        fd = self._open(digest)
        if fd is None:
            return None
        with os.fdopen(fd, "rb", buffering=0) as file:
            header = _header(fd, digest)
            file.seek(HEADER_SIZE)
            payload = file.readall()
        header.check(len(payload), hashlib.sha256(payload).hexdigest())
        return payload

    def view(self, digest: str) -> memoryview | None:
        """The payload memory-mapped, after verifying it as a stream; None if absent."""
        fd = self._open(digest)
        if fd is None:
            return None
        try:
            header = _verify(fd, digest)
            if header.length == 0:
                return memoryview(b"")
            mapped = mmap.mmap(fd, HEADER_SIZE + header.length, access=mmap.ACCESS_READ)
            return memoryview(mapped)[HEADER_SIZE:]
        finally:
            os.close(fd)

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The payload in pieces. Damage, or absence, is raised as late as the end: the taker must be able to undo."""
        fd = self._open(digest)
        if fd is None:
            raise Damaged("object was removed")
        try:
            header = _header(fd, digest)
            content, offset = hashlib.sha256(), HEADER_SIZE
            while chunk := os.pread(fd, CHUNK, offset):
                content.update(chunk)
                offset += len(chunk)
                yield chunk
            header.check(offset - HEADER_SIZE, content.hexdigest())
        finally:
            os.close(fd)

    def check(self, digest: str) -> bool:
        """Verify one object; False if absent."""
        fd = self._open(digest)
        if fd is None:
            return False
        try:
            _verify(fd, digest)
        finally:
            os.close(fd)
        return True

    def write(self, digest: str, payload: bytes | memoryview) -> None:
        """File `payload`, whose SHA-256 is `digest`."""
        view = memoryview(payload).cast("B")
        temporary, fd = self._temporary()
        try:
            with os.fdopen(fd, "wb", buffering=0) as file:
                for piece in (pack_header("object", digest, len(view), digest), view):
                    _write_all(file.fileno(), memoryview(piece))
            self._publish(temporary, digest)
        except BaseException:
            _unlink(temporary)
            raise

    def write_file(self, source: Path, expected: str) -> None:
        """File the content of `source` under its SHA-256, unless that turns out not to be `expected`: then the file
        changed meanwhile and the object would be filed under a name that nobody asked for. Nobody changes a file of
        our own."""
        temporary, fd = self._temporary()
        ours = isinstance(source, OwnedFile)
        try:
            digest, length = hashlib.sha256(), 0
            with os.fdopen(fd, "wb", buffering=0), source.open("rb", buffering=0) as file:
                os.lseek(fd, HEADER_SIZE, os.SEEK_SET)  # the header comes last: only then the length is known
                while chunk := file.read(CHUNK):
                    if not ours:
                        digest.update(chunk)
                    length += len(chunk)
                    _write_all(fd, memoryview(chunk))
                os.pwrite(fd, pack_header("object", expected, length, expected), 0)
            if ours or digest.hexdigest() == expected:
                self._publish(temporary, expected)
            else:
                temporary.unlink()
        except BaseException:
            _unlink(temporary)
            raise

    def touch(self, digest: str, now: float) -> None:
        """Note the use of an object, unless that was done lately. Trouble is ignored: it only affects eviction."""
        with suppress(OSError):
            path = self.path(digest)
            if now - path.stat().st_mtime > self.touch_after:
                os.utime(path, (now, now), follow_symlinks=False)

    def entries(self) -> Iterator[Entry]:
        """Every object, with the size of its file."""
        for folder in _listed(self.root / "objects"):
            for file in _listed(folder):
                digest = folder.name + file.name
                with suppress(OSError):  # removed by another process since it was listed
                    status = file.stat(follow_symlinks=False)
                    if HEX_NAME.fullmatch(digest):
                        yield Entry(digest, "object", status.st_size, status.st_mtime)

    def remove(self, digest: str) -> None:
        """Remove an object; an absent one is ignored."""
        _unlink(self.path(digest))

    def quarantine(self, digest: str) -> None:
        """Set a damaged object aside; it is absent afterwards."""
        folder = self.root / "corrupt"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.replace(self.path(digest), folder / f"{digest}.{secrets.token_hex(4)}")

    def quarantine_bytes(self, digest: str, raw: bytes) -> None:
        """Keep the content of a damaged row for inspection."""
        folder = self.root / "corrupt"
        folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(folder / f"{digest}.{secrets.token_hex(4)}", _WRITE_FLAGS, 0o600)
        with os.fdopen(fd, "wb", buffering=0):
            _write_all(fd, memoryview(raw))

    def quarantined(self) -> int:
        """How many damaged things are set aside."""
        return len(_listed(self.root / "corrupt"))

    def sweep(self, *, corrupt_age: float = _STALE_CORRUPT) -> None:
        """Remove temporary files of killed writers, and quarantined ones that are `corrupt_age` seconds old."""
        now = time.time()
        for folder, age in (("tmp", _STALE_TEMPORARY), ("corrupt", corrupt_age)):
            for file in _listed(self.root / folder):
                with suppress(OSError):
                    if now - file.stat(follow_symlinks=False).st_mtime >= age:
                        file.unlink()

    def _open(self, digest: str) -> int | None:
        try:
            fd = os.open(self.path(digest), _READ_FLAGS)
        except FileNotFoundError:
            return None
        except OSError as failure:
            if failure.errno == errno.ELOOP:
                raise Damaged("object is a symbolic link") from failure
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Damaged("object is not a regular file")
        return fd

    def _temporary(self) -> tuple[Path, int]:
        folder = self.root / "tmp"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{secrets.token_hex(12)}.tmp"
        return path, os.open(path, _WRITE_FLAGS, 0o600)

    def _publish(self, temporary: Path, digest: str) -> None:
        target = self.path(digest)
        for folder in (target.parent.parent, target.parent):  # `parents=True` would give the outer one another mode
            folder.mkdir(mode=0o700, exist_ok=True)
        os.replace(temporary, target)


def _header(fd: int, digest: str) -> Header:
    header = unpack_header(os.pread(fd, HEADER_SIZE, 0), "object", digest)
    size = os.fstat(fd).st_size
    if size != HEADER_SIZE + header.length:  # before anything is read or mapped: a bad length must not cost memory
        raise Damaged(f"file has {size} bytes, header promises {HEADER_SIZE + header.length}")
    return header


def _verify(fd: int, digest: str) -> Header:
    header = _header(fd, digest)
    content, offset = hashlib.sha256(), HEADER_SIZE
    while chunk := os.pread(fd, CHUNK, offset):
        content.update(chunk)
        offset += len(chunk)
    header.check(offset - HEADER_SIZE, content.hexdigest())
    return header


def _write_all(fd: int, view: memoryview) -> None:
    view = view.cast("B")
    while view:
        view = view[os.write(fd, view) :]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
