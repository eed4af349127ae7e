"""`send` and `receive`: both operands of an instruction as frames in the order of the link, and back.

    weight-stationary:  for each group, split, pass: a frame of weights, then the frames of all units
    feature-stationary: for each group, split, unit: a frame of features, then the frames of all passes

A split is a part of the kernel (row, then column) and a run of channels. The policy is that of `sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from dlc_backend_s2train.frames.fm import decode_plane, encode_plane
from dlc_backend_s2train.frames.head import Frame, FrameFlag, Head, Memory, check_size, encode_frame
from dlc_backend_s2train.frames.lad import Bits, refusal
from dlc_backend_s2train.frames.layout import Form, Layout, layout, reduced
from dlc_backend_s2train.frames.operands import VIEWS, View, arrange, gather, restore, scatter, shape_of
from dlc_backend_s2train.frames.parts import Part
from dlc_backend_s2train.frames.sizes import kernel_bulk, plane_bulk, sizes_of
from dlc_backend_s2train.frames.wm import column_addresses, decode_kernels, encode_kernels
from dlc_backend_s2train.program import Geometry, Opcode, Stage, Target

_ELEMENTS_LIMIT: Final = 1 << 29
"""Of an operand that is decoded."""


@dataclass(frozen=True)
class Conversion:
    """An instruction's frames: what they are of, and how they lie."""

    opcode: Opcode
    stage: Stage
    geometry: Geometry
    """Of what the instruction reads: without `samples` and `channels`."""
    layout: Layout
    addresses: tuple[int, ...]
    """Of the columns that take part."""

    def view(self, memory: Memory) -> View:
        """Which operand a memory gets."""
        return VIEWS[self.stage, memory]


@dataclass(frozen=True)
class Piece:
    """What one frame holds."""

    memory: Memory
    group: int
    row: Part
    column: Part
    channels: tuple[int, int]
    units: tuple[int, int]
    """Of features the unit, of weights the kernels: first, and the one behind the last."""
    last: bool
    """Of the last split of its sums."""


def conversion(
    opcode: Opcode,
    stage: Stage,
    geometry: Geometry,
    form: Form | None = None,
    target: Target | None = None,
    cores: int = 0xFF,
) -> Conversion:
    """How an instruction's operands become frames; arguments and errors are those of `layout`."""
    lay = layout(opcode, stage, geometry, form, target, cores)
    target = target or Target()
    taking = [core for core in range(target.cores) if cores >> core & 1] or [0]
    return Conversion(opcode, stage, reduced(geometry, stage), lay, column_addresses(taking, target.columns))


def pieces(lay: Layout) -> Iterator[Piece]:
    """Frames in the order of the link."""
    splits = list(product(lay.rows, lay.columns, lay.splits))
    last_of = {(row.result, column.result): number for number, (row, column, _) in enumerate(splits)}
    stationary = sizes_of(lay).policy == "weight-stationary"
    for group, number in product(range(lay.groups), range(len(splits))):
        row, column, channels = splits[number]
        last = number == last_of[row.result, column.result]
        units = [Piece(Memory.FM, group, row, column, channels, (u, u + 1), last) for u in range(lay.units)]
        passes = [Piece(Memory.WM, group, row, column, channels, cut, last) for cut in lay.passes]
        outer, inner = (passes, units) if stationary else (units, passes)
        for one in outer:
            yield one
            yield from inner


def send(con: Conversion, features: Bits, kernels: Bits, first: int = 0) -> Iterator[bytes]:
    """The frames of both operands.

    Args:
        con: How.
        features: x forward and for a weight gradient, dy backward; fp16 bits of `shape_of`'s shape.
        kernels: w, or dy for a weight gradient.
        first: Running number of the first frame.

    Raises:
        DlcError: "bad-operand": another number of elements; "bad-frame": larger than frames can be.
    """
    linear = con.opcode is Opcode.LINEAR
    arranged = {
        memory: arrange(con.view(memory), memory, tensor, con.geometry, linear)
        for memory, tensor in ((Memory.FM, features), (Memory.WM, kernels))
    }
    for number, piece in enumerate(pieces(con.layout), first):
        yield encode_piece(con, piece, arranged[piece.memory], number)


def encode_piece(con: Conversion, piece: Piece, arranged: Bits, number: int) -> bytes:
    """The frame of a piece of an operand that `arrange` gave."""
    lay = con.layout
    (low, high), (begin, end) = piece.channels, piece.units
    part = arranged[piece.group, begin:end, low:high]
    if piece.memory is Memory.FM:
        bulk = plane_bulk(lay, piece.row.plane.count, piece.column.plane.count, high - low)
        check_size(bulk.rows, bulk.body)
        body = encode_plane(gather(part[0], piece.row.plane, piece.column.plane), lay)
    else:
        bulk = kernel_bulk(end - begin, piece.row.kernel.count, piece.column.kernel.count, high - low)
        check_size(bulk.rows, bulk.body)
        body = encode_kernels(gather(part, piece.row.kernel, piece.column.kernel), lay, con.addresses)
    return encode_frame(_head(con, piece, number), bulk.rows, body)


def _head(con: Conversion, piece: Piece, number: int) -> Head:
    lay = con.layout
    flags = FrameFlag.PAIRED if lay.paired else FrameFlag(0)
    flags |= FrameFlag.LAST if piece.last else FrameFlag(0)
    if piece.memory is Memory.WM:
        return Head(number & 0xFFFFFFFF, con.stage, piece.memory, 0, flags)
    flags |= FrameFlag.MERGED if lay.merged else FrameFlag(0)
    return Head(number & 0xFFFFFFFF, con.stage, piece.memory, lay.tile, flags)


def receive(con: Conversion, frames: Iterable[Frame]) -> Mapping[Memory, Bits]:
    """The operands whose frames are given, which must be all of an instruction's, in order: the inverse of `send`.

    Elements that no frame holds, as no result needs them, are zeros.

    Raises:
        DlcError: "bad-frame": other frames, or zeros of the layout that are not zeros.
    """
    lay, linear = con.layout, con.opcode is Opcode.LINEAR
    frames = list(frames)
    size, want = sum(frame.size for frame in frames), sizes_of(lay).total.bytes
    if size != want:
        raise refusal(f"frames of {size} bytes for an instruction that sends {want}")
    found = {memory: np.zeros_like(_arranged(con, memory)) for memory in Memory}
    left = iter(frames)
    for piece in pieces(lay):
        frame = next(left, None)
        if frame is None:
            raise refusal(f"{piece.memory.name} frames of {con.stage.name.lower()} are missing")
        if frame.head != _head(con, piece, frame.head.number):
            raise refusal(f"frame {frame.head.number} is {frame.head}, expected {_head(con, piece, frame.head.number)}")
        (low, high), (begin, end) = piece.channels, piece.units
        place = found[piece.memory][piece.group, begin:end, low:high]
        if piece.memory is Memory.FM:
            shape = high - low, piece.row.plane.count, piece.column.plane.count
            values = decode_plane(frame.rows, lay, shape)
            fits = scatter(place[0], values, piece.row.plane, piece.column.plane)
        else:
            taps = piece.row.kernel.count, piece.column.kernel.count
            values = decode_kernels(frame.rows, lay, (end - begin, high - low, *taps), con.addresses)
            fits = scatter(place, values, piece.row.kernel, piece.column.kernel)
        if not fits:
            raise refusal(f"frame {frame.head.number} holds elements where its layout has zeros")
    if (frame := next(left, None)) is not None:
        raise refusal(f"frame {frame.head.number} is one too many")
    return {memory: restore(con.view(memory), memory, found[memory], con.geometry, linear) for memory in Memory}


def _arranged(con: Conversion, memory: Memory) -> Bits:
    """An array of the arranged shape, without memory of its own elements' size."""
    view = con.view(memory)
    if (count := math.prod(shape_of(view.what, con.geometry))) > _ELEMENTS_LIMIT:
        raise refusal(f"an operand of {count} elements; the limit is {_ELEMENTS_LIMIT}")
    blank = np.zeros(shape_of(view.what, con.geometry), np.uint16)
    return arrange(view, memory, blank, con.geometry, con.opcode is Opcode.LINEAR)
