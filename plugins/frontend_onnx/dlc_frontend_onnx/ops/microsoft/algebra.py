"""Matrices and images: Inverse, CDist, CropAndResize, and small operators that the standard has under other names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import reduce
from dlc.ops.index import Gather, GatherElements
from dlc.ops.linear import MatMul
from dlc.ops.shape import Concat, Expand, Transpose
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.ops.make import range_
from dlc_frontend_onnx.ops.microsoft.heads import part
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import Unsupported

LARGEST = 32
"""Rows of a matrix that is inverted; each becomes ops of its own."""


@onnx("Inverse", domain=MICROSOFT)
def inverse(node: Node) -> Op:
    """The inverse of each matrix x[b…, n, n], by elimination with partial pivoting (Gauss and Jordan)."""
    x = node.x()
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2] or not x.dtype.is_float:
        raise ShapeError(f"{x.type} is not a square matrix of floating point")
    *batch, n, _ = x.shape
    if n > LARGEST:
        raise Unsupported(f"the inverse of {n} rows", f"at most {LARGEST} are supported")
    # [x | 1] is turned into [1 | inverse].
    unit = Expand(constant(np.eye(n), x.dtype), to=x.shape)
    both: Op = Concat((x, unit), axis=len(batch) + 1)
    row = constant(np.arange(n).reshape(n, 1), i64)
    for k in range(n):
        both = _eliminated(both, k, row)
    return part(both, -1, n, n)


def _eliminated(both: Op, k: int, row: Op) -> Op:
    """One step: the row with the largest element of column k is divided by it, takes the place of row k, and is
    subtracted from all others."""
    rank, n = len(both.shape) - 2, both.shape[-2]
    below = e.Abs(part(part(both, -2, k, n - k), -1, k, 1))
    largest = e.Add(reduce.ArgMax(below, axis=rank, keep=True), constant(k, i64))
    here = constant(k, i64)
    source = e.Where(e.Equal(row, here), largest, e.Where(e.Equal(row, largest), here, row))
    swapped = GatherElements(both, Expand(source, to=both.shape), axis=rank)
    top = part(swapped, -2, k, 1)
    top = e.Div(top, part(top, -1, k, 1))
    return e.Where(e.Equal(row, here), top, e.Sub(swapped, e.Mul(part(swapped, -1, k, 1), top)))


@onnx("CDist", domain=MICROSOFT)
def cdist(node: Node) -> Op:
    """y[i, j] = the distance between row i of a and row j of b."""
    a, b, metric = node.x(0), node.x(1), node.text("metric", "sqeuclidean")
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"rows of {a.type} and {b.type}")
    difference = e.Sub(reshaped(a, (a.shape[0], 1, a.shape[1])), reshaped(b, (1, *b.shape)))
    square = reduce.ReduceSum(e.Mul(difference, difference), axes=(2,))
    if metric not in ("euclidean", "sqeuclidean"):
        raise Unsupported(f"the distance {metric}", "euclidean and sqeuclidean are defined")
    return e.Sqrt(square) if metric == "euclidean" else square


@onnx("CropAndResize", domain=MICROSOFT)
def crop_and_resize(node: Node) -> Op:
    """y[r] = the region rois[r] of image batch_indices[r] in a common size, corners on corners.

    Along each dimension it is a product with the weights of the two nearest elements, or of the nearest one.
    """
    x, rois, which = node.x(0), node.x(1), node.x(2)
    sizes = node.numbers(3, "the size of the crops")
    mode, outside = node.text("mode", "bilinear"), node.float("extrapolation_value")
    if mode not in ("bilinear", "nearest"):
        raise Unsupported(f"mode {mode}", "bilinear and nearest are defined")
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or len(sizes) != 2 or min(sizes) < 1:
        raise ShapeError(f"regions {rois.type} of {x.type} in the size {sizes}")
    count = rois.shape[0]
    check_count(count * (sizes[0] * x.shape[2] + sizes[1] * x.shape[3]), "the weights of all regions")
    ends = [reshaped(part(rois, 1, k, 1), (count, 1)) for k in range(4)]
    rows, valid_rows = _weights(ends[0], ends[2], sizes[0], x.shape[2], mode)
    columns, valid_columns = _weights(ends[1], ends[3], sizes[1], x.shape[3], mode)
    images = Gather(x, reshaped(which, (count,)), axis=0)
    taken = MatMul(reshaped(rows, (count, 1, sizes[0], x.shape[2])), images)
    turned = Transpose(reshaped(columns, (count, 1, sizes[1], x.shape[3])), perm=(0, 1, 3, 2))
    y = MatMul(taken, turned)
    valid = e.And(reshaped(valid_rows, (count, 1, sizes[0], 1)), reshaped(valid_columns, (count, 1, 1, sizes[1])))
    return e.Where(valid, y, number(outside, y))


def _weights(low: Op, high: Op, size: int, extent: int, mode: str) -> tuple[Op, Op]:
    """Weights [R, size, extent] of elements from `low` to `high` [R, 1], as parts of the extent, and what is inside."""
    last = number(extent - 1, low)
    if size > 1:
        step = e.Div(e.Mul(e.Sub(high, low), last), number(size - 1, low))
        place = e.Add(e.Mul(low, last), e.Mul(constant(np.arange(size), low.dtype), step))
    else:
        place = e.Mul(e.Mul(number(0.5, low), e.Add(low, high)), last)
    inside = e.And(e.GreaterOrEqual(place, number(0, place)), e.LessOrEqual(place, last))
    place = e.Where(inside, place, number(0, place))
    if mode == "nearest":  # halves away from zero
        place = e.Floor(e.Add(place, number(0.5, place)))
    at = reshaped(place, (*place.shape, 1))
    distance = e.Abs(e.Sub(at, constant(np.arange(extent), low.dtype)))
    return e.Maximum(e.Sub(number(1, distance), distance), number(0, distance)), inside


@onnx("IsAllFinite", domain=MICROSOFT)
def is_all_finite(node: Node) -> Op:
    """Whether no element of any operand is infinite or NaN, as far as the attributes ask for it."""
    wrong: list[Op] = []
    for x in node.all():
        found: list[Op] = []
        if not node.flag("isinf_only"):
            found.append(e.IsNan(x))
        if not node.flag("isnan_only"):
            found.append(e.IsInf(x))
        either = found[0] if len(found) == 1 else e.Or(found[0], found[1])
        wrong.append(reduce.ReduceMax(cast(either, i64), axes=tuple(range(len(x.shape)))))
    total = wrong[0]
    for w in wrong[1:]:
        total = e.Maximum(total, w)
    return e.Not(cast(total, bool_))


@onnx("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def complex_mul(node: Node) -> Op:
    """c = a · b, or a · conjugate of b; real and imaginary part are the last dimension."""
    a, b = node.x(0), node.x(1)
    if a.shape[-1:] != (2,) or b.shape[-1:] != (2,):
        raise ShapeError(f"{a.type} and {b.type} are not complex numbers")
    (ar, ai), (br, bi) = (tuple(part(x, -1, k, 1) for k in (0, 1)) for x in (a, b))
    bi = e.Neg(bi) if node.proto.op_type == "ComplexMulConj" else bi
    parts = e.Sub(e.Mul(ar, br), e.Mul(ai, bi)), e.Add(e.Mul(ar, bi), e.Mul(ai, br))
    return Concat(parts, axis=len(parts[0].shape) - 1)


@onnx("ExpandDims", domain=MICROSOFT)
def expand_dims(node: Node) -> Op:
    """x with one more dimension of size 1 at an axis."""
    x = node.x()
    (axis,) = node.numbers(1, "the axis")
    rank = len(x.shape) + 1
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of {rank} dimensions")
    at = axis % rank
    return reshaped(x, (*x.shape[:at], 1, *x.shape[at:]))


@onnx("Range", domain=MICROSOFT)
def range_of_ones(node: Node) -> Op:
    """As the operator of the standard; the increment is 1 if it is left out."""
    first, limit, delta = node.x(0), node.x(1), node.optional(2)
    inputs = tuple(reshaped(x, ()) for x in (first, limit, number(1, first) if delta is None else delta))
    return range_(replace(node, inputs=inputs))
