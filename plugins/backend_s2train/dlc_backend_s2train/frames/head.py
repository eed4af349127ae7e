"""A frame: a head of three beats, LAD rows, and a trailer of one beat.

    beat 0   "S2TF", running number u32
    beat 1   LAD rows u16, stage u8, memory u8, columns of a tile u8, flags u8, beats of the body / 65536 u16
    beat 2   CRC-64/XZ of beats 0 and 1
    body
    trailer  CRC-64/XZ of the body

Everything in head and trailer is big-endian, as in the heads of LADs. The published material shows the three beats and
defines nothing in them: what they hold is dlc's proposal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from dlc.base.diagnostics import Location
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.crc import crc64
from dlc_backend_s2train.frames.lad import LadRow, decode, refusal
from dlc_backend_s2train.frames.sizes import BEAT, HEAD, TRAILER

_MAGIC: Final = b"S2TF"
_FIELDS: Final = struct.Struct(">4sIHBBBBH")
_CRC: Final = struct.Struct(">Q")
_ROWS_LIMIT: Final = 0xFFFF
_BYTES_LIMIT: Final = 1 << 29
"""Of one body: thousands of times what the feature memory holds."""


class Memory(IntEnum):
    """Which memory a frame is for; the value is its code."""

    FM = 0
    WM = 1


class FrameFlag(IntFlag):
    """Ways of a frame."""

    MERGED = 1 << 0
    """LADs hold several row groups."""
    PAIRED = 1 << 1
    """Stride 2: two rows to an entry, rows 1 and 2 of kernels exchanged."""
    LAST = 1 << 2
    """The last split of a sum."""
    OPEN = 1 << 3
    """LADs have no data, only lengths and addresses: who feeds the link puts in what a tensor holds by then."""


NO_FRAME_FLAGS: Final = FrameFlag(0)


@dataclass(frozen=True)
class Head:
    """What a frame's head says of it, sizes aside."""

    number: int
    """Frames count from 0, modulo 2^32."""
    stage: Stage
    memory: Memory
    tile: int = 0
    """Columns of a full tile; 0 in frames of weights."""
    flags: FrameFlag = NO_FRAME_FLAGS


@dataclass(frozen=True, eq=False)
class Frame:
    """A frame that was decoded."""

    head: Head
    rows: tuple[LadRow, ...]
    offset: int
    """Of its first byte."""
    size: int
    """Bytes, head and trailer included."""


def check_size(rows: int, body: int) -> None:
    """Refuse a frame whose head cannot say its size, before memory is taken for it.

    Raises:
        DlcError: "bad-frame".
    """
    if rows > _ROWS_LIMIT:
        raise refusal(f"a frame of {rows} LAD rows; its head counts to {_ROWS_LIMIT}, merged LADs need fewer")
    if body > _BYTES_LIMIT:
        raise refusal(f"a frame of {body} bytes; the limit is {_BYTES_LIMIT}")


def encode_frame(head: Head, rows: int, body: bytes) -> bytes:
    """The frame whose `body` holds `rows` LAD rows.

    Raises:
        DlcError: "bad-frame": more rows or bytes than a frame has.
    """
    check_size(rows, len(body))
    high = len(body) // BEAT >> 16
    fields = (head.number & 0xFFFFFFFF, rows, head.stage, head.memory, head.tile, head.flags, high)
    beats = _FIELDS.pack(_MAGIC, *fields)
    return b"".join((beats, _CRC.pack(crc64(beats)), body, _CRC.pack(crc64(body))))


def decode_frames(stream: bytes | memoryview, source: str = "") -> Iterator[Frame]:
    """The frames of a link stream, in order; running numbers must follow each other.

    Raises:
        DlcError: "bad-frame", with the offset, at the first byte that no stream has.
    """
    view, at, number = memoryview(stream), 0, None
    while at < len(view):
        frame = decode_frame(view, at, source)
        if number is not None and frame.head.number != (number + 1) & 0xFFFFFFFF:
            place = Location(source, byte=at)
            raise refusal(f"frame {frame.head.number} follows frame {number}", place)
        number = frame.head.number
        at += frame.size
        yield frame


def decode_frame(view: memoryview, at: int = 0, source: str = "") -> Frame:
    """The frame that begins at offset `at`.

    Raises:
        DlcError: "bad-frame", with the offset.
    """
    place = Location(source, byte=at)
    if len(view) - at < HEAD + TRAILER:
        raise refusal(f"{len(view) - at} bytes are left, but a frame has at least {HEAD + TRAILER}", place)
    magic, number, rows, stage, memory, tile, flags, high = _FIELDS.unpack_from(view, at)
    if magic != _MAGIC:
        raise refusal(f"a frame begins with {_MAGIC!r}, not {magic!r}", place)
    _check_crc("head", view[at : at + 16], view, at + 16, source)
    known = (
        ("stage", stage, Stage.WEIGHT_GRADIENT),
        ("memory", memory, max(Memory)),
        ("flags", flags, sum(FrameFlag)),
    )
    for name, value, most in known:
        if value > most:
            raise refusal(f"{name} of a frame is {value}, and at most {int(most)}", place)
    bare = bool(flags & FrameFlag.OPEN)
    lads, size = decode(view[at + HEAD : len(view) - TRAILER], rows, source, at + HEAD, bare)
    if size // BEAT >> 16 != high:
        raise refusal(f"the body has {size // BEAT} beats, its head says {high} times 65536 and a rest", place)
    body = view[at + HEAD : at + HEAD + size]
    _check_crc("body", body, view, at + HEAD + size, source)
    head = Head(number, Stage(stage), Memory(memory), tile, FrameFlag(flags))
    return Frame(head, tuple(lads), at, HEAD + size + TRAILER)


def _check_crc(name: str, what: memoryview, view: memoryview, at: int, source: str) -> None:
    (stored,) = _CRC.unpack_from(view, at)
    if (found := crc64(what)) != stored:
        message = f"the CRC-64 of a frame's {name} is {found:#018x}, stored is {stored:#018x}"
        raise refusal(message, Location(source, byte=at))
