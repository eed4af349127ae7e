"""Records of a file: fields of numbers one behind the other, little-endian, and the bytes that they become."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

RESERVED: Final = "reserved"
"""Name of a field that is zero."""
_SIZES = {"u8": "B", "u16": "H", "u32": "I", "i32": "i", "u64": "Q", "f64": "d", "char": "s"}
_BYTES = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "f64": 8, "char": 1}
_TEXT = "text:"


@dataclass(frozen=True)
class Field:
    """One field of a record: `count` numbers of `type`."""

    name: str
    """`reserved` is zero; `text:NAME` is the number of bytes of a name."""
    type: str
    meaning: str = ""
    count: int = 1


@dataclass(frozen=True)
class Record:
    """Fields one behind the other, without gaps."""

    fields: tuple[Field, ...]
    limit: int = 1
    """Records of a section at most: what a reader takes memory for."""
    texts_limit: int = 0
    """Bytes of all names together at most."""

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return sum(_BYTES[f.type] * f.count for f in self.fields)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where each field begins."""
        at, found = 0, dict[str, int]()
        for f in self.fields:
            found[f.name.removeprefix(_TEXT)] = at
            at += _BYTES[f.type] * f.count
        return found

    @cached_property
    def packed(self) -> struct.Struct:
        """How numbers become bytes."""
        return struct.Struct("<" + "".join(f"{f.count}{_SIZES[f.type]}" for f in self.fields))

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Names that a record has, in their order in the section's text."""
        return tuple(f.name.removeprefix(_TEXT) for f in self.fields if f.name.startswith(_TEXT))

    @cached_property
    def reserved(self) -> tuple[int, int]:
        """Where the bytes begin that must be zero, and where they end; one run of them at most."""
        runs = [(self.offsets[f.name], _BYTES[f.type] * f.count) for f in self.fields if f.name == RESERVED]
        return (runs[0][0], sum(runs[0])) if runs else (0, 0)

    def check(self) -> None:
        """Every field stands at a multiple of its size, so that C reads a record as a struct."""
        for f in self.fields:
            assert self.offsets[f.name.removeprefix(_TEXT)] % _BYTES[f.type] == 0, f
        assert self.size % max(_BYTES[f.type] for f in self.fields) == 0


Value = int | float | bytes | tuple[int, ...]


def pack(record: Record, values: dict[str, Value]) -> bytes:
    """The bytes of one record. Raises struct.error where a number lies outside its field."""
    flat: list[int | float | bytes] = []
    for f in record.fields:
        value = (0,) * f.count if f.name == RESERVED else values[f.name.removeprefix(_TEXT)]
        flat += value if isinstance(value, tuple) else (value,)
    return record.packed.pack(*flat)


def unpack(record: Record, data: bytes | memoryview, at: int = 0) -> dict[str, Any]:
    """The inverse; `reserved` is among the values."""
    flat = record.packed.unpack_from(data, at)
    values: dict[str, Any] = {}
    k = 0
    for f in record.fields:
        taken = 1 if f.type == "char" else f.count
        values[f.name.removeprefix(_TEXT)] = flat[k] if taken == 1 else flat[k : k + taken]
        k += taken
    return values
