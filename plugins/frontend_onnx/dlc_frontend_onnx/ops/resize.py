"""Resizing: along each dimension a gather (nearest) or a product with a constant matrix (linear, cubic)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Where
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Transpose
from dlc_frontend_onnx.implied import exactly, whole_scales
from dlc_frontend_onnx.node import Array, Node, constant, number
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import Unsupported

_ROUNDINGS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: np.floor(v + 0.5),
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
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)
    """Part of the data that the result shows, with tf_crop_and_resize."""


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
    stretched = policy == "stretch"
    sizes = node.numbers_or_none(
        3, "the sizes", lambda outs: exactly(*(outs[0][a] for a in axes)) if stretched else None
    )
    if sizes:
        return _resized(node.x(), manner, _to_sizes(node, sizes, policy))
    return _resized(node.x(), manner, _by_scales(node, _scales(node, 2)))


def _scales(node: Node, k: int) -> tuple[float, ...]:
    if node.maybe_constant(k) is None:
        x = node.x().shape
        axes = _axes(node, node.x(k).type.size)
        return tuple(map(float, node.numbers(k, "the scales", lambda outs: whole_scales(x, outs[0], axes))))
    return tuple(float(v) for v in node.constant(k, "the scales").reshape(-1))


def _axes(node: Node, count: int) -> tuple[int, ...]:
    rank = len(node.x().shape)
    given = node.ints("axes")
    axes = tuple(range(rank)) if given is None else tuple(normalized(a, rank) for a in given)
    if count != len(axes):
        raise ShapeError(f"{count} sizes or scales for {len(axes)} dimensions")
    return axes


def _by_scales(node: Node, scales: Sequence[float]) -> list[Along]:
    if not all(0 < s < 1 << 31 for s in scales):
        raise ShapeError(f"scales {list(scales)}")
    axes, shape = _axes(node, len(scales)), node.x().shape
    rois = _rois(node, len(axes))
    return [Along(a, shape[a], math.floor(shape[a] * s), s, roi) for a, s, roi in zip(axes, scales, rois, strict=True)]


def _to_sizes(node: Node, sizes: Sequence[int], policy: str) -> list[Along]:
    axes, shape = _axes(node, len(sizes)), node.x().shape
    if any(s < 0 for s in sizes) or any(shape[a] == 0 for a in axes):
        raise ShapeError(f"from {node.x().type} to sizes {list(sizes)}")
    scales = [s / shape[a] for a, s in zip(axes, sizes, strict=True)]
    if policy in ("not_larger", "not_smaller"):
        scale = min(scales) if policy == "not_larger" else max(scales)
        sizes, scales = [math.floor(scale * shape[a] + 0.5) for a in axes], [scale] * len(axes)
    elif policy != "stretch":
        raise Unsupported(f"resizing with policy {policy}")
    rois = _rois(node, len(axes))
    return [Along(a, shape[a], s, f, roi) for a, s, f, roi in zip(axes, sizes, scales, rois, strict=True)]


def _rois(node: Node, count: int) -> list[tuple[float, float]]:
    whole = [(0.0, 1.0)] * count
    if node.text("coordinate_transformation_mode") != "tf_crop_and_resize":
        return whole
    found = [float(v) for v in node.constant(1, "the region of interest").reshape(-1)]
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
    y = x
    outside: Array = np.zeros((1,) * len(x.shape), np.bool_)
    for part in parts:
        if part.size == part.extent and part.scale == 1 and part.roi == (0, 1):
            continue
        check_count(
            part.size * (1 if manner.mode == "nearest" else part.extent), f"the table to resize dimension {part.axis}"
        )
        if part.size and not part.extent:
            raise ShapeError(f"{x.type} has no elements along dimension {part.axis}")
        at = _places(manner.transform, part)
        if manner.mode == "nearest":
            near = np.clip(_ROUNDINGS[manner.rounding](at), 0, part.extent - 1)
            y = Gather(y, constant(near.astype(np.int64), i64), axis=part.axis)
        else:
            y = _along(y, part.axis, _weights(manner, at, part))
        if manner.transform == "tf_crop_and_resize":
            line = (at < 0) | (at > part.extent - 1)
            outside = outside | line.reshape([-1 if d == part.axis else 1 for d in range(len(x.shape))])
    return Where(constant(outside, bool_), number(manner.outside, y), y) if outside.any() else y


def _places(transform: str, part: Along) -> Array:
    """The place in the data of each result element."""
    out: Array = np.arange(part.size, dtype=np.float64)
    extent, length = part.extent, part.scale * part.extent
    match transform:
        case "asymmetric":
            return out / part.scale
        case "half_pixel":
            return (out + 0.5) / part.scale - 0.5
        case "pytorch_half_pixel":
            return (out + 0.5) / part.scale - 0.5 if length != 1 else np.full(part.size, -0.5)
        case "align_corners":
            return out * (extent - 1) / (length - 1) if length != 1 else np.zeros(part.size)
        case "half_pixel_symmetric":
            return extent / 2 * (1 - part.size / length) + (out + 0.5) / part.scale - 0.5
        case "tf_crop_and_resize":
            begin, end = part.roi
            span = (end - begin) * (extent - 1)
            offsets = out * span / (length - 1) if length != 1 else np.full(part.size, span / 2)
            return begin * (extent - 1) + offsets
        case _:
            raise Unsupported(f"resizing with coordinates {transform}")


def _weights(manner: Manner, at: Array, part: Along) -> Array:
    """Matrix [result, data]: the interpolation kernel at each element's distance, stretched where it antialiases."""
    stretch = min(part.scale, 1.0) if manner.antialias else 1.0
    reach = 2 if manner.mode == "cubic" else 1
    span = math.ceil(reach / stretch)
    check_count(part.size * 2 * span, f"the table to resize dimension {part.axis}")
    neighbours = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - span, span + 1)
    distance: Array = np.abs(neighbours - at[:, None]) * stretch
    values = _keys(distance, manner.cubic) if manner.mode == "cubic" else np.clip(1 - distance, 0, None)
    if manner.exclude:
        values = np.where((neighbours < 0) | (neighbours >= part.extent), 0, values)
    if manner.exclude or manner.antialias:
        total = values.sum(axis=1, keepdims=True)
        values = values / np.where(total == 0, 1, total)
    weights: Array = np.zeros((part.size, part.extent))
    np.add.at(weights, (np.arange(part.size)[:, None], np.clip(neighbours, 0, part.extent - 1)), values)
    return weights


def _keys(d: Array, a: float) -> Array:
    """Cubic convolution. Keys 1981, "Cubic convolution interpolation for digital image processing"."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _along(x: Op, axis: int, weights: Array) -> Op:
    """The product of a matrix with x along one dimension."""
    last = len(x.shape) - 1
    perm = list(range(len(x.shape)))
    perm[axis], perm[last] = last, axis
    turned = x if axis == last else Transpose(x, perm=tuple(perm))
    y = MatMul(turned, constant(weights.T, x.dtype))
    return y if axis == last else Transpose(y, perm=tuple(perm))
