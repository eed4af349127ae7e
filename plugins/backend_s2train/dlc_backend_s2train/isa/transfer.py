"""Transfer words: 32 bits, big-endian, that name a tensor and a port of the link.

Source: an older instruction set of the published compiler; nothing that runs uses it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal

from dlc.base.diagnostics import Location, error
from dlc_backend_s2train.isa.bits import NOWHERE, Field, Layout

TRANSFER: Final = Layout(
    "transfer word",
    (
        Field("opcode", 6, (None, "send", "receive")),
        Field("tensor", 22),
        Field("port", 4),
    ),
    "high",
)


@dataclass(frozen=True)
class Transfer:
    """A tensor that goes to the device or comes from it."""

    opcode: Literal["send", "receive"]
    tensor: int
    port: int


def encode_transfer(transfer: Transfer) -> bytes:
    """The 4 bytes of a word.

    Raises:
        DlcError: "bad-instruction", if a number does not fit its field.
    """
    return TRANSFER.to_bytes(asdict(transfer))


def decode_transfer(data: bytes, location: Location = NOWHERE) -> Transfer:
    """The word in 4 bytes.

    Raises:
        DlcError: "bad-word" for an unknown opcode, "truncated-file" for another number of bytes.
    """
    size = TRANSFER.width // 8
    if len(data) != size:
        raise error("truncated-file", f"a transfer word has {size} bytes, not {len(data)}", location=location)
    return Transfer(**TRANSFER.from_bytes(data, location))
