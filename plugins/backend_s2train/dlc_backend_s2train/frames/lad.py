"""LAD rows: four LADs (length, address, data) side by side, one to each 16-bit lane of the link.

    beat 0      lengths of lanes 0 to 3 in elements, big-endian
    beats 1, 2  high, then low halves of the addresses, big-endian
    L beats     element i of lanes 0 to 3, fp16 little-endian; L is the longest length

An idle lane has length and address 0. Of an open frame the data, L beats, are left out: they are values of a run.
Shorter lanes are filled up with zeros. The byte orders differ in the published frames too. Source: load channel of the
S2Train compiler, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import DlcError, Location, error
from dlc_backend_s2train.frames.layout import LAD_LIMIT, LANES
from dlc_backend_s2train.frames.sizes import BEAT, LAD_HEAD

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
