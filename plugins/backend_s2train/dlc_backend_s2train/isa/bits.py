"""Words of bits, declared: fields in order, what their codes stand for, bits that must be zero.

Encoder, decoder and documentation of a word all come from its `Layout`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from dlc.base.diagnostics import DlcError, Location, error

NOWHERE: Final = Location(byte=0)
"""Where a word stands that comes from no file."""


@dataclass(frozen=True)
class Field:
    """Neighbouring bits of a word."""

    name: str
    width: int
    values: tuple[Hashable, ...] = ()
    """What each code stands for, None for codes that are reserved; empty: the code is the value."""
    note: str = ""
    """For the table of the word."""

    def code(self, value: Any) -> int | None:
        """The code of a value; None if there is none."""
        if self.values:
            # Types count: True is no stride.
            alike = (i for i, v in enumerate(self.values) if v is not None and v == value and type(v) is type(value))
            return next(alike, None)
        return int(value) if isinstance(value, int) and 0 <= value < 1 << self.width else None

    def value(self, code: int) -> Any:
        """What a code stands for; None if it is reserved."""
        if not self.values:
            return code
        return self.values[code] if code < len(self.values) else None

    @property
    def choices(self) -> str:
        """The values that have a code, for messages."""
        if not self.values:
            return f"0 to {(1 << self.width) - 1}"
        return ", ".join(str(value) for value in self.values if value is not None)


def flag(name: str, note: str = "") -> Field:
    """One bit that is set or not."""
    return Field(name, 1, (False, True), note)


def reserved(width: int) -> Field:
    """Bits that must be zero."""
    return Field("reserved", width, (0,), "must be zero")


@dataclass(frozen=True)
class Layout:
    """A word.

    `first` says where the first field stands: at the most significant bits of big-endian bytes ("high"), or at the
    least significant bits of little-endian bytes ("low"). Bits are counted from there, so bit i lies in byte i // 8.
    """

    name: str
    fields: tuple[Field, ...]
    first: Literal["high", "low"]

    @cached_property
    def width(self) -> int:
        """Bits."""
        return sum(field.width for field in self.fields)

    @cached_property
    def places(self) -> tuple[tuple[Field, int], ...]:
        """Every field with the number of its first bit."""
        found: list[tuple[Field, int]] = []
        at = 0
        for field in self.fields:
            found.append((field, at))
            at += field.width
        return tuple(found)

    def encode(self, values: Mapping[str, Any]) -> int:
        """The word with these values, by name of field; fields that are not named are 0.

        Raises:
            DlcError: "bad-instruction", if a value has no code.
        """
        word = 0
        for field, at in self.places:
            code = field.code(values[field.name]) if field.name in values else 0
            if code is None:
                message = f"{self.name}: {field.name} cannot be {values[field.name]!r}"
                raise error("bad-instruction", message, help=f"{field.name} is one of {field.choices}")
            word |= code << self._shift(field, at)
        return word

    def decode(self, word: int, location: Location = NOWHERE) -> dict[str, Any]:
        """What the fields of a word stand for; `location` is that of the word's first byte.

        Raises:
            DlcError: "bad-word", at the byte of a field with a reserved code or of a bit that must be zero.
        """
        values: dict[str, Any] = {}
        for field, at in self.places:
            code = word >> self._shift(field, at) & ((1 << field.width) - 1)
            value = field.value(code)
            if value is None:
                raise self.refusal(field, at, code, location)
            if field.name != "reserved":
                values[field.name] = value
        return values

    def refusal(self, field: Field, at: int, code: int, location: Location = NOWHERE) -> DlcError:
        """The error that `field` at bit `at` holds `code`."""
        if field.name == "reserved":
            # The first bit that is set is what the reader looks for.
            lowest, highest = (code & -code).bit_length() - 1, code.bit_length() - 1
            at += field.width - 1 - highest if self.first == "high" else lowest
            return bad_bit(f"{self.name}: bit {at} is set, which must be zero", at, location)
        message = f"{self.name}: {field.name} at bit {at} is {code:0{field.width}b}, which is reserved"
        return bad_bit(message, at, location, f"{field.name} is one of {field.choices}")

    def to_bytes(self, values: Mapping[str, Any]) -> bytes:
        """The word as bytes; its width is a multiple of 8."""
        return self.encode(values).to_bytes(self.width // 8, "big" if self.first == "high" else "little")

    def from_bytes(self, data: bytes, location: Location = NOWHERE) -> dict[str, Any]:
        """What the fields of the word in `data` stand for."""
        return self.decode(int.from_bytes(data, "big" if self.first == "high" else "little"), location)

    def _shift(self, field: Field, at: int) -> int:
        return self.width - at - field.width if self.first == "high" else at


def bad_bit(message: str, bit: int, location: Location = NOWHERE, help: str = "") -> DlcError:
    """The error that a word, whose first byte is at `location`, is none because of a bit."""
    place = Location(location.source, location.node, byte=max(location.byte, 0) + bit // 8)
    return error("bad-word", message, location=place, help=help)


def words_of(data: bytes, size: int, source: str, what: str) -> list[tuple[bytes, Location]]:
    """`data` cut into words of `size` bytes, each with its place.

    Raises:
        DlcError: "truncated-file", if the last word is not whole.
    """
    rest = len(data) % size
    if rest:
        place = Location(source, byte=len(data) - rest)
        message = f"{what} have {size} bytes, but the last one has {rest}"
        raise error("truncated-file", message, location=place, help=f"{len(data)} bytes are no whole number of words")
    return [(data[at : at + size], Location(source, byte=at)) for at in range(0, len(data), size)]
