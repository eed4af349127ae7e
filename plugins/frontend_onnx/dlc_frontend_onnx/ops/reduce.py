"""Reductions, index searches and running sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dlc.base.types import bool_, u8
from dlc.graph import Op
from dlc.ops import reduce as r
from dlc_frontend_onnx.node import Node, cast
from dlc_frontend_onnx.rules import onnx

REDUCTIONS: Final[Mapping[str, Any]] = {
    "ReduceL1": r.ReduceL1,
    "ReduceL2": r.ReduceL2,
    "ReduceLogSum": r.ReduceLogSum,
    "ReduceLogSumExp": r.ReduceLogSumExp,
    "ReduceMax": r.ReduceMax,
    "ReduceMean": r.ReduceMean,
    "ReduceMin": r.ReduceMin,
    "ReduceProd": r.ReduceProd,
    "ReduceSum": r.ReduceSum,
    "ReduceSumSquare": r.ReduceSumSquare,
}
_LATER: Final = tuple(name for name in REDUCTIONS if name != "ReduceSum")


@onnx(*REDUCTIONS)
def reduce_attribute(node: Node) -> Op:
    """Reduction with axes as an attribute: all axes when it is missing."""
    return _reduced(node, node.ints("axes"), all_if_empty=True)


@onnx("ReduceSum", since=13)
@onnx(*_LATER, since=18)
def reduce_operand(node: Node) -> Op:
    """Reduction with axes as an operand."""
    axes = node.numbers_or_none(1, "axes")
    return _reduced(node, axes, all_if_empty=not node.flag("noop_with_empty_axes"))


def _reduced(node: Node, given: tuple[int, ...] | None, all_if_empty: bool) -> Op:
    keep = node.flag("keepdims", True)
    axes = node.axes(None if not given and all_if_empty else given or ())
    x = node.x()
    reduction = REDUCTIONS[node.proto.op_type]
    if x.dtype is bool_:  # max and min of truth values are "any" and "all"
        return cast(reduction(cast(x, u8), axes=axes, keep=keep), bool_)
    return reduction(x, axes=axes, keep=keep)


@onnx("ArgMax", "ArgMin")
def arg(node: Node) -> Op:
    """Index of the extreme element."""
    kind = r.ArgMax if node.proto.op_type == "ArgMax" else r.ArgMin
    return kind(node.x(), axis=node.axis(), keep=node.flag("keepdims", True), last=node.flag("select_last_index"))


@onnx("CumSum")
def cumsum(node: Node) -> Op:
    """Running sum along a constant axis."""
    (axis,) = node.axes(node.numbers(1, "the axis"))
    return r.CumSum(node.x(), axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))
