"""Operators that select elements by data."""

from __future__ import annotations

import numpy as np

from dlc.graph import Op
from dlc.ops import index as ix
from dlc.ops.linear import Einsum
from dlc.ops.pointwise import normalized
from dlc.types import i64
from dlc_frontend_onnx.node import Node, cast, constant
from dlc_frontend_onnx.rules import onnx


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
