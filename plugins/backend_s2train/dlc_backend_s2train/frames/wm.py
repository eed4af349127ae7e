"""Frames of weights: kernels [k, c, r, s] as LAD rows, and back.

    kernel k → column k of the array: LAD row k / 4, lane k mod 4 → row, channel, column

For stride 2 the rows 1 and 2 of a kernel change places. Numbers of kernels are filled up to multiples of four with
zeros. Of a linear layer, 16 outputs are the columns of one kernel. Source: published encoding of the S2Train compiler,
section 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_backend_s2train.frames.lad import Bits, LadRow, encode, refusal
from dlc_backend_s2train.frames.layout import LANES, Layout

_PAIRED_ROWS = (0, 2, 1)
"""Rows of a kernel in the order in which a PE row uses them: its own, its neighbour's, its own again."""


def encode_kernels(kernels: Bits, lay: Layout, addresses: Sequence[int], bare: bool = False) -> bytes:
    """The body of the frame of `kernels` [k, c, r, s], kernel i for the column at `addresses`[i].

    There are addresses for at least k, rounded up to a multiple of four. `bare`: without data.
    """
    ordered = kernels[:, :, _PAIRED_ROWS] if lay.paired else kernels
    count = kernels.shape[0]
    rows = -(-count // LANES)
    data = np.zeros((rows * LANES, kernels[0].size), np.uint16)
    data[:count] = ordered.swapaxes(1, 2).reshape(count, -1)
    lengths = np.full((rows, LANES), data.shape[1])
    places = np.array(addresses[: rows * LANES], np.int64).reshape(rows, LANES)
    return encode(lengths, places, data.reshape(rows, LANES, -1), bare)


def decode_kernels(
    rows: Sequence[LadRow], lay: Layout, shape: tuple[int, int, int, int], addresses: Sequence[int]
) -> Bits:
    """The kernels [k, c, r, s] of `shape` whose frame holds `rows`.

    Raises:
        DlcError: "bad-frame": number, lengths or addresses of LADs are not those of such kernels, or a kernel behind
            the last is not zero.
    """
    count, channels, r, s = shape
    length = channels * r * s
    if len(rows) != -(-count // LANES):
        raise refusal(f"{count} kernels have {-(-count // LANES)} LAD rows, their frame {len(rows)}")
    for number, row in enumerate(rows):
        if row.lengths != (length,) * LANES:
            raise refusal(f"LAD row {number} of a frame of weights has lengths {row.lengths}, not {length}")
        want = tuple(addresses[number * LANES : (number + 1) * LANES])
        if row.addresses != want:
            message = f"LAD row {number} of a frame of weights is for {row.addresses[0]:#010x}, not {want[0]:#010x}"
            raise refusal(message)
    data = np.concatenate([row.data for row in rows])
    if data[count:].any():
        raise refusal(f"there are {count} kernels, but a later one of the frame is not zero")
    kernels = data[:count].reshape(count, r, channels, s).swapaxes(1, 2)
    return kernels[:, :, _PAIRED_ROWS] if lay.paired else kernels


def column_addresses(cores: Sequence[int], columns: int) -> tuple[int, ...]:
    """Where the weight memories of all columns of `cores` begin, `columns` of them to a core."""
    return tuple(0x40800000 + (core << 24) + (column << 20) for core in cores for column in range(columns))
