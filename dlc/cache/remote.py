"""A level behind the local cache, as a place of bytes by name: what a kind of server has to implement.

    ac/<SHA-256 of a key>        the record of a step, sealed as in `dlc.cache.envelope`
    cas/<SHA-256 of content>     an object, as it is

The layout is that of Bazel's remote cache over HTTP. Nothing that comes from a level is trusted: whoever asks checks
it.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import IO, Final, Protocol

from dlc.files.hashing import OwnedFile
from dlc.files.linking import LINK_ABOVE

_GRACE: Final = 10.0  # seconds before the rate of a transfer counts
_SLOWEST: Final = 64 << 10  # bytes per second, on average


class LevelFailed(Exception):
    """A level did not do what it was asked. The text says why, and holds no credentials and nothing that it sent."""

    def __init__(self, reason: str, *, again: bool = False, lasting: bool = False, help: str = "") -> None:
        """`again`: trying once more may help; `lasting`: nothing will help for some time."""
        super().__init__(reason)
        self.reason, self.again, self.lasting, self.help = reason, again, lasting, help


class Received:
    """What a level sends, hashed on the way: in memory up to 16 MiB and in a file beyond, at most `limit` bytes.

    More than 16 MiB have to be announced: who may send without end would fill the disk.
    """

    def __init__(self, limit: int, scratch: Path | None = None) -> None:
        """`scratch`: where the file is made; None: where temporary files are."""
        self._limit, self._scratch = limit, scratch
        self._expected = min(limit, LINK_ABOVE)
        self._digest, self._memory, self.size = hashlib.sha256(), bytearray(), 0
        self._file: OwnedFile | None = None
        self._stream: IO[bytes] | None = None
        self._start = time.monotonic()

    def expect(self, size: int) -> None:
        """Note the size that is announced, before anything is taken. LevelFailed if it is beyond the limit."""
        if size > self._limit:
            raise LevelFailed(f"sends {size:,} bytes where at most {self._limit:,} are taken")
        self._expected = size

    def write(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes. LevelFailed if they are too many or come too slowly, OSError if the disk is full."""
        self.size += len(chunk)
        if self.size > self._expected:
            raise LevelFailed(f"sends more than the {self._expected:,} bytes that are expected")
        if time.monotonic() - self._start > _GRACE + self.size / _SLOWEST:
            raise LevelFailed(f"sends less than {_SLOWEST >> 10} KiB per second", lasting=True)
        self._digest.update(chunk)
        if self._stream is None and self.size <= LINK_ABOVE:
            self._memory += chunk
            return
        if self._stream is None:
            self._file = OwnedFile.create("object", self._scratch)
            self._stream = self._file.open("wb")
            self._stream.write(self._memory)
            self._memory = bytearray()
        self._stream.write(chunk)

    @property
    def sha256(self) -> str:
        """Of what came so far, in hexadecimal."""
        return self._digest.hexdigest()

    def content(self) -> bytes | OwnedFile:
        """All of it. Nothing can be written afterwards."""
        if self._stream is None or self._file is None:
            return bytes(self._memory)
        self._stream.close()
        self._file.written(self.sha256)
        return self._file

    def drop(self) -> None:
        """Remove what there is of a file."""
        if self._stream is not None and self._file is not None:
            self._stream.close()
            self._file.discard()


class Remote(Protocol):
    """A server that keeps bytes by place. Threads may share one. Every method raises LevelFailed, and no other
    exception that its client library or the network could raise."""

    def get(self, place: str, into: Received) -> bool:
        """Give `into` the bytes at a place; False if there are none. OSError only where `into` raises it."""
        ...

    def has(self, place: str) -> bool:
        """Whether there are bytes at a place."""
        ...

    def put(self, place: str, content: memoryview) -> None:
        """Keep bytes at a place, all of them or none."""
        ...

    def close(self) -> None:
        """Let connections go; the next call opens one again."""
        ...
