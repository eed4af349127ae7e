"""Large objects: one file per object, named by the SHA-256 of its content.

    objects/ab/cdef…   the object, in place by one rename; of a large one, results may hold a second name (a hard link)
    tmp/…              being written; swept by age after a kill
    corrupt/…          found damaged, kept for inspection, swept by age

Readers take no lock. Files are never changed in place, so an opened or mapped one stays what it was verified to be; one
with several names is read-only.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlc.cache.envelope import Damaged
from dlc.cache.rows import HEX_NAME
from dlc.cache.store import CHUNK, Entry
from dlc.files.hashing import OwnedFile
from dlc.files.linking import LINK_ABOVE, linked
from dlc.files.writing import write_atomically

_STALE_TEMPORARY = 3600.0  # seconds; writing one object takes far less
_STALE_CORRUPT = 7 * 86400.0
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # not blocking: a planted FIFO cannot hang us
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_TEMPORARY = re.compile(r"[0-9a-f]{24}\.tmp|dlc-[A-Za-z0-9_]{8}")
"""A file of ours that is being written, or a directory of `OwnedFile`."""
_QUARANTINED = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{8}")
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

    def shared(self, digest: str) -> bool:
        """Whether the file has other names."""
        try:
            return self.path(digest).stat().st_nlink > 1
        except FileNotFoundError:  # another process removed it since
            return False

    def becomes_shared(self, payload: bytes | memoryview | Path) -> bool:
        """Whether a payload is a file of ours that a result gets as a second name."""
        if not isinstance(payload, OwnedFile) or not payload.is_relative_to(self.root):
            return False
        return payload.stat().st_size > LINK_ABOVE

    def read(self, digest: str) -> bytes | None:
        """The verified content, None if absent."""
        fd = self._open(digest)
        if fd is None:
            return None
        with os.fdopen(fd, "rb", buffering=0) as file:
            content = file.readall()
        _check(digest, hashlib.sha256(content).hexdigest())
        return content

    def view(self, digest: str) -> memoryview | None:
        """The content memory-mapped, after verifying it as a stream; None if absent."""
        fd = self._open(digest)
        if fd is None:
            return None
        try:
            _verify(fd, digest)
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(fd)

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The content in pieces. Damage, or absence, is raised as late as the end: the taker must be able to undo."""
        fd = self._open(digest)
        if fd is None:
            raise Damaged("object was removed")
        try:
            content, offset = hashlib.sha256(), 0
            while chunk := os.pread(fd, CHUNK, offset):
                content.update(chunk)
                offset += len(chunk)
                yield chunk
            _check(digest, content.hexdigest())
        finally:
            os.close(fd)

    def file(self, digest: str) -> OwnedFile | None:
        """The verified file of a large object; None if it is small or absent."""
        if self.size(digest) <= LINK_ABOVE or not self.check(digest):
            return None
        found = OwnedFile(self.path(digest))
        found.written(digest)
        return found

    def export(self, digest: str, target: Path, *, link: bool) -> None:
        """Make `target` hold the verified content, by a second name of a large object if `link`. OSError, Damaged."""
        if link and (file := self.file(digest)):
            temporary = target.with_name(f".{secrets.token_hex(12)}.tmp")
            if linked(file, temporary):
                os.replace(temporary, target)
                _unlink(temporary)
                return
        write_atomically(target, self.chunks(digest))

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
        temporary, fd = self._temporary()
        try:
            with os.fdopen(fd, "wb", buffering=0):
                _write_all(fd, memoryview(payload))
            self._publish(temporary, digest)
        except BaseException:
            _unlink(temporary)
            raise

    def write_file(self, source: Path, expected: str) -> None:
        """File the content of `source` under its SHA-256, unless that turns out not to be `expected`: then the file
        changed meanwhile and the object would be filed under a name that nobody asked for. Nobody changes a file of
        our own, so a large one becomes the object itself."""
        ours = isinstance(source, OwnedFile)
        if ours and source.stat().st_size > LINK_ABOVE:
            temporary = self._temporary_path()
            if linked(source, temporary):
                self._publish(temporary, expected)
                _unlink(temporary)  # a rename onto another name of the same file does nothing
                return
        temporary, fd = self._temporary()
        try:
            digest = hashlib.sha256()
            with os.fdopen(fd, "wb", buffering=0), source.open("rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    if not ours:
                        digest.update(chunk)
                    _write_all(fd, memoryview(chunk))
            if ours or digest.hexdigest() == expected:
                self._publish(temporary, expected)
            else:
                temporary.unlink()
        except BaseException:
            _unlink(temporary)
            raise

    def scratch(self) -> Path:
        """Where temporary files may be made that become objects."""
        folder = self.root / "tmp"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

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
                        yield Entry(digest, "object", status.st_size, status.st_mtime, status.st_nlink > 1)

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
        return sum(1 for file in _listed(self.root / "corrupt") if _QUARANTINED.fullmatch(file.name))

    def sweep(self, *, corrupt_age: float = _STALE_CORRUPT) -> None:
        """Remove temporary files of killed writers, and quarantined ones that are `corrupt_age` seconds old.

        What has no name that we give stays, whoever put it there.
        """
        now = time.time()
        for folder, names, age in (
            ("tmp", _TEMPORARY, _STALE_TEMPORARY),
            ("corrupt", _QUARANTINED, corrupt_age),
        ):
            for file in _listed(self.root / folder):
                with suppress(OSError):
                    if names.fullmatch(file.name) and now - file.stat(follow_symlinks=False).st_mtime >= age:
                        _remove_flat(file)

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
        path = self._temporary_path()
        return path, os.open(path, _WRITE_FLAGS, 0o644)  # a result may be a second name of it

    def _temporary_path(self) -> Path:
        return self.scratch() / f"{secrets.token_hex(12)}.tmp"

    def _publish(self, temporary: Path, digest: str) -> None:
        target = self.path(digest)
        for folder in (target.parent.parent, target.parent):  # `parents=True` would give the outer one another mode
            folder.mkdir(mode=0o700, exist_ok=True)
        os.replace(temporary, target)


def _verify(fd: int, digest: str) -> None:
    content, offset = hashlib.sha256(), 0
    while chunk := os.pread(fd, CHUNK, offset):
        content.update(chunk)
        offset += len(chunk)
    _check(digest, content.hexdigest())


def _check(digest: str, found: str) -> None:
    if found != digest:
        raise Damaged(f"object has SHA-256 {found[:16]}…, not the {digest[:16]}… that it is named by")


def _write_all(fd: int, view: memoryview) -> None:
    view = view.cast("B")
    while view:
        view = view[os.write(fd, view) :]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_flat(path: Path) -> None:
    """Remove a file, a link, or a directory of such; ours have no directories in them. OSError as usual."""
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def _unlink(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
