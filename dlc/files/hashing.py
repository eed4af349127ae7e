"""SHA-256 of what an artifact or a cache holds: bytes, or a file that is too large to be read at once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

Content = bytes | memoryview | Path
"""A file of an artifact: what it holds, or where it lies."""

# A Path has no room for what a file of our own carries; a subclass does.
if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())


class OwnedFile(_Path):
    """A temporary file that lives as long as this object, and that nobody changes once its digest was asked for."""

    _sha256: str = ""

    @classmethod
    def create(cls, name: str) -> OwnedFile:
        """An absent file of this name in a new private directory."""
        import shutil
        import tempfile
        import weakref

        directory = tempfile.mkdtemp(prefix="dlc-")
        found = cls(directory, name)
        weakref.finalize(found, shutil.rmtree, directory, ignore_errors=True)
        return found

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


def content_sha256(content: Content) -> str:
    """SHA-256 of bytes or a file, in hexadecimal."""
    if isinstance(content, OwnedFile):
        return content.sha256
    return file_sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def content_size(content: Content) -> int:
    """Bytes."""
    return content.stat().st_size if isinstance(content, Path) else memoryview(content).nbytes
