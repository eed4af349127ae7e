"""Frames of the link: a head of three beats, LAD rows, and a trailer of one beat.

    beat 0   "S2TF", running number u32
    beat 1   LAD rows u16, stage u8, memory u8, columns of a tile u8, flags u8, beats of the body / 65536 u16
    beat 2   CRC-64/XZ of beats 0 and 1
    body
    trailer  CRC-64/XZ of the body

Everything in head and trailer is big-endian, as in the heads of LADs. The published material shows the three beats and
defines nothing in them: what they hold is dlc's proposal.

The body consists of LAD rows: four LADs (length, address, data) side by side, one to each 16-bit lane of the link.

    beat 0      lengths of lanes 0 to 3 in elements, big-endian
    beats 1, 2  high, then low halves of the addresses, big-endian
    L beats     element i of lanes 0 to 3, fp16 little-endian; L is the longest length

An idle lane has length and address 0. Of an open frame the data, L beats, are left out: they are values of a run.
Shorter lanes are filled up with zeros. The byte orders differ in the published frames too. Source: load channel of the
S2Train compiler, section 3.2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import DlcError, Location, error
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.crc import crc64
from dlc_backend_s2train.frames.layout import LAD_LIMIT, LANES
from dlc_backend_s2train.frames.sizes import BEAT, HEAD, LAD_HEAD, TRAILER

Bits = NDArray[np.uint16]
"""fp16 as bits, so that NaN keep their payload."""
_LITTLE: Final = np.dtype("<u2")
_BIG: Final = np.dtype(">u2")


@dataclass(frozen=True, eq=False)
class LadRow:
    """One LAD row."""

    lengths: tuple[int, ...]
    """Elements of each of the four lanes."""
    addresses: tuple[int, ...]
    """32 bits each."""
    data: Bits
    """[4, L]; zeros where the frame is open."""


def encode(lengths: NDArray[np.int64], addresses: NDArray[np.int64], data: Bits, bare: bool = False) -> bytes:
    """Bytes of n LAD rows of equally many beats.

    Args:
        lengths: [n, 4], or [4] for all rows.
        addresses: The same.
        data: [n, 4, L], what lies beyond a lane's length included.
        bare: Leave the data out.
    """
    data = data[:, :, :0] if bare else data
    n, _, beats = data.shape
    row = np.empty((n, LAD_HEAD // 2 + LANES * beats), _LITTLE)
    big = row.view(_BIG)
    big[:, 0:4] = lengths
    big[:, 4:8] = addresses >> 16
    big[:, 8:12] = addresses & 0xFFFF
    row[:, 12:].reshape(n, beats, LANES)[...] = data.transpose(0, 2, 1)
    return row.tobytes()


def encode_rows(rows: Iterable[LadRow]) -> bytes:
    """Bytes of LAD rows, one behind the other."""
    return b"".join(
        encode(np.array([row.lengths], np.int64), np.array([row.addresses], np.int64), row.data[None]) for row in rows
    )


def decode(
    body: bytes | memoryview, count: int | None = None, source: str = "", base: int = 0, bare: bool = False
) -> tuple[list[LadRow], int]:
    """LAD rows from `body`, and the bytes that they take.

    Args:
        body: Bytes that begin with a LAD row; the rows are views of them.
        count: How many rows; None: all that `body` holds.
        source: What to call the bytes in messages.
        base: Offset of `body` in it.
        bare: The data are left out.

    Raises:
        DlcError: "bad-frame": it ends too early, a lane is longer than a LAD may be, or what is idle is not zero.
    """
    rows: list[LadRow] = []
    view, at = memoryview(body), 0
    while at < len(view) if count is None else len(rows) < count:
        row = _decode_row(view, at, Location(source, byte=base + at), bare)
        rows.append(row)
        at += LAD_HEAD + (0 if bare else BEAT * row.data.shape[1])
    return rows, at


def _decode_row(view: memoryview, at: int, place: Location, bare: bool) -> LadRow:
    if len(view) - at < LAD_HEAD:
        raise refusal(f"{len(view) - at} bytes are left, but a LAD row begins with {LAD_HEAD}", place)
    head = np.frombuffer(view, _BIG, LAD_HEAD // 2, at).astype(np.int64)
    lengths = tuple(int(n) for n in head[0:4])
    addresses = tuple(int(a) for a in (head[4:8] << 16) | head[8:12])
    beats = max(lengths)
    if beats > LAD_LIMIT:
        raise refusal(f"a LAD of {beats} elements, but the longest has {LAD_LIMIT}", place)
    if bare:
        data = np.broadcast_to(np.uint16(0), (LANES, beats))
    elif len(view) - at - LAD_HEAD < BEAT * beats:
        left = len(view) - at - LAD_HEAD
        raise refusal(f"{left} bytes are left, but a LAD row of {beats} beats needs {BEAT * beats}", place)
    else:
        data = np.frombuffer(view, _LITTLE, LANES * beats, at + LAD_HEAD).reshape(beats, LANES).T
    for lane, (length, address) in enumerate(zip(lengths, addresses, strict=True)):
        if not length and address:
            raise refusal(f"lane {lane} is idle, but its address is {address:#010x}", place)
        if data[lane, length:].any():
            raise refusal(f"lane {lane} has {length} elements, but not zeros behind them", place)
    return LadRow(lengths, addresses, data)


def refusal(message: str, place: Location | None = None) -> DlcError:
    """The error of bytes that are no frame."""
    return error("bad-frame", message, location=place, help="the file is damaged; compile the model again")


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
