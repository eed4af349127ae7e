"""Frames of features: a plane [c, h, w] as LAD rows, and back.

    tile column → row y in lane (y mod 4), at that lane's group of the feature memory → channels → columns

With stride 2, an entry of a lane is two rows: 2q, then 2q + 1. Source: published encoding of the S2Train compiler,
sections 3.3 to 3.5; the one-row-group LADs of its code, or the merged ones of its slides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from dlc_backend_s2train.frames.lad import Bits, LadRow, encode, refusal
from dlc_backend_s2train.frames.layout import LANES, Layout

ADDRESSES: Final = tuple(0xB0000000 + (group << 16) for group in range(LANES))
"""Of the groups of the feature memory."""
_GROUPS: Final = np.array(ADDRESSES, np.int64)
_USED: Final = np.tri(LANES + 1, LANES, -1, np.int64)
"""Per number of lanes that are used, a 1 for each of them."""


def encode_plane(plane: Bits, lay: Layout, bare: bool = False) -> bytes:
    """The body of the frame of `plane` [c, h, w]; stride 2 needs an even h. `bare`: without data."""
    width = plane.shape[2]
    return b"".join(block for begin, end in lay.tiles(width) for block in _tile(plane[:, :, begin:end], lay, bare))


def _tile(tile: Bits, lay: Layout, bare: bool) -> Iterator[bytes]:
    """LAD rows of one tile column [c, h, t]."""
    count = tile.shape[1] // (1 + lay.paired)
    entries = np.ascontiguousarray(tile.swapaxes(0, 1)).reshape(count, -1)
    length = entries.shape[1]
    full, left = lay.lad_rows(count, length)
    at = 0
    for rows, groups in full.runs():
        if not rows:
            continue
        part = entries[at : at + rows * groups * LANES].reshape(rows, groups, LANES, length)
        yield _encode(part.swapaxes(1, 2).reshape(rows, LANES, groups * length), LANES, bare)
        at += rows * groups * LANES
    if left:
        last = np.zeros((1, LANES, length), np.uint16)
        last[0, :left] = entries[at:]
        yield _encode(last, left, bare)


def _encode(data: Bits, lanes: int, bare: bool) -> bytes:
    """LAD rows whose first `lanes` lanes are used."""
    used = _USED[lanes]
    return encode(used * data.shape[2], used * _GROUPS, data, bare)


def decode_plane(rows: Sequence[LadRow], lay: Layout, shape: tuple[int, int, int]) -> Bits:
    """The plane [c, h, w] of `shape` whose frame holds `rows`; where tiles overlap, the later one counts.

    Raises:
        DlcError: "bad-frame": number, lengths or addresses of LADs are not those of such a plane.
    """
    channels, height, width = shape
    plane = np.zeros(shape, np.uint16)
    count = height // (1 + lay.paired)
    left_over = iter(rows)
    number = 0
    for begin, end in lay.tiles(width):
        length = height // max(count, 1) * channels * (end - begin)
        entries = np.empty((count, length), np.uint16)
        full, left = lay.lad_rows(count, length)
        for first, last in full:
            data = _take(left_over, number, (last - first) * length, LANES)
            block = data.reshape(LANES, last - first, length).swapaxes(0, 1)
            entries[first * LANES : last * LANES] = block.reshape(-1, length)
            number += 1
        if left:
            entries[count - left :] = _take(left_over, number, length, left)[:left]
            number += 1
        plane[:, :, begin:end] = entries.reshape(height, channels, end - begin).swapaxes(0, 1)
    if next(left_over, None) is not None:
        raise refusal(f"a plane of {shape} has {number} LAD rows, its frame {len(rows)}")
    return plane


def _take(rows: Iterator[LadRow], number: int, length: int, lanes: int) -> Bits:
    """[4, length] of the next LAD row."""
    row = next(rows, None)
    if row is None:
        raise refusal(f"a frame of features ends after {number} LAD rows")
    want = (length,) * lanes + (0,) * (LANES - lanes)
    if row.lengths != want:
        raise refusal(f"LAD row {number} of a frame of features has lengths {row.lengths}, not {want}")
    if row.addresses != ADDRESSES[:lanes] + (0,) * (LANES - lanes):
        raise refusal(f"LAD row {number} of a frame of features is for {_hex(row.addresses)}")
    return row.data


def _hex(addresses: tuple[int, ...]) -> str:
    return ", ".join(f"{address:#010x}" for address in addresses)
