"""The constants of a plan in one read-only file, each aligned as the machine asks, equal contents once.

One tensor is in memory at a time: constants are evaluated, hashed, and written (or recognised) in order of first use.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from dlc import ExitCode, Workshop
from dlc.base.diagnostics import error
from dlc.base.types import packed
from dlc.files.appending import Appender
from dlc.files.hashing import OwnedFile
from dlc.graph import Op, evaluate_ops
from dlc.graph.walk import as_view
from dlc.ops.shape import Concat

ALIGN = 64
"""Bytes: a cache line, and the widest vector of any CPU so far. Machines may ask for less."""

IN_MEMORY = 1 << 20
"""Weights of at most so many bytes travel as bytes, larger ones as a file."""

MAP_ABOVE = 256 << 20
"""Weights above this size are given at run time where nobody chose: a library of that size is slow to link and load."""

LIBRARY_LIMIT = 2 << 30
"""Bytes that the code of a library can address by 32-bit offsets, as compilers make it by default."""

Storage = Literal["incbin", "text", "map"]

_BLOCK = 1 << 20
_SAMPLE = 256
"""Bytes."""
_Sample = tuple[int, int, bytes, bytes]


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
    """Bytes, a multiple of the alignment; 0 when there are no constants."""
    sha256: str
    offsets: Mapping[str, int]
    """Digest of a constant value → offset of its first byte."""
    shared: int
    """Bytes saved because equal contents are stored once."""
    elements: tuple[tuple[int, int], ...] = ()
    """(First byte, bytes of an element) of each part, in order; the first begins at 0, and parts have all bytes."""


def unpacked_key(op: Op) -> str:
    """What offsets call a constant of less than 8 bits whose elements have a byte each."""
    return f"{op.digest} unpacked"


def write_weights(
    constants: Collection[Op],
    name: str,
    workshop: Workshop | None = None,
    unpacked: Collection[Op] = (),
    align: int = ALIGN,
) -> Blob:
    """Evaluate the constants of a plan and lay them out; peak memory stays near that of the largest tensor.

    Elements are little-endian, in C order; those of less than 8 bits are packed, and those of
    `unpacked` are there with a byte for each element as well. Each begins at a multiple of `align`
    bytes. A constant without elements has offset 0. The file is made where `workshop` says.
    """
    most = sum(op.type.packed_bytes + ALIGN for op in constants) + sum(op.type.nbytes + ALIGN for op in unpacked)
    path = OwnedFile.create(name) if workshop is None else workshop.file(name, most)
    offsets: dict[str, int] = {}
    elements: dict[int, int] = {}
    whole = hashlib.sha256()
    end = shared = 0
    with Appender(path, most) as file:
        contents = _Contents(file)
        for op, key in (*((x, x.digest) for x in constants), *((x, unpacked_key(x)) for x in unpacked)):
            value = _Value.of(op, key == op.digest)
            offsets[key] = place = contents.place(value, end)
            if place < end:
                shared += value.size
            else:
                if value.size and (not elements or elements[max(elements)] != value.itemsize):
                    elements[end] = value.itemsize
                end += _append(file, whole, value.pieces(), value.size, align)
        if offsets and not end:
            elements[0] = 1
            end += _append(file, whole, [memoryview(bytes(align))], align, align)  # empty tensors need an address too
    path.written(whole.hexdigest())
    blob = path.read_bytes() if end <= IN_MEMORY else path
    return Blob(blob, end, whole.hexdigest(), MappingProxyType(offsets), shared, tuple(elements.items()))


def storage_of(choice: Literal["auto", "incbin", "text", "map"], size: int) -> Storage:
    """Where weights of `size` bytes live; raises DlcError (USAGE) where they do not fit there."""
    if choice == "auto":
        return "incbin" if size <= MAP_ABOVE else "map"
    if choice != "map" and size >= LIBRARY_LIMIT:
        raise error(
            "too-large",
            f"weights of {size:,} bytes do not fit into a library, which holds less than {LIBRARY_LIMIT:,}",
            help="use weights=map, so that the program maps the file at run time, or weights=auto",
            exit_code=ExitCode.USAGE,
        )
    return choice


@dataclass(frozen=True)
class _Value:
    """An evaluated constant; a large one is a view of the model's own file, brought into order piece by piece."""

    parts: tuple[np.ndarray[Any, np.dtype[Any]], ...]
    """Little-endian, one after the other along their first dimension, perhaps with strides of their own."""

    @classmethod
    def of(cls, op: Op, pack: bool = True) -> "_Value":
        whole = op.type.dtype.per_byte > 1 and pack
        joined = op.xs if isinstance(op, Concat) and op.axis == 0 and not whole else (op,)  # joined in the file only
        values = evaluate_ops(joined, {}, result=as_view)
        if whole:
            return cls(tuple(map(packed, values)))
        little = op.type.dtype.numpy.newbyteorder("<")
        return cls(tuple(np.asarray(value).astype(little, copy=False) for value in values))

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.nbytes for part in self.parts)

    @property
    def itemsize(self) -> int:
        """Bytes of an element, whose order a processor decides."""
        return self.parts[0].itemsize

    @property
    def sample(self) -> _Sample:
        """Size, bytes of an element, first and last bytes: they tell nearly all contents apart."""
        first, last = self.parts[0], self.parts[-1]
        count = _SAMPLE // first.itemsize
        begin, end = first.flat[:count], last.flat[max(0, last.size - count) :]
        return self.size, self.itemsize, np.asarray(begin).tobytes(), np.asarray(end).tobytes()

    def pieces(self) -> Iterator[memoryview]:
        """The bytes in C order."""
        return chain.from_iterable(map(_pieces, self.parts))

    def digest(self) -> bytes:
        """SHA-256 of the bytes."""
        return _digest(self.pieces())


def _pieces(array: np.ndarray[Any, np.dtype[Any]]) -> Iterator[memoryview]:
    if not array.size:
        return
    if array.flags.c_contiguous:
        data = array.reshape(-1).view(np.uint8).data
        yield from (data[start : start + _BLOCK] for start in range(0, len(data), _BLOCK))
    elif array.nbytes > _BLOCK and len(array) == 1:
        yield from _pieces(array[0])
    else:
        step = max(1, _BLOCK * len(array) // array.nbytes)
        for start in range(0, len(array), step):
            part = array[start : start + step]
            if part.strides[-1] == part.itemsize and part.ndim > 1:
                part = part.view(f"V{part.shape[-1] * part.itemsize}")  # moved as one: numpy moves elements one by one
            yield np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


def _digest(pieces: Iterable[memoryview]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


@dataclass
class _Contents:
    """What a file holds where; contents are distinguished by their length, beginning and end, and by digests only if
    those are equal, which hardly happens but for equal contents."""

    file: Appender
    first: dict[_Sample, int] = field(default_factory=dict[_Sample, int])
    """Sample → where the first content with it begins."""
    known: dict[_Sample, dict[bytes, int]] = field(default_factory=dict[_Sample, dict[bytes, int]])
    """Sample that occurred again → digest of every content with it → where that begins."""

    def place(self, value: _Value, end: int) -> int:
        """Where a content lies, or `end`, where it then will."""
        sample = value.sample
        first = self.first.setdefault(sample, end)
        if first == end:
            return end
        if sample not in self.known:
            self.known[sample] = {_digest(self._read(first, value.size)): first}
        return self.known[sample].setdefault(value.digest(), end)

    def _read(self, start: int, size: int) -> Iterator[memoryview]:
        for at in range(0, size, _BLOCK):
            yield memoryview(self.file.read(start + at, min(_BLOCK, size - at)))


def _append(file: Appender, whole: "Hash", pieces: Iterable[memoryview], size: int, align: int) -> int:
    """Write `size` bytes and zeros up to the next multiple of `align`; how many bytes that was."""
    padding = memoryview(bytes(-size % align))
    for piece in chain(pieces, [padding]):
        whole.update(piece)
        file.write(piece)
    return size + len(padding)
