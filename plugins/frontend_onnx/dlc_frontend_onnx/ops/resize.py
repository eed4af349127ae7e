"""Resizing: along each dimension a gather (nearest) or a product with a matrix (linear, cubic).

Subscripts and matrices are constants, or computed by the same formulas when the program runs: where scales, sizes or
the region of interest are inputs, and the model declares the shape of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from dlc.base.polynomials import LONGEST
from dlc.base.types import Array, bool_, f64, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Where
from dlc.ops.index import Pick
from dlc.ops.linear import MatMul
from dlc.ops.pointwise import normalized
from dlc.ops.reduce import ReduceSum
from dlc.ops.shape import Reshape, Transpose
from dlc_frontend_onnx.implied import exactly, whole_scales
from dlc_frontend_onnx.node import Node, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sized import Sized, elements, sized
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

_ROUNDINGS: Final[Mapping[str, Callable[[Number], Number]]] = {
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
    def is_whole(self) -> bool:
        """Whether the dimension stays as it is."""
        numbers = not any(isinstance(v, Term) for v in (self.scale, *self.roi))
        return numbers and self.size == self.extent and self.scale == 1 and self.roi == (0, 1)


@onnx("Upsample")
def upsample(node: Node) -> Op:
    """Resize before it had a name of its own: scales as an attribute, later as an operand."""
    return _resized(
        node.x(), Manner(node.text("mode", "nearest")), _by_scales(node, node.floats("scales") or _scales(node, 1))
    )


@onnx("Resize", since=10)
def resize_by_scales(node: Node) -> Op:
    """Resize of version 10."""
    return _resized(node.x(), Manner(node.text("mode", "nearest")), _by_scales(node, _scales(node, 1)))


@onnx("Resize", since=11)
def resize(node: Node) -> Op:
    """Resize by scales or to sizes, separably along each dimension."""
    manner = Manner(
        node.text("mode", "nearest"),
        node.text("coordinate_transformation_mode", "half_pixel"),
        node.text("nearest_mode", "round_prefer_floor"),
        node.float("cubic_coeff_a", -0.75),
        node.flag("exclude_outside"),
        node.flag("antialias"),
        node.float("extrapolation_value", 0.0),
    )
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    axes = node.ints("axes") or tuple(range(len(node.x().shape)))
    if node.optional(3) is not None and node.x(3).type.size:
        if policy == "stretch":
            sizes = node.numbers(3, "the sizes", lambda outs: exactly(*(outs[0][a] for a in axes)))
        else:
            sizes = elements(node, 3)
        return _resized(node.x(), manner, _to_sizes(node, sizes, policy))
    return _resized(node.x(), manner, _by_scales(node, _scales(node, 2)))


def _scales(node: Node, k: int) -> tuple[Number, ...]:
    """Scales: constant, whole numbers that follow from the declared shape, or known when the program runs."""
    if node.maybe_constant(k) is None and node.declared and (out := node.declared[0]) is not None:
        x = node.x().shape
        if whole_scales(x, out, axes := _axes(node, node.x(k).type.size)) is None:
            return elements(node, k)
        return tuple(map(float, node.numbers(k, "the scales", lambda outs: whole_scales(x, outs[0], axes))))
    return tuple(float(v) for v in node.constant(k, "the scales").reshape(-1))


def _axes(node: Node, count: int) -> tuple[int, ...]:
    rank = len(node.x().shape)
    given = node.ints("axes")
    axes = tuple(range(rank)) if given is None else tuple(normalized(a, rank) for a in given)
    if count != len(axes):
        raise ShapeError(f"{count} sizes or scales for {len(axes)} dimensions")
    return axes


def _by_scales(node: Node, scales: Sequence[Number]) -> list[Along]:
    if not all(isinstance(s, Term) or 0 < s < 1 << 31 for s in scales):
        raise ShapeError(f"scales {list(scales)}")
    axes, shape = _axes(node, len(scales)), node.x().shape
    return [
        _dimension(node, a, floor(s * shape[a]), s, roi)
        for a, s, roi in zip(axes, scales, _rois(node, len(axes)), strict=True)
    ]


def _to_sizes(node: Node, sizes: Sequence[Number], policy: str) -> list[Along]:
    axes, shape = _axes(node, len(sizes)), node.x().shape
    if any(not isinstance(s, Term) and s < 0 for s in sizes) or any(shape[a] == 0 for a in axes):
        raise ShapeError(f"from {node.x().type} to sizes {list(sizes)}")
    sizes = [Term(as_op(s, f64)) if isinstance(s, Term) else s for s in sizes]
    scales = [s / shape[a] for a, s in zip(axes, sizes, strict=True)]
    if policy in ("not_larger", "not_smaller"):
        scale = reduce(smallest if policy == "not_larger" else largest, scales)
        sizes, scales = [floor(scale * shape[a] + 0.5) for a in axes], [scale] * len(axes)
    elif policy != "stretch":
        raise Unsupported(f"resizing with policy {policy}")
    rois = _rois(node, len(axes))
    return [_dimension(node, a, s, f, roi) for a, s, f, roi in zip(axes, sizes, scales, rois, strict=True)]


def _dimension(node: Node, axis: int, size: Number, scale: Number, roi: tuple[Number, Number]) -> Along:
    """A dimension of a size that is known, or that the model declares and a call checks."""
    extent = node.x().shape[axis]
    if not isinstance(size, Term):
        return Along(axis, extent, int(size), scale, roi)
    # A size that is no number is none that is declared either.
    whole = where(size >= 0, clip(size, 0, LONGEST), -1)
    found = sized(node, axis, len(node.x().shape), whole, None)
    return Along(axis, extent, found.size, scale, roi, found)


def _rois(node: Node, count: int) -> list[tuple[Number, Number]]:
    if node.text("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [(0.0, 1.0)] * count
    found = elements(node, 1)
    if len(found) != 2 * count:
        raise ShapeError(f"{len(found)} figures for the region of interest of {count} dimensions")
    return list(zip(found[:count], found[count:], strict=True))


def _resized(x: Op, manner: Manner, parts: Sequence[Along]) -> Op:
    if manner.mode not in ("nearest", "linear", "bilinear", "cubic"):
        raise Unsupported(f"resizing mode {manner.mode}", "supported: nearest, linear and cubic")
    if manner.rounding not in _ROUNDINGS:
        raise Unsupported(f"rounding {manner.rounding}", f"supported: {', '.join(_ROUNDINGS)}")
    if manner.mode != "nearest" and not x.dtype.is_float:
        raise Unsupported(f"{manner.mode} resizing of {x.dtype}", "cast to floating point before it")
    y, outside = x, list[Number]()
    for part in parts:
        if part.is_whole:
            continue
        check_count(
            part.size * (1 if manner.mode == "nearest" else part.extent), f"the table to resize dimension {part.axis}"
        )
        if part.size and not part.extent:
            raise ShapeError(f"{x.type} has no elements along dimension {part.axis}")
        at = _places(manner.transform, part)
        if manner.mode == "nearest":
            near = clip(_ROUNDINGS[manner.rounding](at), 0, part.extent - 1)
            y = Pick(y, as_op(near, i64), axis=part.axis)
        else:
            y = _along(y, part.axis, as_op(_weights(manner, at, part), x.dtype))
        if manner.transform == "tf_crop_and_resize":
            across = [-1 if d == part.axis else 1 for d in range(len(x.shape))]
            line = either(at < 0, at > part.extent - 1)
            outside.append(line.reshape(across) if isinstance(line, np.ndarray) else _lying(line, across))
    away = reduce(either, outside, np.zeros((), np.bool_))
    if isinstance(away, Term) or away.any():
        y = Where(as_op(away, bool_), number(manner.outside, y), y)
    for part in parts:
        y = y if part.found is None else part.found.checked(y)
    return y


def _lying(line: Term, across: Sequence[int]) -> Term:
    return Term(reshaped(line.op, [line.op.type.size if n < 0 else n for n in across]))


def _places(transform: str, part: Along) -> Number:
    """The place in the data of each result element."""
    out: Array = np.arange(part.size, dtype=np.float64)
    extent, length = part.extent, part.scale * part.extent
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
            return (out + 0.5) / part.scale - 0.5 + (1 - part.size / length) * (extent / 2)
        case "tf_crop_and_resize":
            begin, end = part.roi
            span = (end - begin) * (extent - 1)
            offsets = choose(same(length, 1), lambda: out * 0 + span / 2, lambda: out * span / (length - 1))
            return begin * (extent - 1) + offsets
        case _:
            raise Unsupported(f"resizing with coordinates {transform}")


def _weights(manner: Manner, at: Number, part: Along) -> Number:
    """Matrix [data, result]: the interpolation kernel at each element's distance, stretched where it antialiases."""
    stretch = smallest(part.scale, 1.0) if manner.antialias else 1.0
    reach = 2 if manner.mode == "cubic" else 1
    # A scale that a call gives leads to this size: it is not smaller than this.
    least = min((part.size - 0.5) / part.extent, 1.0) if isinstance(stretch, Term) else stretch
    span = math.ceil(reach / least) if least > 0 else 1
    check_count(part.size * 2 * span, f"the table to resize dimension {part.axis}")
    if isinstance(at, Term):
        # Farther outside than this all neighbours are outside, and a place is what an integer can hold.
        at = Term(Reshape(clip(at, -span - 1, part.extent + span).op, to=(part.size, 1)))
    else:
        at = at[:, None]
    neighbours = floor(at) + np.arange(1 - span, span + 1, dtype=np.float64)
    distance = absolute(neighbours - at) * stretch
    values = _keys(distance, manner.cubic) if manner.mode == "cubic" else largest(1 - distance, 0)
    if manner.exclude:
        values = where(either(neighbours < 0, neighbours >= part.extent), 0, values)
    if manner.exclude or manner.antialias:
        total = _summed(values)
        values = values / where(same(total, 0), 1, total)
    return _scattered(values, clip(neighbours, 0, part.extent - 1), part)


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


def _along(x: Op, axis: int, weights: Op) -> Op:
    """The product of x along one dimension with a matrix [data, result]."""
    last = len(x.shape) - 1
    perm = list(range(len(x.shape)))
    perm[axis], perm[last] = last, axis
    turned = x if axis == last else Transpose(x, perm=tuple(perm))
    y = MatMul(turned, weights)
    return y if axis == last else Transpose(y, perm=tuple(perm))
