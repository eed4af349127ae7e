"""Resizing: along each dimension a gather (nearest), a product with a matrix, or a sum of neighbours (linear, cubic).

Subscripts and matrices are constants, or computed by the same formulas when the program runs: where scales, sizes or
the region of interest are inputs, and the model declares the shape of the result. Of a dimension that is open a few
weighted neighbours are added, for which there is no matrix of the largest sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from dlc.base.extents import Dim, capacity, divided, is_open, shown
from dlc.base.polynomials import LONGEST
from dlc.base.types import bool_, f64, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Where
from dlc.ops.index import Pick
from dlc.ops.pointwise import normalized
from dlc_frontend_onnx.implied import exactly, whole_scales
from dlc_frontend_onnx.interpolation import ROUNDINGS, Along, Manner, interpolated, places, real
from dlc_frontend_onnx.node import FIXED, Node, number
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sized import elements, sized
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.terms import Number, Term, as_op, clip, either, floor, largest, lying, smallest, where
from dlc_frontend_onnx.unsupported import Unsupported


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
        _dimension(node, a, _scaled(shape[a], s), s, roi)
        for a, s, roi in zip(axes, scales, _rois(node, len(axes)), strict=True)
    ]


def _scaled(extent: int, scale: Number) -> Number:
    """How many elements a dimension has at a scale."""
    if not isinstance(extent, Dim) or isinstance(scale, Term):
        return floor(scale * extent)
    times, parts = float(scale).as_integer_ratio()
    if parts > _MOST_PARTS:
        reason = f"a symbolic dimension, {shown(extent)}, resized by {scale:g}, which is no multiple of 1/{_MOST_PARTS}"
        raise Unsupported(reason, FIXED)
    return extent * times // parts


_MOST_PARTS: Final = 1024
"""Denominator of a scale of an open dimension: of others, whether a size is rounded up depends on the last bit."""


def _to_sizes(node: Node, sizes: Sequence[Number], policy: str) -> list[Along]:
    axes, shape = _axes(node, len(sizes)), node.x().shape
    if any(not isinstance(s, Term) and s < 0 for s in sizes) or any(shape[a] == 0 for a in axes):
        raise ShapeError(f"from {node.x().type} to sizes {list(sizes)}")
    sizes = [Term(as_op(s, f64)) if isinstance(s, Term) else s for s in sizes]
    scales = [_scale(s, shape[a]) for a, s in zip(axes, sizes, strict=True)]
    if policy in ("not_larger", "not_smaller"):
        scale = reduce(smallest if policy == "not_larger" else largest, scales)
        sizes, scales = [floor(scale * shape[a] + 0.5) for a in axes], [scale] * len(axes)
        if any(isinstance(s, Term) for s in sizes) and is_open(shape):
            raise Unsupported(f"symbolic dimensions of {node.x().type.text}, resized with policy {policy}", FIXED)
    elif policy != "stretch":
        raise Unsupported(f"resizing with policy {policy}")
    rois = _rois(node, len(axes))
    return [_dimension(node, a, s, f, roi) for a, s, f, roi in zip(axes, sizes, scales, rois, strict=True)]


def _scale(size: Number, extent: int) -> Number:
    """The scale that gives a size."""
    if isinstance(size, Term) or not is_open((size, extent)):
        return size / real(extent)
    whole = divided(size, extent)
    return float(whole) if whole is not None and not is_open((whole,)) else Term(as_op(size, f64)) / real(extent)


def _dimension(node: Node, axis: int, size: Number, scale: Number, roi: tuple[Number, Number]) -> Along:
    """A dimension of a size that is known, or that the model declares and a call checks."""
    extent = node.x().shape[axis]
    if not isinstance(size, Term):
        return Along(axis, extent, size if isinstance(size, Dim) else int(size), scale, roi)
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
    if manner.rounding not in ROUNDINGS:
        raise Unsupported(f"rounding {manner.rounding}", f"supported: {', '.join(ROUNDINGS)}")
    if manner.mode != "nearest" and not x.dtype.is_float:
        raise Unsupported(f"{manner.mode} resizing of {x.dtype}", "cast to floating point before it")
    y, outside = x, list[Number]()
    for part in parts:
        if part.is_whole:
            continue
        is_table = manner.mode != "nearest" and not part.is_open
        rows = capacity(part.size) * (capacity(part.extent) if is_table else 1)
        check_count(rows, f"the table to resize dimension {part.axis}")
        if not part.is_open and part.size and not part.extent:
            raise ShapeError(f"{x.type} has no elements along dimension {part.axis}")
        at = places(manner.transform, part)
        if manner.mode == "nearest":
            near = clip(ROUNDINGS[manner.rounding](at), 0, real(part.extent - 1))
            y = Pick(y, as_op(near, i64), axis=part.axis)
        else:
            y = interpolated(y, manner, at, part)
        if manner.transform == "tf_crop_and_resize":
            outside.append(lying(either(at < 0, at > real(part.extent - 1)), part.axis, len(x.shape)))
    away = reduce(either, outside, np.zeros((), np.bool_))
    if isinstance(away, Term) or away.any():
        y = Where(as_op(away, bool_), number(manner.outside, y), y)
    for part in parts:
        y = y if part.found is None else part.found.checked(y)
    return y
