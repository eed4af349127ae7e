"""SHA-256 of what an artifact or a cache holds: bytes, or a file that is too large to be read at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

Content = bytes | memoryview | Path
"""A file of an artifact: what it holds, or where it lies."""


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content in hexadecimal, read in pieces. OSError as usual."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_sha256(content: Content) -> str:
    """SHA-256 of bytes or a file, in hexadecimal."""
    return file_sha256(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def content_size(content: Content) -> int:
    """Bytes."""
    return content.stat().st_size if isinstance(content, Path) else memoryview(content).nbytes
