"""Read ONNX's `TensorProto` files (`input_0.pb`), the form in which test data ships beside models.

Only this one message, straight from the protobuf wire format (protobuf.dev, "Encoding"; onnx.proto, message
TensorProto), so that feeding a program needs no model format installed. Files are not trusted: every length is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dlc.base.types import Array

_DTYPES = {
    1: "f4",
    2: "u1",
    3: "i1",
    4: "u2",
    5: "i2",
    6: "i4",
    7: "i8",
    9: "?",
    10: "f2",
    11: "f8",
    12: "u4",
    13: "u8",
}
"""TensorProto.DataType → numpy; strings, complex numbers and the small floats have no counterpart in dlc."""


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
    if dtype not in _DTYPES:
        raise ValueError(f"element type {dtype} of ONNX is not supported" if dtype else "it is not a TensorProto")
    kind = np.dtype(_DTYPES[dtype]).newbyteorder("<")
    if any(d < 0 for d in dims):
        raise ValueError(f"dimensions {dims}")
    count = len(raw) // kind.itemsize if raw is not None else len(values)
    if count != math.prod(dims) or (raw is not None and len(raw) % kind.itemsize):
        raise ValueError(f"{count} values for the shape {dims}")
    if raw is not None:
        return name, np.frombuffer(raw, kind).reshape(dims)
    if kind.char == "e":  # halves are stored as their bits
        return name, np.array(values, np.uint16).view(np.float16).reshape(dims)
    return name, np.array(values, kind).reshape(dims)


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
