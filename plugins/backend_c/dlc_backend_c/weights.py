"""The constants of a plan in one read-only file, each at a multiple of 64 bytes, equal contents once.

One tensor is in memory at a time: constants are evaluated, hashed, and written (or recognised) in order of first use.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np

from dlc import ExitCode, Workshop
from dlc.base.diagnostics import error
from dlc.files.hashing import OwnedFile
from dlc.graph import Op, evaluate_ops

ALIGN = 64
"""Bytes: a cache line, and the widest vector of any CPU so far."""

IN_MEMORY = 1 << 20
"""Weights of at most so many bytes travel as bytes, larger ones as a file."""

MAP_ABOVE = 256 << 20
"""Weights above this size are given at run time where nobody chose: a library of that size is slow to link and load."""

LIBRARY_LIMIT = 2 << 30
"""Bytes that the code of a library can address by 32-bit offsets, as compilers make it by default."""

Storage = Literal["incbin", "text", "map"]

_BLOCK = 1 << 22
_SAMPLE = 256
"""Bytes."""


class Hash(Protocol):
    """A digest being computed."""

    def update(self, data: memoryview | bytes, /) -> None:
        """Take more data."""
        ...


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


def write_weights(constants: Collection[Op], name: str, workshop: Workshop | None = None) -> Blob:
    """Evaluate the constants of a plan and lay them out; peak memory stays near that of the largest tensor.

    Elements are little-endian, in C order. A constant without elements has offset 0. The file is made where `workshop`
    says.
    """
    most = sum(op.type.nbytes + ALIGN for op in constants)
    path = OwnedFile.create(name) if workshop is None else workshop.file(name, most)
    offsets: dict[str, int] = {}
    whole = hashlib.sha256()
    end = shared = 0
    with path.open("w+b") as file:
        contents = _Contents(file)
        for op in constants:
            data = _bytes_of(op)
            offsets[op.digest] = place = contents.place(data, end)
            if place < end:
                shared += len(data)
            else:
                end += _append(file, whole, data)
        if offsets and not end:
            end += _append(file, whole, memoryview(bytes(ALIGN)))  # empty tensors need an address too
    path.written(whole.hexdigest())
    blob = path.read_bytes() if end <= IN_MEMORY else path
    return Blob(blob, end, whole.hexdigest(), MappingProxyType(offsets), shared)


def storage_of(choice: Literal["auto", "incbin", "text", "map"], size: int) -> Storage:
    """Where weights of `size` bytes live; raises DlcError (USAGE) where they do not fit there."""
    if choice == "auto":
        return "incbin" if size <= MAP_ABOVE else "map"
    if choice != "map" and size >= LIBRARY_LIMIT:
        raise error(
            "too-large",
            f"weights of {size:,} bytes do not fit into a library, which holds less than {LIBRARY_LIMIT:,}",
            help="choose weights=map, which the program is given at run time, or leave weights=auto",
            exit_code=ExitCode.USAGE,
        )
    return choice


def _bytes_of(op: Op) -> memoryview:
    (value,) = evaluate_ops((op,), {})
    array: np.ndarray[Any, np.dtype[Any]] = np.ascontiguousarray(value, op.type.dtype.numpy.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _digest(data: memoryview) -> bytes:
    digest = hashlib.sha256()
    for start in range(0, len(data), _BLOCK):
        digest.update(data[start : start + _BLOCK])
    return digest.digest()


@dataclass
class _Contents:
    """What a file holds where; contents are told apart by their length, beginning and end, and by digests only if
    those are equal, which hardly happens but for equal contents."""

    file: BinaryIO
    first: dict[tuple[int, bytes, bytes], int] = field(default_factory=dict[tuple[int, bytes, bytes], int])
    """Sample → where the first content with it begins."""
    known: dict[tuple[int, bytes, bytes], dict[bytes, int]] = field(
        default_factory=dict[tuple[int, bytes, bytes], dict[bytes, int]]
    )
    """Sample that occurred again → digest of every content with it → where that begins."""

    def place(self, data: memoryview, end: int) -> int:
        """Where a content lies, or `end`, where it then will."""
        sample = (len(data), bytes(data[:_SAMPLE]), bytes(data[-_SAMPLE:]))
        first = self.first.setdefault(sample, end)
        if first == end:
            return end
        if sample not in self.known:
            self.known[sample] = {_digest(self._read(first, len(data))): first}
        return self.known[sample].setdefault(_digest(data), end)

    def _read(self, start: int, size: int) -> memoryview:
        end = self.file.tell()
        self.file.seek(start)
        data = self.file.read(size)
        self.file.seek(end)
        return memoryview(data)


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
