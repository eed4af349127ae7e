"""Operators that select elements by data."""

from __future__ import annotations

import math

import numpy as np

from dlc.base.types import Type, i64
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import index as ix
from dlc.ops.elementwise import Div, Equal, Less, Mod, Not, Sub, Where
from dlc.ops.linear import MAX_FACTORS, Einsum
from dlc.ops.order import FirstOf
from dlc.ops.packed import kept
from dlc.ops.pointwise import normalized, scalar
from dlc.ops.shape import Concat, Transpose
from dlc.ops.sizes import Count
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.implied import exactly
from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rooms import opened
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("Gather")
def gather(node: Node) -> Op:
    """Slices of x along an axis."""
    return ix.Gather(node.x(0), node.x(1), axis=node.axis())


@onnx("GatherElements")
def gather_elements(node: Node) -> Op:
    """One element of x along an axis for each index."""
    return ix.GatherElements(node.x(0), node.x(1), axis=node.axis())


@onnx("GatherND")
@onnx("GatherND", domain=MICROSOFT)
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


@onnx("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Op:
    """A cache with new elements from given places on, one for each item of the batch."""
    mode = node.text("mode", "linear")
    if mode not in ("linear", "circular"):
        raise Unsupported(f"mode {mode!r}", "linear and circular are defined")
    past, axis = node.x(0), node.axis(default=-2)
    start = node.optional(2) or Splat(0, Type(i64, past.shape[:1]))
    return ix.Overwrite(past, node.x(1), start, axis=axis, circular=mode == "circular")


@onnx("OneHot")
def one_hot(node: Node) -> Op:
    """A 1 at each index."""
    indices = cast(node.x(0), i64)
    axis = normalized(node.int("axis", -1), len(indices.shape) + 1)
    (depth,) = node.numbers(1, "the depth", lambda outs: exactly(outs[0][axis]))
    return ix.OneHot(indices, node.x(2), depth=depth, axis=axis)


@onnx("Trilu")
@onnx("Trilu", domain=MICROSOFT)
def trilu(node: Node) -> Op:
    """A triangle of a matrix."""
    upper, value = node.flag("upper", True), node.maybe_constant(1)
    if value is None:
        return ix.Trilu(node.x(), upper=upper, by=node.optional(1))
    return ix.Trilu(node.x(), upper=upper, k=int(value.reshape(-1)[0]))


@onnx("NonZero")
def non_zero(node: Node) -> Op:
    """Subscripts of what is not zero."""
    if (known := node.maybe_constant(0)) is not None:
        return constant(np.array(np.nonzero(known)), i64)
    x = node.x()
    elements, rank = x.type.size, len(x.shape)
    mask = reshaped(Not(Equal(x, number(0, x))), (elements,))
    place = Count(elements)
    columns: list[Op] = []
    for d, extent in enumerate(x.shape):
        step = math.prod(x.shape[d + 1 :])
        at = place if step == 1 else Div(place, scalar(step, i64))
        columns.append(reshaped(at if d == 0 else Mod(at, scalar(extent, i64)), (elements, 1)))
    size = node.values.found_size(node.proto.output[0], mask)
    if not rank:
        raise Unsupported("subscripts of a scalar", "reshape it to a vector of one element")
    places = columns[0] if rank == 1 else Concat(tuple(columns), axis=1)
    return Transpose(kept(places, mask, size), perm=(1, 0))


@onnx("Compress")
def compress(node: Node) -> Op:
    """Slices where a condition holds; it may be shorter than the dimension."""
    x, axis = (node.x(), node.axis()) if node.has("axis") else (reshaped(node.x(), (node.x().type.size,)), 0)
    if (known := node.maybe_constant(1)) is not None:
        return ix.Gather(x, constant(np.nonzero(known.reshape(-1))[0], i64), axis=axis)
    mask = node.x(1)
    perm = (axis, *(d for d in range(len(x.shape)) if d != axis))
    rows = x if axis == 0 else Transpose(x, perm=perm)
    mask = reshaped(mask, (mask.type.size,))
    rows = opened(rows, (mask.shape[0], *rows.shape[1:]))
    found = kept(rows, mask, node.values.found_size(node.proto.output[0], mask))
    return found if axis == 0 else Transpose(found, perm=tuple(perm.index(d) for d in range(len(perm))))


@onnx("TopK")
def top_k_attribute(node: Node) -> tuple[Op, Op]:
    """The k largest elements and where they are; k as an attribute."""
    return _top_k(node, node.int("k"), largest=True)


@onnx("TopK", since=10)
def top_k(node: Node) -> tuple[Op, Op]:
    """The k largest or smallest elements and where they are, sorted; of equal ones the first."""
    node.ignore("sorted")  # without it any order is right
    axis = node.axis(default=-1)
    (k,) = node.numbers(1, "k", lambda outs: exactly(outs[0][axis]))
    return _top_k(node, k, node.flag("largest", True))


def _top_k(node: Node, k: int, largest: bool) -> tuple[Op, Op]:
    x, axis = node.x(), node.axis(default=-1)
    n = x.shape[axis]
    if not 0 <= k <= n:
        raise ShapeError(f"{k} elements of dimension {axis} of {x.type}")
    indices = FirstOf(x, axis=axis, count=k, largest=largest)
    return ix.GatherElements(x, indices, axis=axis), indices


@onnx("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Op:
    """The first lengths[b] elements of each sequence backward."""
    batch, time = node.axis("batch_axis", 1), node.axis("time_axis", 0)
    x = node.x() if (batch, time) == (0, 1) else Transpose(node.x(), perm=_in_front(batch, time, len(node.x().shape)))
    rows, steps = x.shape[:2]
    t, lengths = Count(steps), reshaped(cast(node.x(1), i64), (rows, 1))
    # No sequence has less than no elements: such a length is made an index out of range, as one that is too long is.
    start = Where(Less(lengths, number(0, lengths)), scalar(-1 - steps, i64), t)
    place = Where(Less(t, lengths), Sub(Sub(lengths, number(1, lengths)), t), start)
    y = ix.GatherNd(x, reshaped(place, (rows, steps, 1)), batch=1)
    return y if x is node.x() else Transpose(y, perm=tuple(np.argsort(_in_front(batch, time, len(x.shape))).tolist()))


def _in_front(batch: int, time: int, rank: int) -> tuple[int, ...]:
    return (batch, time, *(d for d in range(rank) if d not in (batch, time)))


@onnx("Einsum")
def einsum(node: Node) -> Op:
    """A sum of products, written with subscripts."""
    if len(node.inputs) > MAX_FACTORS:
        reason = f"a product of {len(node.inputs)} operands; at most {MAX_FACTORS} are multiplied at once"
        raise Unsupported(reason, "multiply them by several nodes")
    return Einsum(node.all(), equation=node.text("equation").replace(" ", ""))
