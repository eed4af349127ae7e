"""How a host speaks to a device over a pipe: five requests, little-endian, see docs/s2train-host.md.

    request   op u8, space u8, 0 u16, size u32, address u64, then `size` bytes of a write
    reply     status u32, size u32, then `size` bytes: what was read, the time, or why a status is not 0, as text

`write` and `start` have no reply: what is wrong with them is the status of the next one.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import BinaryIO, Final

REQUEST: Final = struct.Struct("<BBxxIQ")
REPLY: Final = struct.Struct("<II")
TIME: Final = struct.Struct("<Q")
MOST: Final = 1 << 20
"""Bytes of one request or reply: larger transfers are several."""
MESSAGE: Final = 4096
"""Bytes of a text at most."""


class Ask(IntEnum):
    """What a request asks for."""

    WRITE = ord("W")
    READ = ord("R")
    START = ord("S")
    """The operation in the registers begins."""
    WAIT = ord("E")
    """Until it has ended."""
    TIME = ord("T")
    """Cycles since the device was switched on."""


class Space(IntEnum):
    """What an address is of."""

    MEMORY = 0
    REGISTERS = 1
    """32 bits each, written in multiples of 4 bytes."""


class Status(IntEnum):
    """How a request ended."""

    OK = 0
    UNSUPPORTED = 1
    """The device has no such instruction; nothing has changed."""
    REFUSED = 2
    """The operation is not legal, or the registers do not fit it; nothing has changed."""
    FAILED = 3
    """Anything else."""


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """`size` bytes; fewer where the stream ends."""
    found = bytearray()
    while len(found) < size:
        data = stream.read(size - len(found))
        if not data:
            break
        found += data
    return bytes(found)
