"""The constants of a plan in one read-only file, each at a multiple of 64 bytes, equal contents once.

One tensor is in memory at a time: constants are evaluated, hashed, and written (or recognised) in order of first use.
"""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from dlc.graph import Op, evaluate_ops

ALIGN = 64
"""Bytes: a cache line, and the widest vector of any CPU so far."""

IN_MEMORY = 1 << 20
"""Weights of at most so many bytes travel as bytes, larger ones as a file."""

_BLOCK = 1 << 22

# A Path has no room for the finaliser of its directory; a subclass does.
if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())


class Hash(Protocol):
    """A digest being computed."""

    def update(self, data: memoryview | bytes, /) -> None:
        """Take more data."""
        ...


class OwnedFile(_Path):
    """A temporary file that lives as long as this object."""

    @classmethod
    def create(cls, name: str) -> "OwnedFile":
        """An absent file of this name in a new private directory."""
        directory = tempfile.mkdtemp(prefix="dlc-")
        found = cls(directory, name)
        weakref.finalize(found, shutil.rmtree, directory, ignore_errors=True)
        return found


@dataclass(frozen=True)
class Blob:
    """Constants, laid out."""

    content: bytes | OwnedFile
    """The bytes, or a file that holds them."""
    size: int
    """Bytes, a multiple of 64; 0 when there are no constants."""
    sha256: str
    offsets: Mapping[str, int]
    """Digest of a constant value → offset of its first byte."""
    shared: int
    """Bytes saved because equal contents are stored once."""


def write_weights(constants: Iterable[Op], name: str) -> Blob:
    """Evaluate the constants of a plan and lay them out; peak memory stays near that of the largest tensor.

    Elements are little-endian, in C order. A constant without elements has offset 0.
    """
    path = OwnedFile.create(name)
    offsets: dict[str, int] = {}
    known: dict[bytes, int] = {}
    whole = hashlib.sha256()
    end = shared = 0
    with path.open("wb") as file:
        for op in constants:
            data = _bytes_of(op)
            content = _digest(data)
            if content in known:
                offsets[op.digest] = known[content]
                shared += len(data)
                continue
            offsets[op.digest] = known[content] = end
            end += _append(file, whole, data)
        if offsets and not end:
            end += _append(file, whole, memoryview(bytes(ALIGN)))  # empty tensors need an address too
    blob = path.read_bytes() if end <= IN_MEMORY else path
    return Blob(blob, end, whole.hexdigest(), MappingProxyType(offsets), shared)


def _bytes_of(op: Op) -> memoryview:
    (value,) = evaluate_ops((op,), {})
    array: np.ndarray[Any, np.dtype[Any]] = np.ascontiguousarray(value, op.type.dtype.numpy.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _digest(data: memoryview) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, len(data), _BLOCK):
        digest.update(data[start : start + _BLOCK])
    return digest.digest()


def _append(file: BinaryIO, whole: "Hash", data: memoryview) -> int:
    """Write `data` and zeros up to the next multiple of 64; how many bytes that was."""
    for start in range(0, len(data), _BLOCK):
        whole.update(data[start : start + _BLOCK])
        file.write(data[start : start + _BLOCK])
    padding = bytes(-len(data) % ALIGN)
    whole.update(padding)
    file.write(padding)
    return len(data) + len(padding)


def weights_text(blob: Blob, head: str, name: str) -> OwnedFile:
    """The weights as a C array behind `head`, which declares it up to the opening brace."""
    path = OwnedFile.create(name)
    source = (
        memoryview(blob.content) if isinstance(blob.content, bytes) else np.memmap(blob.content, np.uint8, "r").data
    )
    with path.open("w", encoding="ascii", newline="\n") as out:
        out.write(head)
        for start in range(0, len(source), 1 << 16):
            piece = source[start : start + (1 << 16)]
            rows = (piece[k : k + 32] for k in range(0, len(piece), 32))
            out.writelines(",".join(map(str, row)) + ",\n" for row in rows)
        out.write("};\n")
    return path
