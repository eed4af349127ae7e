"""Words of bits, declared (`Layout`), and the instruction words of version 2.

A word's fields stand in order, with what their codes stand for and bits that must be zero: encoder, decoder and
documentation of a word all come from its `Layout`.

Words of version 2 have 32 bytes, little-endian, with all that an instruction says. Version 1 (the published compiler's
encoding) numbers 512 tensors and says neither shapes nor hyper-parameters; these words name a geometry,
hyper-parameters and ten operands of 16 bits each, and end in a checksum.
"""

from __future__ import annotations

import binascii
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from dlc.base.diagnostics import DlcError, Location, error
from dlc_backend_s2train.codes import OPERANDS, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.instruction_set import Opcode, spelled
from dlc_backend_s2train.program import Instruction

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


BYTES: Final = 32
NONE: Final = 0xFFFF
"""The number of an operand, geometry or hyper-parameters that are not there."""

_OPCODES: Final = tuple(Opcode(code) if code in set(Opcode) else None for code in range(256))

WORD: Final = Layout(
    "version 2 word",
    (
        Field("opcode", 8, _OPCODES),
        Field("stage", 2, tuple(Stage)),
        Field("splitting", 4, note=", ".join(f"bit {n} {spelled(bit)}" for n, bit in enumerate(Splitting))),
        Field("dtype", 2, ("fp16", None, None, None)),
        Field("flags", 16, note="one bit per stage of the post-processing unit"),
        Field("geometry", 16, note="number of the geometry, of `host` that of the function; 0xFFFF: none"),
        Field("hyper", 16, note="number of the hyper-parameters; 0xFFFF: none"),
        *(Field(slot, 16, note="number of the tensor; 0xFFFF: none") for slot in OPERANDS),
        Field("wait", 4, note="token that the instruction waits for; 0: none"),
        Field("signal", 4, note="token that it gives at its end; 0: none"),
        Field("cores", 8, note="one bit per core that takes part"),
        Field("crc", 16, note="CRC-16/IBM-3740 of bytes 0 to 29"),
    ),
    "low",
)
_CRC_AT: Final = BYTES - 2


def crc16(data: bytes) -> int:
    """CRC-16/IBM-3740, also known as CCITT-FALSE: polynomial 0x1021, initial value 0xFFFF; of "123456789" 0x29B1."""
    return binascii.crc_hqx(data, 0xFFFF)


def encode(instruction: Instruction, location: Location | None = None) -> bytes:
    """The 32 bytes of an instruction.

    Raises:
        DlcError: "bad-instruction", at `location`, if there is no such instruction.
    """
    access(instruction, location)
    values: dict[str, Any] = {
        "opcode": instruction.opcode,
        "stage": instruction.stage,
        "splitting": int(instruction.splitting),
        "dtype": "fp16",
        "flags": int(instruction.flags),
        "geometry": NONE if (number := _numbered(instruction)) is None else number,
        "hyper": NONE if instruction.hyper is None else instruction.hyper,
        **{slot: instruction.operands.get(slot, NONE) for slot in OPERANDS},
        "wait": instruction.wait,
        "signal": instruction.signal,
        "cores": instruction.cores,
    }
    body = WORD.to_bytes(values)[:_CRC_AT]
    return body + crc16(body).to_bytes(2, "little")


def _numbered(instruction: Instruction) -> int | None:
    """What bytes 4 and 5 hold: a host function has no geometry beside it."""
    return instruction.geometry if instruction.function is None else instruction.function


def decode(data: bytes, location: Location = NOWHERE) -> Instruction:
    """The instruction in 32 bytes, whose first lies at `location`.

    Raises:
        DlcError: "truncated-file" for another number of bytes, "checksum" if the CRC is another, "bad-word" at the
            byte of an unknown opcode or a reserved code, "bad-instruction" if there is no such instruction.
    """
    if len(data) != BYTES:
        raise error("truncated-file", f"a version 2 word has {BYTES} bytes, not {len(data)}", location=location)
    begin = max(location.byte, 0)
    found = crc16(data[:_CRC_AT])
    stored = int.from_bytes(data[_CRC_AT:], "little")
    if found != stored:
        place = Location(location.source, location.node, byte=begin + _CRC_AT)
        message = f"version 2 word: its CRC-16 is {found:04x}, but {stored:04x} is stored"
        raise error("checksum", message, location=place, help="the file was changed or damaged; compile again")
    values = WORD.from_bytes(data, location)
    operands: dict[Slot, int] = {slot: values[slot] for slot in OPERANDS if values[slot] != NONE}
    host = values["opcode"] is Opcode.HOST
    instruction = Instruction(
        values["opcode"],
        values["stage"],
        Flag(values["flags"]),
        Splitting(values["splitting"]),
        geometry=None if host or values["geometry"] == NONE else values["geometry"],
        hyper=None if values["hyper"] == NONE else values["hyper"],
        operands=operands,
        wait=values["wait"],
        signal=values["signal"],
        cores=values["cores"],
        function=values["geometry"] if host and values["geometry"] != NONE else None,
    )
    access(instruction, location)
    return instruction


def encode_program(instructions: Iterable[Instruction]) -> bytes:
    """The words of instructions, one behind the other."""
    return b"".join(encode(i, Location(node=f"instruction {at}")) for at, i in enumerate(instructions))


def decode_program(data: bytes, source: str = "") -> tuple[Instruction, ...]:
    """The instructions whose words stand one behind the other in `data`.

    Raises:
        DlcError: as `decode`, at the byte in question.
    """
    return tuple(decode(word, place) for word, place in words_of(data, BYTES, source, "version 2 words"))
