"""Frames written from the pages `docs/s2train*.md` and from nothing else; see `page_simulator`."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.backend_s2train.page_simulator import crc64

Array = np.ndarray[Any, np.dtype[Any]]
Positions = tuple[Sequence[float], Sequence[float]]
"""Of a part along an axis: those of the plane, and those of the kernel."""

Parts = tuple[Sequence[Positions], Sequence[Positions]]
"""Of rows and of columns."""


def array_stride(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> int:
    """q; 0 where there is none."""
    fits = [q for q in (1, 2) if all(_fits(q, *axis) for axis in zip(kernel, stride, dilation, strict=True))]
    return 0 if kernel == (1, 1) else max(fits, default=0)


def _fits(q: int, k: int, s: int, d: int) -> bool:
    return s % q == 0 if k == 1 else s == q * d


def forward(k: int, s: int, d: int, p: int, o: int, q: int) -> list[Positions]:
    """The parts of an axis."""
    if not q:
        return [([a * d - p + j * s for j in range(o)], [a]) for a in range(k)]
    e, count = s // q, (o - 1) * q + 3
    return [([a * e - p + j * e for j in range(count)], [a, a + 1, a + 2]) for a in range(0, k, 3)]


def backward(k: int, s: int, d: int, p: int, i: int) -> list[Positions]:
    """The same; not for kernels of 1 x 1."""
    if d > 1:
        return [([(a * d + p - (k - 1) * d + j) / s for j in range(i)], [k - 1 - a]) for a in range(k)]
    taps = [[k - 1 - a, k - 2 - a, k - 3 - a] for a in range(0, k, 3)]
    return [([(a + p - k + 1 + j) / s for j in range(i + 2)], t) for a, t in zip(range(0, k, 3), taps, strict=True)]


def gradient(k: int, s: int, d: int, p: int, o: int, q: int, most: int) -> list[Positions]:
    """The same for weight gradients of up to 16 taps, in strips of `most` elements of dy."""
    if not q and d > 1:
        raise NotImplementedError
    q = q or s
    count = (o - 1) * q + 1
    plane, kernel = [-p + j * (s // q) for j in range(count + k - 1)], [j / q for j in range(count)]
    return [(plane[b : min(b + most, count) + k - 1], kernel[b : b + most]) for b in range(0, count, most)]


def taken(x: Array, rows: Sequence[float], columns: Sequence[float]) -> Array:
    """Elements of the last two axes at positions, zeros where there are none."""
    found = np.zeros((*x.shape[:-2], len(rows), len(columns)), np.float16)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if row == int(row) and column == int(column) and 0 <= row < x.shape[-2] and 0 <= column < x.shape[-1]:
                found[..., i, j] = x[..., int(row), int(column)]
    return found


def lad_row(lanes: list[Array], addresses: list[int]) -> bytes:
    """Up to four LADs side by side."""
    lengths = [len(data) for data in lanes] + [0] * (4 - len(lanes))
    places = addresses + [0] * (4 - len(lanes))
    data = np.zeros((max(lengths), 4), "<f2")
    for lane, values in enumerate(lanes):
        data[: len(values), lane] = values
    high, low = [a >> 16 for a in places], [a & 0xFFFF for a in places]
    return struct.pack(">12H", *lengths, *high, *low) + data.tobytes()


def features(plane: Array, r: int, q: int) -> tuple[list[bytes], int]:
    """LAD rows of a plane [c, h, w], and the columns of a tile; q is 1 or 2, r is 0 in linear layers."""
    paired, width = q == 2, plane.shape[2]
    if paired and plane.shape[1] % 2:
        plane = np.pad(plane, ((0, 0), (0, 1), (0, 0)))
    tile = 15 * q + r if r else 1
    shared = (2 - tile % 2) if paired else max(r - 1, 0)
    found: list[bytes] = []
    for begin in range(0, width - shared, tile - shared):
        rows = plane[:, :, begin : begin + tile].swapaxes(0, 1)
        entries = list(rows.reshape(len(rows) // q, -1))
        for first in range(0, len(entries), 4):
            lanes = entries[first : first + 4]
            found.append(lad_row(lanes, [0xB0000000 + lane * 0x10000 for lane in range(len(lanes))]))
    return found, tile


def weights(kernels: Array, q: int) -> list[bytes]:
    """LAD rows of at most 64 kernels [k, c, r, s]."""
    if q == 2:
        kernels = kernels[:, :, [0, 2, 1]]
    filled = np.pad(kernels, ((0, -len(kernels) % 4), (0, 0), (0, 0), (0, 0))).swapaxes(1, 2)
    lanes = list(filled.reshape(len(filled), -1))
    places = [0x40800000 + (k // 8 << 24) + (k % 8 << 20) for k in range(len(lanes))]
    return [lad_row(lanes[k : k + 4], places[k : k + 4]) for k in range(0, len(lanes), 4)]


def frame(number: int, stage: int, memory: int, tile: int, flags: int, rows: list[bytes]) -> bytes:
    """Head, body, trailer; of an open frame without the data of its LADs."""
    body = b"".join(row[:24] if flags & 8 else row for row in rows)
    head = struct.pack(">4sIHBBBBH", b"S2TF", number, len(rows), stage, memory, tile, flags, len(body) // 8 >> 16)
    return head + struct.pack(">Q", crc64(head)) + body + struct.pack(">Q", crc64(body))


def frames(
    stage: int,
    planes: Array,
    kernels: Array,
    parts: Parts,
    q: int,
    r: int | None = None,
    first: int = 0,
    bare: Sequence[int] = (),
) -> bytes:
    """All of an instruction's, weight-stationary: one pass, one run of channels, one group.

    Args:
        stage: As in a word.
        planes: [u, c, h, w], before positions are taken.
        kernels: [k, c, r, s].
        parts: Of both axes.
        q: The array's stride; 0: none. Only forward has other planes for 2.
        r: Of tiles, where it is not the kernel's width.
        first: Running number of the first frame.
        bare: Memories whose frames are open.
    """
    step, number, found = max(q, 1), first, b""
    places = [(rows, columns) for rows in parts[0] for columns in parts[1]]
    for rows, columns in places:
        flags = 2 * (step == 2) + 4 * ((rows, columns) == places[-1])
        found += frame(number, stage, 1, 0, flags + 8 * (1 in bare), weights(taken(kernels, rows[1], columns[1]), step))
        number += 1
        for plane in planes:
            lads, tile = features(taken(plane, rows[0], columns[0]), len(columns[1]) if r is None else r, step)
            found += frame(number, stage, 0, tile, flags + 8 * (0 in bare), lads)
            number += 1
    return found
