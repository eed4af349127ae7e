"""Digests of content: bytes, or a file that is too large to be read at once.

SHA-256 names what a cache or an artifact holds, as other tools check it. BLAKE3 is for what is only compared, as models
are: their weights may have gigabytes, and it takes a quarter of the time of SHA-256, a tenth where the processor has no
instructions for that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

ONCE_ABOVE: Final = 64 << 20
"""Bytes; hashing so many takes tens of milliseconds at least."""

_READ: Final = 1 << 20
"""Bytes read at once: they stay in a core's cache until they are hashed."""

Algorithm = Literal["sha256", "blake3"]
Content = bytes | memoryview | Path
"""A file of an artifact: what it holds, or where it lies."""

# A Path has no room for what a file of our own carries; a subclass does.
if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())


class OwnedFile(_Path):
    """A file of dlc's own, that nobody changes once its digest was asked for. A temporary one lives as long as this
    object."""

    _sha256: str = ""
    _remove: Callable[[], object] | None = None

    @classmethod
    def create(cls, name: str, directory: Path | None = None) -> OwnedFile:
        """An absent file of this name in a new private directory, which is made in `directory` if that is given."""
        import shutil
        import tempfile
        import weakref

        found = cls(tempfile.mkdtemp(prefix="dlc-", dir=directory), name)
        found._remove = weakref.finalize(found, shutil.rmtree, found.parent, ignore_errors=True)
        return found

    def discard(self) -> None:
        """Remove a temporary file now, after its last use."""
        if self._remove:
            self._remove()

    @property
    def sha256(self) -> str:
        """SHA-256 of the content in hexadecimal; the file is read at most once. OSError as usual."""
        if not self._sha256:
            self._sha256 = file_sha256(self)
        return self._sha256

    def written(self, sha256: str) -> None:
        """Note the digest that whoever wrote the file computed on the way."""
        self._sha256 = sha256


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content in hexadecimal, read in pieces. OSError as usual."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_blake3(path: Path) -> str:
    """BLAKE3 of a file's content in hexadecimal, read in pieces. OSError as usual."""
    from blake3 import blake3

    # Not mapped, although that is faster: a file that somebody shortens meanwhile would end the process.
    digest, buffer = blake3(), memoryview(bytearray(_READ))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def bytes_blake3(content: bytes) -> str:
    """BLAKE3 of bytes in hexadecimal."""
    from blake3 import blake3

    return blake3(content).hexdigest()


def settled_digest(path: Path, algorithm: Algorithm) -> str:
    """A file's digest. One so large that hashing it takes longer than the clock of files ticks is read once per
    process, as long as nothing that the file system says of it changes. OSError as usual."""
    found = path.stat()
    if found.st_size <= ONCE_ABOVE:
        return _digest_of(path, algorithm)
    return _kept(path, algorithm, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=256)
def _kept(path: Path, algorithm: Algorithm, *identity: int) -> str:
    del identity
    return _digest_of(path, algorithm)


def _digest_of(path: Path, algorithm: Algorithm) -> str:
    return file_sha256(path) if algorithm == "sha256" else file_blake3(path)


def content_sha256(content: Content) -> str:
    """SHA-256 of bytes or a file, in hexadecimal."""
    if isinstance(content, OwnedFile):
        return content.sha256
    return file_sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def content_size(content: Content) -> int:
    """Bytes."""
    return content.stat().st_size if isinstance(content, Path) else memoryview(content).nbytes
