"""Operators that select elements by data, and resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import index as ix
from dlc.ops.linear import Einsum
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Transpose
from dlc.types import i64
from dlc_frontend_onnx.node import Array, Node, cast, constant
from dlc_frontend_onnx.rules import Unsupported, onnx
from dlc_frontend_onnx.tensors import check_count


@onnx("Gather")
def gather(node: Node) -> Op:
    """Slices of x along an axis."""
    return ix.Gather(node.x(0), node.x(1), axis=node.axis())


@onnx("GatherElements")
def gather_elements(node: Node) -> Op:
    """One element of x along an axis for each index."""
    return ix.GatherElements(node.x(0), node.x(1), axis=node.axis())


@onnx("GatherND")
def gather_nd(node: Node) -> Op:
    """Elements of x by tuples of subscripts."""
    return ix.GatherNd(node.x(0), node.x(1), batch=node.int("batch_dims"))


@onnx("ScatterND")
def scatter_nd(node: Node) -> Op:
    """x with slices replaced."""
    return ix.ScatterNd(node.x(0), node.x(1), node.x(2), reduce=_reduction(node))


@onnx("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Op:
    """x with elements replaced."""
    return ix.ScatterElements(node.x(0), node.x(1), node.x(2), axis=node.axis(), reduce=_reduction(node))


def _reduction(node: Node) -> str:
    found = node.text("reduction", "none")
    return "" if found == "none" else found


@onnx("OneHot")
def one_hot(node: Node) -> Op:
    """A 1 at each index."""
    depth = int(node.constant(1, "the depth").reshape(-1)[0])
    indices = cast(node.x(0), i64)
    axis = normalized(node.int("axis", -1), len(indices.shape) + 1)
    return ix.OneHot(indices, node.x(2), depth=depth, axis=axis)


@onnx("Trilu")
def trilu(node: Node) -> Op:
    """A triangle of a matrix."""
    k = int(node.constant(1, "the diagonal").reshape(-1)[0]) if node.optional(1) is not None else 0
    return ix.Trilu(node.x(), upper=node.flag("upper", True), k=k)


@onnx("NonZero")
def non_zero(node: Node) -> Op:
    """Subscripts of what is not zero, of a constant."""
    return constant(np.array(np.nonzero(node.constant(0, "the operand"))), i64)


@onnx("Compress")
def compress(node: Node) -> Op:
    """Slices where a constant condition holds."""
    from dlc_frontend_onnx.ops.shape import reshaped

    chosen = np.nonzero(node.constant(1, "the condition").reshape(-1))[0]
    x = node.x()
    if not node.has("axis"):
        return ix.Gather(reshaped(x, (x.type.size,)), constant(chosen, i64), axis=0)
    return ix.Gather(x, constant(chosen, i64), axis=node.axis())


@onnx("Einsum")
def einsum(node: Node) -> Op:
    """A sum of products, written with subscripts."""
    return Einsum(node.all(), equation=node.text("equation").replace(" ", ""))


@onnx("Upsample")
def upsample(node: Node) -> Op:
    """Resize before it had a name of its own: scales as an attribute, later as an operand."""
    given = node.floats("scales")
    scales = given or tuple(float(v) for v in node.constant(1, "the scales").reshape(-1))
    return _resized(node, node.text("mode", "nearest"), scales, None, "asymmetric", "floor")


@onnx("Resize", since=10)
def resize_by_scales(node: Node) -> Op:
    """Resize of version 10."""
    scales = tuple(float(v) for v in node.constant(1, "the scales").reshape(-1))
    return _resized(node, node.text("mode", "nearest"), scales, None, "asymmetric", "floor")


@onnx("Resize", since=11)
def resize(node: Node) -> Op:
    """Resize by scales or to sizes, separably along each dimension."""
    node.ignore("extrapolation_value", "cubic_coeff_a", "exclude_outside")
    if node.flag("antialias") or node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported("resizing with antialias or a kept aspect ratio")
    transform = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    scales = node.constant(2, "the scales") if node.optional(2) is not None else None
    sizes = node.numbers_or_none(3, "the sizes")
    given = tuple(float(v) for v in scales.reshape(-1)) if scales is not None and scales.size else None
    return _resized(node, node.text("mode", "nearest"), given, sizes, transform, rounding)


_ROUNDINGS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    "round_prefer_ceil": lambda v: np.floor(v + 0.5),
}


def _resized(
    node: Node,
    mode: str,
    scales: tuple[float, ...] | None,
    sizes: tuple[int, ...] | None,
    transform: str,
    rounding: str,
) -> Op:
    """Each resized dimension is a gather (nearest) or a product with a constant matrix (linear)."""
    y = node.x()
    given = node.ints("axes")
    axes = tuple(normalized(a, len(y.shape)) for a in (given or range(len(y.shape))))
    if mode not in ("nearest", "linear", "bilinear") or rounding not in _ROUNDINGS:
        raise Unsupported(f"resizing mode {mode}", "supported: nearest and linear")
    if len(sizes or scales or ()) != len(axes):
        raise ShapeError(f"{len(sizes or scales or ())} sizes or scales for {len(axes)} dimensions")
    for k, axis in enumerate(axes):
        extent = y.shape[axis]
        scale = sizes[k] / extent if sizes else (scales or ())[k]
        size = sizes[k] if sizes else int(np.floor(extent * scale))
        if size == extent and scale == 1:
            continue
        check_count(size * (1 if mode == "nearest" else extent), f"the table to resize dimension {axis}")
        at = _coordinates(transform, size, extent, scale)
        if mode == "nearest":
            near = np.clip(_ROUNDINGS[rounding](at), 0, extent - 1)
            y = ix.Gather(y, constant(near.astype(np.int64), i64), axis=axis)
        else:
            y = _along(y, axis, _weights(at, extent))
    return y


def _coordinates(transform: str, size: int, extent: int, scale: float) -> Array:
    """The place in the data of each result element (ONNX Resize 19)."""
    out = np.arange(size, dtype=np.float64)
    match transform:
        case "asymmetric":
            return out / scale
        case "half_pixel":
            return (out + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (out + 0.5) / scale - 0.5 if size > 1 else np.zeros(size)
        case "align_corners":
            return out * (extent - 1) / (size - 1) if size > 1 else np.zeros(size)
        case "half_pixel_symmetric":
            adjustment = size / (scale * extent)
            return extent / 2 * (1 - adjustment) + (out + 0.5) / scale - 0.5
        case _:
            raise Unsupported(f"resizing with coordinates {transform}")


def _weights(at: Array, extent: int) -> Array:
    """Matrix [result, data] of linear interpolation, clamped at the edges."""
    inner = np.clip(at, 0, extent - 1)
    low = np.floor(inner).astype(np.int64)
    high = np.minimum(low + 1, extent - 1)
    rows = np.arange(len(at))
    weights: Any = np.zeros((len(at), extent))
    np.add.at(weights, (rows, low), 1 - (inner - low))
    np.add.at(weights, (rows, high), inner - low)
    return weights


def _along(x: Op, axis: int, weights: Array) -> Op:
    """The product of a matrix with x along one dimension."""
    from dlc.ops.linear import MatMul

    last = len(x.shape) - 1
    perm = list(range(len(x.shape)))
    perm[axis], perm[last] = last, axis
    turned = x if axis == last else Transpose(x, perm=tuple(perm))
    y = MatMul(turned, constant(weights.T, x.dtype))
    return y if axis == last else Transpose(y, perm=tuple(perm))
