"""Interpolation along a dimension: places of the result in the data, and weights of their neighbours.

Formulas are written once, for arrays of constants and for terms of the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from dlc.base.extents import Dim, capacity, is_open, shown
from dlc.base.types import Array, f64, i64
from dlc.graph import Op
from dlc.ops.elementwise import Add, Mul
from dlc.ops.index import Pick
from dlc.ops.linear import MatMul
from dlc.ops.reduce import ReduceSum
from dlc.ops.shape import Reshape, Slice, Transpose
from dlc.ops.sizes import Count
from dlc_frontend_onnx.node import FIXED, cast
from dlc_frontend_onnx.sized import Sized
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.terms import (
    Number,
    Term,
    absolute,
    as_op,
    ceil,
    choose,
    clip,
    either,
    floor,
    largest,
    same,
    smallest,
    where,
)
from dlc_frontend_onnx.unsupported import Unsupported

GATHERED: Final = 24
"""Elements of the last dimension for each neighbour, from which on neighbours are gathered in place of a product."""
ROWS: Final = 4
"""The same of any other dimension."""
ROUNDINGS: Final[Mapping[str, Callable[[Number], Number]]] = {
    "floor": floor,
    "ceil": ceil,
    "round_prefer_floor": lambda v: ceil(v - 0.5),
    "round_prefer_ceil": lambda v: floor(v + 0.5),
}


@dataclass(frozen=True)
class Manner:
    """How elements are found: the attributes of Resize 19."""

    mode: str
    transform: str = "asymmetric"
    """How a place in the result becomes a place in the data."""
    rounding: str = "floor"
    cubic: float = -0.75
    """The coefficient a of Keys' cubic kernel."""
    exclude: bool = False
    """Neighbours outside the data have no weight; else the nearest element stands for them."""
    antialias: bool = False
    outside: float = 0.0
    """What places outside the data give with tf_crop_and_resize."""


@dataclass(frozen=True)
class Along:
    """One dimension to resize."""

    axis: int
    extent: int
    size: int
    scale: Number
    roi: tuple[Number, Number] = (0.0, 1.0)
    """Part of the data that the result shows, with tf_crop_and_resize."""
    found: Sized | None = None
    """The size, where only a call tells whether it is this one."""

    @property
    def is_open(self) -> bool:
        """Whether a size is known only when the program runs."""
        return is_open((self.extent, self.size))

    @property
    def is_whole(self) -> bool:
        """Whether the dimension stays as it is."""
        numbers = not any(isinstance(v, Term) for v in (self.scale, *self.roi))
        return numbers and self.size == self.extent and self.scale == 1 and self.roi == (0, 1)


def real(n: Number) -> Number:
    """A size in a formula of floating point."""
    return Term(as_op(n, f64)) if isinstance(n, Dim) else n


def places(transform: str, part: Along) -> Number:
    """The place in the data of each result element."""
    number: Array = np.arange(part.size if not part.is_open else 0, dtype=np.float64)
    out: Number = Term(cast(Count(part.size), f64)) if part.is_open else number
    extent, size = real(part.extent), real(part.size)
    length = part.scale * extent
    match transform:
        case "asymmetric":
            return out / part.scale
        case "half_pixel":
            return (out + 0.5) / part.scale - 0.5
        case "pytorch_half_pixel":
            return choose(same(length, 1), lambda: out * 0 - 0.5, lambda: (out + 0.5) / part.scale - 0.5)
        case "align_corners":
            return choose(same(length, 1), lambda: out * 0, lambda: out * (extent - 1) / (length - 1))
        case "half_pixel_symmetric":
            return (out + 0.5) / part.scale - 0.5 + (1 - size / length) * (extent / 2)
        case "tf_crop_and_resize":
            begin, end = part.roi
            span = (end - begin) * (extent - 1)
            offsets = choose(same(length, 1), lambda: out * 0 + span / 2, lambda: out * span / (length - 1))
            return begin * (extent - 1) + offsets
        case _:
            raise Unsupported(f"resizing with coordinates {transform}")


def interpolated(x: Op, manner: Manner, at: Number, part: Along) -> Op:
    """x along one dimension at places between its elements."""
    values, near = _neighbours(manner, at, part)
    taps = (values.op if isinstance(values, Term) else values).shape[1]
    known = not isinstance(values, Term) and not isinstance(near, Term)
    # A product with a matrix of zeros for the most part takes vectors where neighbours are gathered one by one, and
    # neighbours are whole rows in all dimensions but the last.
    short = GATHERED * taps if part.axis == len(x.shape) - 1 else ROWS * taps
    if part.is_open or (known and part.extent >= short):
        return _summed_neighbours(x, values, near, part)
    return multiplied(x, part.axis, as_op(_scattered(values, near, part), x.dtype))


def _neighbours(manner: Manner, at: Number, part: Along) -> tuple[Number, Number]:
    """Weights and places of each element's neighbours, [result, neighbour]: the interpolation kernel at their distance,
    stretched where it antialiases."""
    stretch = smallest(part.scale, 1.0) if manner.antialias else 1.0
    reach = 2 if manner.mode == "cubic" else 1
    extent = real(part.extent)
    if isinstance(stretch, Term) and part.is_open:
        reason = f"a symbolic dimension, {shown(part.extent)}, resized to {shown(part.size)} with antialiasing"
        raise Unsupported(reason, FIXED)
    # A scale that a call gives leads to this size: it is not smaller than this.
    least = min((part.size - 0.5) / part.extent, 1.0) if isinstance(stretch, Term) else stretch
    span = math.ceil(reach / least) if least > 0 else 1
    check_count(capacity(part.size) * 2 * span, f"the table to resize dimension {part.axis}")
    if isinstance(at, Term):
        # Farther outside than this all neighbours are outside, and a place is what an integer can hold.
        at = Term(Reshape(clip(at, -span - 1, extent + span).op, to=(part.size, 1)))
    else:
        at = at[:, None]
    neighbours = floor(at) + np.arange(1 - span, span + 1, dtype=np.float64)
    distance = absolute(neighbours - at) * stretch
    values = _keys(distance, manner.cubic) if manner.mode == "cubic" else largest(1 - distance, 0)
    if manner.exclude:
        values = where(either(neighbours < 0, neighbours >= extent), 0, values)
    if manner.exclude or manner.antialias:
        total = _summed(values)
        values = values / where(same(total, 0), 1, total)
    return values, clip(neighbours, 0, extent - 1)


def _summed_neighbours(x: Op, values: Number, places: Number, part: Along) -> Op:
    """The sum of each element's neighbours along one dimension by their weights."""
    across = tuple(part.size if d == part.axis else 1 for d in range(len(x.shape)))
    every: list[Op] = []
    for weight, place in zip(_columns(values), _columns(places), strict=True):
        near = Pick(x, as_op(place, i64), axis=part.axis)
        every.append(Mul(near, Reshape(as_op(weight, x.dtype), to=across)))
    return reduce(Add, every)


def _columns(v: Number) -> list[Number]:
    """A matrix as its columns."""
    if not isinstance(v, Term):
        return [v[:, k] for k in range(v.shape[1])]
    rows, count = v.op.shape
    columns = (Slice(v.op, starts=(0, k), sizes=(rows, 1)) for k in range(count))
    return [Term(Reshape(c, to=(rows,))) for c in columns]


def _summed(values: Number) -> Number:
    """Sums of rows, as a column."""
    if isinstance(values, Term):
        return Term(ReduceSum(values.op, axes=(1,), keep=True))
    return values.sum(axis=1, keepdims=True)


def _scattered(values: Number, places: Number, part: Along) -> Number:
    """What of each result's values lies at each place of the data."""
    if not isinstance(values, Term):
        weights: Array = np.zeros((part.size, part.extent))
        np.add.at(weights, (np.arange(part.size)[:, None], places.astype(np.int64)), values)
        return weights.T
    rows, columns = values.op.shape
    each = Term(Reshape(places.op, to=(1, rows, columns))).same(np.arange(part.extent).reshape(-1, 1, 1))
    spread = where(each, Term(Reshape(values.op, to=(1, rows, columns))), 0.0)
    return Term(ReduceSum(spread.op, axes=(2,), keep=False))


def _keys(d: Number, a: float) -> Number:
    """Cubic convolution. Keys 1981, "Cubic convolution interpolation for digital image processing"."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return where(d <= 1, near, where(d < 2, far, 0))


def multiplied(x: Op, axis: int, weights: Op) -> Op:
    """The product of x along one dimension with a matrix [data, result]."""
    last = len(x.shape) - 1
    perm = list(range(len(x.shape)))
    perm[axis], perm[last] = last, axis
    turned = x if axis == last else Transpose(x, perm=tuple(perm))
    y = MatMul(turned, weights)
    return y if axis == last else Transpose(y, perm=tuple(perm))
