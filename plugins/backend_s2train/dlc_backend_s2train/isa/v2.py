"""Instruction words of version 2: 32 bytes, little-endian, with all that an instruction says.

Version 1 (the published compiler's encoding) numbers 512 tensors and says neither shapes nor hyper-parameters; these
words name a geometry, hyper-parameters and ten operands of 16 bits each, and end in a checksum.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from typing import Any, Final

from dlc.base.diagnostics import Location, error
from dlc_backend_s2train.codes import OPERANDS, Flag, Opcode, Slot, Splitting, Stage
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.bits import NOWHERE, Field, Layout, words_of
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.program import Instruction

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
