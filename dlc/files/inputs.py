"""The files that a build reads: what is hashed, what is used and what is checked before a result is kept is the same.

    active()      the files of the build that is going on, as one value: `Inputs`
    InputFile     one of them: its content as it was when it was first opened

A file that fits into memory is read once, and everything is made from these bytes. Of a larger one the digest of every
block is kept when it is hashed, and each block that is used later is held against that. Nothing is mapped: a mapped
file that somebody truncates ends the process.

Before anything is kept, `Inputs.check` looks whether the files are what they were: by what the file system says of
them, and by content where that is not enough.
"""

from __future__ import annotations

import errno
import hashlib
import io
import mmap
import os
import stat
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from dlc.base.diagnostics import DlcError, Location, error, escape
from dlc.files.hashing import Algorithm, bytes_blake3

KEPT: Final = 64 << 20
"""Bytes up to which a file is always kept in memory."""
MOST_KEPT: Final = 2 << 30
"""Bytes of all files that are kept in memory, where a quarter of what is free is not less."""
BLOCK: Final = 1 << 20
"""Bytes that are hashed and compared at once of a file that is not kept."""
SETTLED: Final = 100_000_000
"""Nanoseconds; the clock that stamps files ticks at least every 10 ms."""
SETTLED_COARSE: Final = 2_100_000_000
"""The same on file systems that keep whole or even seconds."""
_SECOND: Final = 1_000_000_000
_AGAIN: Final = 2_000_000
"""Nanoseconds for which a check counts: what is made from bytes in memory does not change meanwhile."""


class Identity(NamedTuple):
    """What the file system says of a file. While it is the same, so is the content, unless the file was `fresh`."""

    device: int
    inode: int
    size: int
    modified: int
    """Nanoseconds of the Unix time of the last change of the content."""
    changed: int
    """The same of content or status; no program can set it."""

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """That of a file's status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def is_settled(self, now: int) -> bool:
        """Whether any change after `now` (nanoseconds) shows: the clock has ticked since the last one."""
        coarse = self.modified % _SECOND == 0
        return now - max(self.modified, self.changed) > (SETTLED_COARSE if coarse else SETTLED)


class InputFile:
    """A regular file, pipe or device as it was when it was opened. Threads may share one. OSError as usual."""

    def __init__(self, path: Path, budget: int) -> None:
        """`budget`: bytes up to which its content is kept in memory."""
        self.path = path
        self._lock = threading.RLock()
        self._digests: dict[str, str] = {}
        self._blocks: list[bytes] = []  # BLAKE3 of every block, once it was hashed
        self._whole: weakref.ref[mmap.mmap] | None = None
        self._content: bytes | None = None
        start = time.time_ns()
        with path.open("rb", buffering=0) as file:
            self.identity = Identity.of(status := os.fstat(file.fileno()))
            self.is_file = stat.S_ISREG(status.st_mode)
            self._settled = self.identity.is_settled(start)
            if not self.is_file:
                self._content = _stream(file)
            elif self.size <= budget:
                self._content = file.readall()
                if len(self._content) != self.size:
                    raise self.is_other()

    @property
    def size(self) -> int:
        """Bytes."""
        return self.identity.size if self.is_file or self._content is None else len(self._content)

    @property
    def kept(self) -> int:
        """Bytes of it in memory."""
        return 0 if self._content is None else len(self._content)

    def digest(self, algorithm: Algorithm) -> str:
        """That of the content, in hexadecimal; it is computed once."""
        with self._lock:
            if algorithm not in self._digests:
                if self._content is None:
                    self._digests[algorithm] = self._hashed(algorithm)
                elif algorithm == "blake3":
                    self._digests[algorithm] = bytes_blake3(self._content)
                else:
                    self._digests[algorithm] = hashlib.sha256(self._content).hexdigest()
            return self._digests[algorithm]

    def read(self, offset: int, size: int) -> memoryview:
        """`size` bytes from `offset` on; fewer where the file ends before. Raises DlcError where it is another now."""
        size = max(0, min(size, self.size - offset))
        if self._content is not None:
            return memoryview(self._content)[offset : offset + size]
        found = memoryview(bytearray(size))
        self._fill(found, offset)
        return found.toreadonly()

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill `target` with the bytes from `offset` on, all of which are there. DlcError where they are others now."""
        if self._content is not None:
            target[:] = memoryview(self._content)[offset : offset + len(target)]
        else:
            self._fill(target, offset)

    def view(self) -> memoryview:
        """All of the content."""
        if self._content is not None:
            return memoryview(self._content)
        with self._lock:
            held = self._whole() if self._whole is not None else None
            if held is None:
                held = mmap.mmap(-1, self.size)  # memory that the system gives and takes page by page
                self._fill(memoryview(held), 0)
                self._whole = weakref.ref(held)
            return memoryview(held).toreadonly()

    def check(self) -> None:
        """Raises DlcError where the content is another than it was."""
        if not self.is_file:
            return
        with self._lock:
            now = time.time_ns()
            try:
                found = Identity.of(os.stat(self.path))
                if (self._settled and found == self.identity) or self._is_same(found):
                    self.identity, self._settled = found, found.is_settled(now)
                    return
            except OSError:
                pass
        raise self.is_other()

    def is_other(self) -> DlcError:
        """The error that the file changed."""
        return error(
            "input-changed",
            f"{escape(str(self.path))} changed while it was used",
            location=Location(str(self.path)),
            notes=("nothing that was made from it since is kept",),
            help="run the command again once nobody writes to the file; write files beside their place and rename them",
        )

    def _is_same(self, found: Identity) -> bool:
        """Whether the content of the file that is there now is what this one had; OSError as usual."""
        if found.size != self.identity.size:
            return False
        if self._content is not None:
            with self.path.open("rb", buffering=0) as file:
                return file.readall() == self._content
        if not self._digests:
            return found == self.identity  # nothing was used but what later reads compare
        return _stream_digest(self.path, *self._digests.items())

    def _hashed(self, algorithm: Algorithm) -> str:
        from blake3 import blake3

        whole = blake3() if algorithm == "blake3" else hashlib.sha256()
        blocks: list[bytes] = []
        buffer = memoryview(bytearray(BLOCK))
        with io.FileIO(self.path) as file:
            for start in range(0, self.size, BLOCK):
                part = buffer[: min(BLOCK, self.size - start)]
                self._exactly(file, part, start)
                whole.update(part)
                blocks.append(blake3(part).digest())
        if self._blocks and self._blocks != blocks:
            raise self.is_other()
        self._blocks = blocks
        return whole.hexdigest()

    def _fill(self, target: memoryview, offset: int) -> None:
        """Bytes of a file that is not kept: each block is that which was hashed."""
        with self._lock:
            blocks = self._blocks
        with io.FileIO(self.path) as file:
            if blocks:
                self._fill_known(file, target, offset, blocks)
                return
            self._exactly(file, target, offset)
            if Identity.of(os.fstat(file.fileno()))[:4] != self.identity[:4]:
                raise self.is_other()

    def _fill_known(self, file: io.FileIO, target: memoryview, offset: int, blocks: list[bytes]) -> None:
        from blake3 import blake3

        spare = memoryview(bytearray(BLOCK))
        end = offset + len(target)
        for number in range(offset // BLOCK, -(-end // BLOCK)):
            start = number * BLOCK
            size = min(BLOCK, self.size - start)
            inside = offset <= start and start + size <= end
            part = target[start - offset : start - offset + size] if inside else spare[:size]
            self._exactly(file, part, start)
            if blake3(part).digest() != blocks[number]:
                raise self.is_other()
            if not inside:
                low, high = max(offset, start), min(end, start + size)
                target[low - offset : high - offset] = part[low - start : high - start]

    def _exactly(self, file: io.FileIO, part: memoryview, offset: int) -> None:
        done = 0
        while done < len(part):
            count = os.preadv(file.fileno(), [part[done:]], offset + done)
            if not count:
                raise self.is_other()
            done += count


class Inputs:
    """The files of one build. Threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, InputFile] = {}
        self._texts: dict[str, bytes] = {}
        self._budget = -1  # bytes that more files may take; it is asked for when it matters
        self._checked = 0

    def open(self, path: Path, *, in_parts: bool = False) -> InputFile:
        """A file as it was when it was opened first; `in_parts`: one of which others read parts beside this process.

        OSError as usual, DlcError where it changed since.
        """
        place = os.path.abspath(path)
        with self._lock:
            found = self._files.get(place)
            if found is None:
                found = InputFile(path, KEPT)
                if not in_parts and not found.kept and (budget := self._left()) >= found.size > 0:
                    found = InputFile(path, budget)
                    self._budget -= found.kept
                self._files[place] = found
        return found

    def has(self, path: Path) -> bool:
        """Whether a file was opened."""
        with self._lock:
            return os.path.abspath(path) in self._files

    def once(self, path: Path) -> bytes:
        """The content of a file of settings, whose values are all that counts: read once, and not looked at again."""
        place = os.path.abspath(path)
        with self._lock:
            if place not in self._texts:
                self._texts[place] = path.read_bytes()
            return self._texts[place]

    def check(self, *, now: bool = False) -> None:
        """Raises DlcError where a file changed since it was opened; `now`: even if that was asked a moment ago."""
        with self._lock:
            files = tuple(self._files.values())
        moment = time.monotonic_ns()
        if now or moment - self._checked > _AGAIN:
            for file in files:
                file.check()
            self._checked = moment

    @contextmanager
    def active(self) -> Generator[Inputs]:
        """Make these the files of what runs in this thread meanwhile."""
        token = _ACTIVE.set(self)
        try:
            yield self
        finally:
            _ACTIVE.reset(token)

    def _left(self) -> int:
        """Bytes that files may take beside the small ones."""
        if self._budget < 0:
            from dlc.base.free_memory import free_memory

            self._budget = min(MOST_KEPT, free_memory() // 4)
        return self._budget


_ACTIVE: ContextVar[Inputs | None] = ContextVar("dlc-inputs", default=None)


def active() -> Inputs:
    """The files of the build that is going on; where there is none, files of their own."""
    return _ACTIVE.get() or Inputs()


def active_or_none() -> Inputs | None:
    """The files of the build that is going on."""
    return _ACTIVE.get()


class InputStream(io.RawIOBase):
    """A file of a build, read as one that is opened: for libraries that take such."""

    def __init__(self, file: InputFile) -> None:
        super().__init__()
        self._file, self._at = file, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.IOBase`."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        if start + offset < 0:
            raise ValueError(f"there is no place {start + offset} in a file")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """See `io.RawIOBase`."""
        part = memoryview(buffer).cast("B")
        size = max(0, min(len(part), self._file.size - self._at))
        self._file.read_into(part[:size], self._at)
        self._at += size
        return size


def input_stream(path: Path) -> BinaryIO:
    """A file of the build that is going on, opened to read parts of it. OSError as usual."""
    return cast("BinaryIO", io.BufferedReader(InputStream(active().open(path, in_parts=True))))


def input_bytes(path: Path, most: int) -> bytes:
    """The content of a file of the build that is going on, up to one byte more than `most`. OSError as usual."""
    return bytes(active().open(path).read(0, most + 1))


def _stream(file: io.FileIO) -> bytes:
    """What a pipe or device gives. OSError if that does not end."""
    found = bytearray()
    while part := file.read(BLOCK):
        found += part
        if len(found) > KEPT:
            raise OSError(errno.EFBIG, f"it is no file, and gives more than {KEPT:,} bytes")
    return bytes(found)


def _stream_digest(path: Path, *expected: tuple[str, str]) -> bool:
    """Whether a file has these digests, by algorithm."""
    from dlc.files.hashing import file_blake3, file_sha256

    return all((file_blake3(path) if kind == "blake3" else file_sha256(path)) == digest for kind, digest in expected)
