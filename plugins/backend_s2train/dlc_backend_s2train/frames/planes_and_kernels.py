"""Operands as planes and kernels, and those as LAD rows of the memories of features and weights; all of it back, too.

Operands become planes and kernels as numpy views that convert both ways, after the table of axes of `layout`:

| opcode | features, kernels | forward | backward | weight gradient |
|---|---|---|---|---|
| convolution, linear | first two axes swapped | no, no | no, yes | yes, yes |

A plane [c, h, w] of features:

    tile column → row y in lane (y mod 4), at that lane's group of the feature memory → channels → columns

With stride 2, an entry of a lane is two rows: 2q, then 2q + 1.

Kernels [k, c, r, s] of weights:

    kernel k → column k of the array: LAD row k / 4, lane k mod 4 → row, channel, column

For stride 2 the rows 1 and 2 of a kernel change places. Numbers of kernels are filled up to multiples of four with
zeros. Of a linear layer, 16 outputs are the columns of one kernel.

Source: published encoding of the S2Train compiler, sections 3.3 to 3.6; the one-row-group LADs of its code, or the
merged ones of its slides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlc.base.diagnostics import error
from dlc_backend_s2train.codes import Slot, Stage
from dlc_backend_s2train.frames.frame import Bits, LadRow, Memory, encode, refusal
from dlc_backend_s2train.frames.layout import LANES, Layout
from dlc_backend_s2train.frames.parts import STRIP, Index
from dlc_backend_s2train.program import Geometry


@dataclass(frozen=True)
class View:
    """How an operand becomes planes or kernels."""

    slot: Slot
    """Where an instruction of this stage names it."""
    what: str
    """Which tensor of the operator it is: x, w or y (dy)."""
    swap: bool
    """Its first two axes change places."""


VIEWS: Final = {
    (Stage.FORWARD, Memory.FM): View("src0", "x", False),
    (Stage.FORWARD, Memory.WM): View("src1", "w", False),
    (Stage.BACKWARD, Memory.FM): View("src0", "y", False),
    (Stage.BACKWARD, Memory.WM): View("src1", "w", True),
    (Stage.WEIGHT_GRADIENT, Memory.FM): View("src1", "x", True),
    (Stage.WEIGHT_GRADIENT, Memory.WM): View("src0", "y", True),
}


def shape_of(what: str, g: Geometry) -> tuple[int, int, int, int]:
    """Shape of the operator's x, w or y."""
    return {
        "x": (g.n, g.ci, g.hi, g.wi),
        "w": (g.co, g.ci // g.groups, g.kh, g.kw),
        "y": (g.n, g.co, g.ho, g.wo),
    }[what]


def arrange(view: View, memory: Memory, tensor: Bits, g: Geometry, linear: bool) -> Bits:
    """The operand as [groups, u or k, c, h, w], without the zeros that layouts put in.

    Args:
        view: Which operand.
        memory: As planes (FM) or as kernels (WM).
        tensor: Its elements, of `shape_of`'s shape or another with as many.
        g: The geometry of what the instruction reads.
        linear: Features become rows of a single plane, blocks of 16 outputs the columns of a kernel.

    Raises:
        DlcError: "bad-operand": another number of elements.
    """
    shape = shape_of(view.what, g)
    if tensor.size != np.prod(shape, dtype=object):
        message = f"frames: operand {view.slot} has {tensor.size} elements, its geometry wants {shape}"
        raise error("bad-operand", message, help="tensors and geometries of a program go together")
    found = _groups(tensor.reshape(shape), view, g.groups)
    if not linear:
        return found
    matrix = found[0, :, :, 0, 0]
    if memory is Memory.FM:
        return matrix.T[None, None, :, :, None]
    rows, features = matrix.shape
    filled = np.zeros((-(-rows // STRIP) * STRIP, features), np.uint16)
    filled[:rows] = matrix
    return filled.reshape(-1, STRIP, features).transpose(0, 2, 1)[None, :, :, None, :]


def restore(view: View, memory: Memory, arranged: Bits, g: Geometry, linear: bool) -> Bits:
    """The operand, of `shape_of`'s shape, from what `arrange` gave."""
    shape = shape_of(view.what, g)
    found = arranged
    if linear:
        swapped = (shape[1], shape[0]) if view.swap else (shape[0], shape[1])
        if memory is Memory.FM:
            matrix = arranged[0, 0, :, :, 0].T
        else:
            matrix = arranged[0, :, :, 0, :].transpose(0, 2, 1).reshape(-1, swapped[1])[: swapped[0]]
        found = matrix[None, :, :, None, None]
    if view.swap:
        found = found.swapaxes(1, 2)
    if view.what == "w":
        return found.reshape(shape)
    return found.swapaxes(0, 1).reshape(shape)


def _groups(tensor: Bits, view: View, groups: int) -> Bits:
    """[groups, first, second, h, w]: y and x are split along their channels, w along its outputs."""
    first, second, h, w = tensor.shape
    if view.what == "w":
        found = tensor.reshape(groups, first // groups, second, h, w)
    else:
        found = tensor.reshape(first, groups, second // groups, h, w).swapaxes(0, 1)
    return found.swapaxes(1, 2) if view.swap else found


def slices(index: Index) -> tuple[slice, slice]:
    """(places, positions): element places[i] is that at positions[i] of the axis, all others are zeros."""
    if index.zoom > 1:
        # The step is 1: every zoom-th place has an element.
        place = -index.begin % index.zoom
        position = (index.begin + place) // index.zoom
        place += max(-position, 0) * index.zoom
        position = max(position, 0)
        count = max(min(-(-(index.count - place) // index.zoom), index.limit - position), 0)
        return slice(place, place + count * index.zoom, index.zoom), slice(position, position + count)
    step = index.step
    low, high = (
        (-index.begin, index.limit - index.begin) if step > 0 else (index.begin - index.limit + 1, index.begin + 1)
    )
    first = max(-(-low // abs(step)), 0)
    last = max(min(-(-high // abs(step)), index.count), first)
    begin, end = index.begin + step * first, index.begin + step * last
    if first == last:
        return slice(0, 0), slice(0, 0)
    return slice(first, last), slice(begin, end if end >= 0 else None, step)


def gather(tensor: Bits, rows: Index, columns: Index) -> Bits:
    """[…, rows, columns] of `tensor`'s last two axes."""
    (row_places, row_positions), (column_places, column_positions) = slices(rows), slices(columns)
    found = np.zeros((*tensor.shape[:-2], rows.count, columns.count), np.uint16)
    found[..., row_places, column_places] = tensor[..., row_positions, column_positions]
    return found


def scatter(tensor: Bits, values: Bits, rows: Index, columns: Index) -> bool:
    """Put back what `gather` took, in place; False if `values` are not zeros where they should be."""
    (row_places, row_positions), (column_places, column_positions) = slices(rows), slices(columns)
    kept = values[..., row_places, column_places]
    tensor[..., row_positions, column_positions] = kept
    return np.count_nonzero(values) == np.count_nonzero(kept)


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
