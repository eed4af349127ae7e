"""SHA-256 of what an artifact or a cache holds: bytes, or a file that is too large to be read at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

ONCE_ABOVE: Final = 64 << 20
"""Bytes; hashing so many takes tens of milliseconds at least."""

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


def settled_sha256(path: Path) -> str:
    """The same; a file so large that hashing it takes longer than the clock of files ticks is read once per process, as
    long as nothing that the file system says of it changes."""
    found = path.stat()
    if found.st_size <= ONCE_ABOVE:
        return file_sha256(path)
    return _sha256_of(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=256)
def _sha256_of(path: Path, *identity: int) -> str:
    del identity
    return file_sha256(path)


def content_sha256(content: Content) -> str:
    """SHA-256 of bytes or a file, in hexadecimal."""
    if isinstance(content, OwnedFile):
        return content.sha256
    return file_sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def content_size(content: Content) -> int:
    """Bytes."""
    return content.stat().st_size if isinstance(content, Path) else memoryview(content).nbytes
