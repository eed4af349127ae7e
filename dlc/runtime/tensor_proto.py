"""Read ONNX's `TensorProto` files (`input_0.pb`), the form in which test data ships beside models.

Only this one message, straight from the protobuf wire format (protobuf.dev, "Encoding"; onnx.proto, message
TensorProto), so that feeding a program needs no model format installed. Files are not trusted: every length is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dlc.base.types import DTYPES, Array, DType, Type, unpacked

ELEMENT_TYPES: Final[Mapping[int, DType]] = {
    code: DTYPES[name]
    for code, name in {
        1: "f32",
        2: "u8",
        3: "i8",
        4: "u16",
        5: "i16",
        6: "i32",
        7: "i64",
        9: "bool",
        10: "f16",
        11: "f64",
        12: "u32",
        13: "u64",
        16: "bf16",
        17: "f8e4m3fn",
        18: "f8e4m3fnuz",
        19: "f8e5m2",
        20: "f8e5m2fnuz",
        21: "u4",
        22: "i4",
        23: "f4e2m1",
        24: "f8e8m0",
        25: "u2",
        26: "i2",
    }.items()
}
"""TensorProto.DataType → element type; strings, complex numbers and 6-bit floats have no counterpart in dlc."""


def raw_bytes(of: Type) -> int:
    """Bytes of a tensor's raw data: elements of less than 8 bits are packed, several to a byte."""
    return of.packed_bytes


def raw_elements(of: Type, data: bytes | memoryview) -> Array:
    """The elements in `raw_bytes(of)` bytes of raw data, of which the lowest bits of a byte come first."""
    if of.dtype.per_byte > 1:
        return unpacked(of, np.frombuffer(data, np.uint8))
    return np.frombuffer(data, of.dtype.numpy.newbyteorder("<"), of.size).reshape(of.shape)


def listed_elements(of: Type, values: Sequence[Any]) -> Array:
    """The elements of a tensor that lists them as numbers, narrow ones by their bits.

    Raises:
        ValueError: there are more or fewer values than the type has.
    """
    dtype = of.dtype
    count = raw_bytes(of) if dtype.per_byte > 1 else of.size
    if len(values) != count:
        raise ValueError(f"{of} has {of.size} elements, {len(values)} values are stored where {count} are needed")
    if dtype.per_byte > 1:
        return raw_elements(of, np.array(values, np.int64).astype(np.uint8).tobytes())
    if dtype.narrow:
        bits = np.array(values, np.int64).astype(f"u{dtype.itemsize}")
        return bits.view(dtype.numpy).reshape(of.shape)
    wide = np.array(values, np.int64 if dtype.is_integer and dtype.name != "u64" else dtype.numpy)
    return wide.astype(dtype.numpy).reshape(of.shape)


def read_tensor(content: bytes) -> tuple[str, Array]:
    """(name, values) of a serialised TensorProto. Raises ValueError for anything else."""
    dims: list[int] = []
    dtype, name, raw = 0, "", None
    values: list[Any] = []
    for field, wire, value in _fields(content):
        match field, wire, value:
            case 1, _, _:
                dims += [_signed(v) for v in _varints(value)]
            case 2, 0, int():
                dtype = value
            case 8, 2, bytes():
                name = value.decode("utf-8", "replace")
            case 9, 2, bytes():
                raw = value
            case 4 | 10, 2 | 5 | 1, bytes():
                values += np.frombuffer(value, "<f4" if field == 4 else "<f8").tolist()
            case 5 | 7 | 11, _, _:
                values += [v if field == 11 else _signed(v) for v in _varints(value)]
            case 14, 0, 1:
                raise ValueError("its values lie in another file")
            case _:
                pass  # names of dimensions, documentation: nothing that values depend on
    if dtype not in ELEMENT_TYPES:
        raise ValueError(f"element type {dtype} of ONNX is not supported" if dtype else "it is not a TensorProto")
    if any(d < 0 for d in dims):
        raise ValueError(f"dimensions {dims}")
    of = Type(ELEMENT_TYPES[dtype], tuple(dims))
    if raw is None:
        return name, listed_elements(of, values)
    if len(raw) != raw_bytes(of):
        raise ValueError(f"{len(raw)} bytes for {of}, which takes {raw_bytes(of)}")
    return name, raw_elements(of, raw)


def _fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, wire, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"truncated at byte {at}: {size} bytes expected, {len(data) - at} left")
        yield field, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("truncated in a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError(f"a number longer than 64 bits at byte {at}")


def _varints(value: int | bytes) -> Iterator[int]:
    """One number, or several packed ones."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
