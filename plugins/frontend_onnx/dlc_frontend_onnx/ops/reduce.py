"""Reductions, index searches and running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dlc.base.types import bool_, u8
from dlc.graph import Input, Op
from dlc.ops import reduce as r
from dlc.ops.pointwise import normalized
from dlc_frontend_onnx.implied import axis_choices, axis_sets, reduced_shape
from dlc_frontend_onnx.node import FIXED, Node, cast
from dlc_frontend_onnx.ops.choose import along_axis
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import Unsupported

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
    x, keep, all_if_empty = node.x().shape, node.flag("keepdims", True), not node.flag("noop_with_empty_axes")
    count = 0 if node.optional(1) is None else node.x(1).type.size

    def leading(out: tuple[int, ...]) -> Callable[[Sequence[int]], bool]:
        return lambda axes: reduced_shape(x, axes, keep) == out

    axes = node.numbers_or_none(1, "axes", lambda outs: axis_choices(len(x), count, leading(outs[0])))
    if count and node.maybe_constant(1) is None and (out := node.declared[0]) is not None:
        sets = list(axis_sets(len(x), count, leading(out)))
        if count == 1:
            return along_axis(node.x(1), len(x), [d for (d,) in sets], lambda d: _reduced(node, (d,), all_if_empty))
        if len(sets) > 1:
            reason = "the axes are computed from the model's inputs, and several lead to the declared shape"
            raise Unsupported(reason, FIXED)
    return _reduced(node, axes, all_if_empty)


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
@onnx("CumProd", since=26)
def cumulative(node: Node) -> Op:
    """Running sum or product along an axis, which may be computed."""
    x, rank = node.x(), len(node.x().shape)
    running = r.CumSum if node.proto.op_type == "CumSum" else r.CumProd

    def along(axis: int) -> Op:
        return running(x, axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))

    if (value := node.maybe_constant(1)) is not None:
        return along(normalized(int(value.reshape(())), rank))
    check_count(rank * x.type.size, "the running sums along each axis")
    if isinstance(node.x(1), Input):
        node.values.assume(node.x(1), axis_choices(rank, 1, lambda _: True) or ())
    return along_axis(node.x(1), rank, range(rank), along)
