"""`Appender`: a new file, written once from its beginning to its end, past the page cache where it is large.

Writing gigabytes through the page cache takes more processor time than all else that is done with them: the kernel
clears each page, copies into it and writes it back later. Direct I/O transfers a buffer of ours as it is, in a thread,
while the next one is filled.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final

DIRECT_ABOVE: Final = 256 << 20
"""Bytes; a smaller file is likely to be read at once, from the page cache."""
_BUFFER: Final = 4 << 20
"""Bytes of a transfer: a multiple of any block size."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class Appender:
    """A file that is made and grows until it is closed, as `with` does. OSError as usual, of an earlier write perhaps.

    Args:
        path: The file; what it held is lost.
        expected: About how many bytes it will have.
    """

    def __init__(self, path: Path, expected: int = 0) -> None:
        self._path, self._direct = path, False
        self._fd = self._opened(expected > DIRECT_ABOVE)
        self._buffers = [memoryview(mmap.mmap(-1, _BUFFER)) for _ in range(2)]  # at page boundaries, as direct I/O asks
        self._filled = self._written = 0
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._rest()
        finally:
            self._pool.shutdown()
            os.close(self._fd)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._written + self._filled

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        left = memoryview(data).cast("B")
        while left:
            part = left[: _BUFFER - self._filled]
            self._buffers[0][self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            left = left[len(part) :]
            if self._filled == _BUFFER:
                self._flush()

    def read(self, start: int, size: int) -> bytes:
        """`size` bytes from `start` on, of what was appended before."""
        self._wait()
        with self._path.open("rb", buffering=0) as file:  # not by our descriptor, which may be for whole blocks only
            file.seek(start)
            found = file.read(max(0, min(size, self._written - start)))
        skip = max(0, start - self._written)
        return found + bytes(self._buffers[0][skip : skip + size - len(found)])

    def _opened(self, direct: bool) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        if direct and _DIRECT:
            try:
                found = os.open(self._path, flags | _DIRECT, 0o666)
                self._direct = True
                return found
            except OSError as problem:
                if problem.errno != errno.EINVAL:  # what a file system without direct I/O answers
                    raise
        return os.open(self._path, flags, 0o666)

    def _flush(self) -> None:
        self._wait()
        self._pending = self._pool.submit(self._transfer, self._buffers[0][: self._filled])
        self._written += self._filled
        self._filled = 0
        self._buffers.reverse()

    def _rest(self) -> None:
        """Write what is no whole block, which direct I/O cannot."""
        self._wait()
        self._buffered()
        self._transfer(self._buffers[0][: self._filled])

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _transfer(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError as problem:
                if problem.errno != errno.EINVAL or not self._direct:
                    raise
                self._buffered()  # a file system that opens a file so and then does not write it

    def _buffered(self) -> None:
        """Leave direct I/O."""
        if self._direct:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~_DIRECT)
            self._direct = False
