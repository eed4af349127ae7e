"""The protobuf wire format, walked in place: where each initializer's bytes lie, and the model without them.

A protobuf parser copies a whole file into memory. Weights are nearly all of it, and nothing but their place is needed,
so they are cut out before parsing: `strip` gives the same ModelProto with every large `raw_data` of the graph's
initializers left out, and the place of each. Format: protobuf.dev/programming-guides/encoding; numbers: onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

GRAPH = 7
"""ModelProto.graph"""
INITIALIZER = 5
"""GraphProto.initializer"""
RAW_DATA = 9
"""TensorProto.raw_data"""
INLINE_BYTES = 1024
"""Shorter data stays in the message: shape vectors and scalars, that the importer reads anyway."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are not a protobuf message; `byte` is the offset at which that shows."""

    def __init__(self, message: str, byte: int) -> None:
        """`message` says what is wrong, in words for the user."""
        super().__init__(message)
        self.byte = byte


@dataclass(frozen=True)
class Field:
    """One field of a message: its number, wire type, and the spans of the whole and of its value."""

    number: int
    kind: int
    start: int
    value: int
    end: int


@dataclass(frozen=True)
class Place:
    """Bytes [offset, offset + length) of the file."""

    offset: int
    length: int


@dataclass
class Stripped:
    """A model without the data of its large initializers."""

    skeleton: bytes
    """A serialised ModelProto."""
    places: list[Place | None] = field(default_factory=list["Place | None"])
    """For every initializer of the graph, in order: where its `raw_data` lies, or None where it stayed or is absent."""


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number encoded at `at`, and the offset behind it; raises WireError."""
    value = shift = 0
    for k in range(10):
        if at + k >= end:
            raise WireError("the data ends within a number", at)
        byte = data[at + k]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + k + 1
        shift += 7
    raise WireError("a number is longer than 10 bytes", at)


def encode_varint(value: int) -> bytes:
    """The inverse of `varint`, in its shortest form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in [start, end); raises WireError where it is malformed."""
    at = start
    while at < end:
        begin = at
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError("field number 0", begin)
        value = at
        match kind:
            case 0:
                _, at = varint(data, at, end)
            case 1:
                at += 8
            case 2:
                length, value = varint(data, at, end)
                at = value + length
            case 5:
                at += 4
            case _:
                raise WireError(f"wire type {kind}", begin)
        if at > end:
            raise WireError(f"a field of {at - value} bytes, of which {end - value} are there", begin)
        yield Field(number, kind, begin, value, at)


def strip(data: memoryview) -> Stripped:
    """The model in `data` without the raw data of its initializers; raises WireError."""
    out = Stripped(b"")
    parts: list[bytes | memoryview] = []
    for f in fields(data, 0, len(data)):
        if f.number == GRAPH and f.kind == _BYTES:
            graph = _graph(data, f, out.places)
            parts += [encode_varint(GRAPH << 3 | _BYTES), encode_varint(_size(graph)), *graph]
        else:
            parts.append(data[f.start : f.end])
    out.skeleton = b"".join(parts)
    return out


def _graph(data: memoryview, whole: Field, places: list[Place | None]) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    kept = whole.value  # what lies between two initializers is copied in one piece
    for f in fields(data, whole.value, whole.end):
        if f.number != INITIALIZER or f.kind != _BYTES:
            continue
        raws = [r for r in fields(data, f.value, f.end) if r.number == RAW_DATA and r.kind == _BYTES]
        last = raws[-1] if raws else None  # of a repeated single field the last one counts
        if last is None or last.end - last.value < INLINE_BYTES:
            places.append(None)
            continue
        places.append(Place(last.value, last.end - last.value))
        tensor = _without(data, f, raws)
        parts += [data[kept : f.start], encode_varint(INITIALIZER << 3 | _BYTES), encode_varint(_size(tensor)), *tensor]
        kept = f.end
    parts.append(data[kept : whole.end])
    return parts


def _without(data: memoryview, whole: Field, cut: list[Field]) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    kept = whole.value
    for f in cut:
        parts.append(data[kept : f.start])
        kept = f.end
    parts.append(data[kept : whole.end])
    return parts


def _size(parts: list[bytes | memoryview]) -> int:
    return sum(len(p) for p in parts)
