"""Unique: elements or slices without repetition, and where they come from."""

from __future__ import annotations

import math

from dlc.base.types import i64
from dlc.graph import Op
from dlc.ops import index as ix
from dlc.ops.elementwise import And, Cast, Equal, IsNan, Less, Not, Or
from dlc.ops.packed import Packed, before
from dlc.ops.reduce import ArgMax, ReduceMin, ReduceSum
from dlc.ops.shape import Transpose
from dlc.ops.sizes import Count
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count


@onnx("Unique", since=11)
def unique(node: Node) -> tuple[Op, ...]:
    """Distinct values in ascending order, or in that of their first occurrence; first places, inverse and counts.

    All pairs are compared: of n elements, n² comparisons. As in numpy, NaN is equal to NaN, and after all numbers.
    """
    x, along = node.x(), node.has("axis")
    axis = node.axis() if along else 0
    perm = (axis, *(d for d in range(len(x.shape)) if d != axis))
    rows = Transpose(x, perm=perm) if along and axis else x
    shape = rows.shape if along else (x.type.size,)
    count, width = shape[0], math.prod(shape[1:])
    check_count(Count(count).type.capacity ** 2, "the comparisons of all pairs")
    flat = reshaped(rows, (count, width))
    left, right = reshaped(flat, (count, 1, width)), reshaped(flat, (1, count, width))
    same, less = _order(left, right)
    equal = Cast(ReduceMin(Cast(same, to=i64), axes=(2,), keep=False), to=i64)
    first = ArgMax(equal, axis=0, keep=False)
    number = Count(count)
    distinct = Equal(first, number)
    if node.flag("sorted", True):
        differ = ArgMax(Cast(Not(same), to=i64), axis=2, keep=True)
        smaller = reshaped(ix.GatherElements(less, differ, axis=2), (count, count))
        below = Cast(And(smaller, reshaped(distinct, (count, 1))), to=i64)
        place: Op = ReduceSum(below, axes=(0,), keep=False)
    else:
        place = ix.Gather(before(Cast(distinct, to=i64)), first, axis=0)
    total = ReduceSum(Cast(distinct, to=i64), axes=(0,), keep=False)
    size = node.values.found_size(node.proto.output[0], distinct)

    def packed(of: Op) -> Op:
        return Packed(of, distinct, place, total, size=size)

    y = packed(reshaped(rows, shape))
    if along and axis:
        y = Transpose(y, perm=tuple(perm.index(d) for d in range(len(perm))))
    return y, packed(number), place, packed(ReduceSum(equal, axes=(0,), keep=False))


def _order(a: Op, b: Op) -> tuple[Op, Op]:
    """Whether elements are equal, and whether the first one comes first."""
    same, less = Equal(a, b), Less(a, b)
    if not a.dtype.is_float:
        return same, less
    is_nan = IsNan(a), IsNan(b)
    return Or(same, And(*is_nan)), Or(less, And(Not(is_nan[0]), is_nan[1]))
