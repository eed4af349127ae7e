"""Values of open dimensions at their largest sizes, as loops of run time need them.

x: f32[batch,4]   →   whole(x): f32[8,4], rows from `batch` on filled   →   opened(…, (batch, 4)): f32[batch,4]
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.extents import capacity
from dlc.graph import Op, Splat
from dlc.ops.elementwise import Equal, Where
from dlc.ops.shape import Pad, Slice
from dlc.ops.sizes import Count
from dlc_frontend_onnx.ops.shape import reshaped


def whole(x: Op, value: float = 0, room: Sequence[int] | None = None) -> Op:
    """x filled up with a value to its largest size in every dimension, or to `room`."""
    room = tuple(map(capacity, x.shape)) if room is None else tuple(room)
    if room == x.shape:
        return x
    if isinstance(x, Splat) and x.value == value:
        return Splat(x.value, x.type.with_shape(room))
    missing = tuple(n - d for n, d in zip(room, x.shape, strict=True))
    filling = bool(value) if x.dtype.kind == "bool" else value
    return Pad(x, pads=(*(0 for _ in room), *missing), value=filling)


def with_row(table: Op, number: Op, row: Op) -> Op:
    """A table with a row in the place of the one of this number, an i64[]: what loops fill it with."""
    places = reshaped(Count(table.shape[0]), (table.shape[0], *(1 for _ in table.shape[1:])))
    return Where(Equal(places, number), reshaped(row, (1, *table.shape[1:])), table)


def opened(x: Op, shape: Sequence[int]) -> Op:
    """The first elements of x in every dimension."""
    shape = tuple(shape)
    return x if shape == x.shape else Slice(x, starts=(0,) * len(shape), sizes=shape)
