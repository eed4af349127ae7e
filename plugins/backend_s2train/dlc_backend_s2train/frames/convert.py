"""`send` and `receive`: both operands of an instruction as frames in the order of the link, and back.

    weight-stationary:  for each group, split, pass: a frame of weights, then the frames of all units
    feature-stationary: for each group, split, unit: a frame of features, then the frames of all passes

A split is a part of the kernel (row, then column) and a run of channels. The policy is that of `sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np

from dlc.base.diagnostics import DlcError, Location
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.frame import Bits, Frame, FrameFlag, Head, Memory, check_size, encode_frame, refusal
from dlc_backend_s2train.frames.layout import Form, Layout, layout, parted
from dlc_backend_s2train.frames.parts import Part
from dlc_backend_s2train.frames.planes_and_kernels import (
    VIEWS,
    View,
    arrange,
    column_addresses,
    decode_kernels,
    decode_plane,
    encode_kernels,
    encode_plane,
    gather,
    restore,
    scatter,
    shape_of,
)
from dlc_backend_s2train.frames.sizes import kernel_bulk, plane_bulk, sizes_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Target

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
    return Conversion(opcode, stage, parted(geometry, stage), lay, column_addresses(taking, target.columns))


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


def send(con: Conversion, features: Bits | None, kernels: Bits | None, first: int = 0) -> Iterator[bytes]:
    """The frames of both operands.

    Args:
        con: How.
        features: x forward and for a weight gradient, dy backward; fp16 bits of `shape_of`'s shape. None: not known,
            its frames are open.
        kernels: w, or dy for a weight gradient; the same.
        first: Running number of the first frame.

    Raises:
        DlcError: "bad-operand": another number of elements; "bad-frame": larger than frames can be.
    """
    linear = con.opcode is Opcode.LINEAR
    arranged = {
        memory: None if tensor is None else arrange(con.view(memory), memory, tensor, con.geometry, linear)
        for memory, tensor in ((Memory.FM, features), (Memory.WM, kernels))
    }
    for number, piece in enumerate(pieces(con.layout), first):
        yield encode_piece(con, piece, arranged[piece.memory], number)


def encode_piece(con: Conversion, piece: Piece, arranged: Bits | None, number: int) -> bytes:
    """The frame of a piece of an operand that `arrange` gave; None: an open one."""
    lay, bare = con.layout, arranged is None
    (low, high), (begin, end) = piece.channels, piece.units
    features = piece.memory is Memory.FM
    rows, columns = (part.plane if features else part.kernel for part in (piece.row, piece.column))
    shape = rows.count, columns.count
    bulk = plane_bulk(lay, *shape, high - low) if features else kernel_bulk(end - begin, *shape, high - low)
    check_size(bulk.rows, bulk.body)
    if arranged is None:
        part = np.broadcast_to(np.uint16(0), (end - begin, high - low, *shape))
    else:
        part = gather(arranged[piece.group, begin:end, low:high], rows, columns)
    body = encode_plane(part[0], lay, bare) if features else encode_kernels(part, lay, con.addresses, bare)
    return encode_frame(_head(con, piece, number, bare), bulk.rows, body)


def _head(con: Conversion, piece: Piece, number: int, bare: bool) -> Head:
    lay = con.layout
    flags = FrameFlag.PAIRED if lay.paired else FrameFlag(0)
    flags |= FrameFlag.OPEN if bare else FrameFlag(0)
    flags |= FrameFlag.LAST if piece.last else FrameFlag(0)
    if piece.memory is Memory.WM:
        return Head(number & 0xFFFFFFFF, con.stage, piece.memory, 0, flags)
    flags |= FrameFlag.MERGED if lay.merged else FrameFlag(0)
    return Head(number & 0xFFFFFFFF, con.stage, piece.memory, lay.tile, flags)


def receive(con: Conversion, frames: Iterable[Frame], bare: Collection[Memory] = ()) -> Mapping[Memory, Bits]:
    """The operands whose frames are given, which must be all of an instruction's, in order: the inverse of `send`.

    Elements that no frame holds, as no result needs them, are zeros; so are all of the memories `bare`, whose frames
    are open.

    Raises:
        DlcError: "bad-frame": other frames, or zeros of the layout that are not zeros.
    """
    lay, linear = con.layout, con.opcode is Opcode.LINEAR
    frames = list(frames)
    bulks = zip(Memory, sizes_of(lay).sent, strict=True)
    size, want = sum(f.size for f in frames), sum(b.bare if memory in bare else b.bytes for memory, b in bulks)
    if size != want:
        raise refusal(f"frames of {size} bytes for an instruction that sends {want}")
    found = {memory: np.zeros_like(_arranged(con, memory)) for memory in Memory}
    left, seen = iter(frames), set[Piece]()
    for piece in pieces(lay):
        frame = next(left, None)
        if frame is None:
            raise refusal(f"{piece.memory.name} frames of {con.stage.name.lower()} are missing")
        place = Location(byte=frame.offset)
        if frame.head != (head := _head(con, piece, frame.head.number, piece.memory in bare)):
            raise refusal(f"frame {frame.head.number} is {frame.head}, expected {head}", place)
        try:
            _put(con, piece, frame, found[piece.memory], piece in seen)
        except DlcError as problem:
            raise DlcError(*(replace(each, location=place) for each in problem.diagnostics)) from None
        seen.add(piece)
    if (frame := next(left, None)) is not None:
        raise refusal(f"frame {frame.head.number} is one too many", Location(byte=frame.offset))
    return {memory: restore(con.view(memory), memory, found[memory], con.geometry, linear) for memory in Memory}


def _put(con: Conversion, piece: Piece, frame: Frame, found: Bits, again: bool) -> None:
    """What a frame holds, into the arranged operand; `again`: it is there, and has to be the same."""
    (low, high), (begin, end) = piece.channels, piece.units
    place = found[piece.group, begin:end, low:high]
    if piece.memory is Memory.FM:
        rows, columns = piece.row.plane, piece.column.plane
        values = decode_plane(frame.rows, con.layout, (high - low, rows.count, columns.count))[None]
    else:
        rows, columns = piece.row.kernel, piece.column.kernel
        shape = end - begin, high - low, rows.count, columns.count
        values = decode_kernels(frame.rows, con.layout, shape, con.addresses)
    if again and not np.array_equal(gather(place, rows, columns), values):
        raise refusal(f"frame {frame.head.number} holds other elements than when it was sent before")
    if not scatter(place, values, rows, columns):
        raise refusal(f"frame {frame.head.number} holds elements where its layout has zeros")


def _arranged(con: Conversion, memory: Memory) -> Bits:
    """An array of the arranged shape, without memory of its own elements' size."""
    view = con.view(memory)
    if (count := math.prod(shape_of(view.what, con.geometry))) > _ELEMENTS_LIMIT:
        raise refusal(f"an operand of {count} elements; the limit is {_ELEMENTS_LIMIT}")
    blank = np.zeros(shape_of(view.what, con.geometry), np.uint16)
    return arrange(view, memory, blank, con.geometry, con.opcode is Opcode.LINEAR)
