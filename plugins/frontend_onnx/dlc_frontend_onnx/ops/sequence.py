"""Sequences and optional values: resolved when the model is read, where positions and lengths are known."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.index import Gather
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Concat, Slice
from dlc_frontend_onnx.node import Node, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sequences import Absent, SequenceValue
from dlc_frontend_onnx.unsupported import Unsupported

_POSITIONS = "export the model with positions and lengths of sequences as constants"


@onnx("SequenceEmpty", since=11)
def sequence_empty(node: Node) -> Op:
    """()."""
    node.ignore("dtype")
    return SequenceValue(())


@onnx("SequenceConstruct", since=11)
def sequence_construct(node: Node) -> Op:
    """(x, …)."""
    return SequenceValue(node.all())


@onnx("SequenceInsert", since=11)
def sequence_insert(node: Node) -> Op:
    """The sequence with one more tensor: last, or before a position."""
    xs = list(node.sequence())
    xs.insert(len(xs) if node.optional(2) is None else _position(node, 2, len(xs), len(xs)), node.x(1))
    node.values.budget.check("operands", len(xs), "the sequence has")
    return SequenceValue(tuple(xs))


@onnx("SequenceErase", since=11)
def sequence_erase(node: Node) -> Op:
    """The sequence without its last tensor, or without that at a position."""
    xs = list(node.sequence())
    at = len(xs) - 1 if node.optional(1) is None else _position(node, 1, len(xs), len(xs) - 1)
    if not xs:
        raise ShapeError("an empty sequence has nothing to erase")
    del xs[at]
    return SequenceValue(tuple(xs))


@onnx("SequenceAt", since=11)
def sequence_at(node: Node) -> Op:
    """The tensor at a position; tensors of one type may be chosen by one that is computed."""
    xs = node.sequence()
    if node.maybe_constant(1) is None and len({x.type for x in xs}) == 1:
        return Gather(_stacked(xs, 0), reshaped(node.x(1), ()), axis=0)
    return xs[_position(node, 1, len(xs), len(xs) - 1)]


@onnx("SequenceLength", since=11)
def sequence_length(node: Node) -> Op:
    """The number of tensors."""
    return constant(len(node.sequence()), i64)


@onnx("ConcatFromSequence", since=11)
def concat_from_sequence(node: Node) -> Op:
    """All tensors along a dimension, which may be a new one."""
    xs = node.sequence()
    axis, new = node.int("axis"), node.flag("new_axis")
    if not xs:
        raise ShapeError("an empty sequence has nothing to concatenate")
    if new:
        return _stacked(xs, normalized(axis, len(xs[0].shape) + 1))
    return xs[0] if len(xs) == 1 else Concat(xs, axis=normalized(axis, len(xs[0].shape)))


@onnx("SplitToSequence", since=11)
def split_to_sequence(node: Node) -> Op:
    """Parts of x along a dimension: of given lengths, of one length with a rest, or rows without the dimension."""
    x, axis = node.x(), node.axis()
    keeps = node.flag("keepdims", True)
    extent = x.shape[axis]
    if node.optional(1) is None:
        lengths = [1] * extent
    else:
        found = node.constant(1, "the length of the parts")
        lengths = [int(n) for n in found.reshape(-1)]
        if not found.ndim:
            length = lengths[0]
            if length <= 0:
                raise ShapeError(f"parts of length {length}")
            whole, rest = divmod(extent, length)
            node.values.budget.check("operands", whole, "the sequence has")
            lengths = [length] * whole + [rest] * bool(rest)
        keeps = True
    node.values.budget.check("operands", len(lengths), "the sequence has")
    if sum(lengths) != extent or min(lengths, default=0) < 0:
        raise ShapeError(f"parts of lengths {lengths[:8]} of {extent}")
    parts: list[Op] = []
    at = 0
    for n in lengths:
        part = Slice(
            x,
            starts=tuple(at * (d == axis and n > 0) for d in range(len(x.shape))),
            sizes=tuple(n if d == axis else size for d, size in enumerate(x.shape)),
            steps=(1,) * len(x.shape),
        )
        parts.append(part if keeps else reshaped(part, tuple(s for d, s in enumerate(x.shape) if d != axis)))
        at += n
    return SequenceValue(tuple(parts))


@onnx("Optional", since=15)
def optional(node: Node) -> Op:
    """The value itself, or an absent one."""
    node.ignore("type")
    return node.any() if node.inputs and node.inputs[0] is not None else Absent()


@onnx("OptionalHasElement", since=15)
def optional_has_element(node: Node) -> Op:
    """Whether there is a value: known when the model is read."""
    there = bool(node.inputs) and node.inputs[0] is not None and not isinstance(node.any(), Absent)
    return constant(there, bool_)


@onnx("OptionalGetElement", since=15)
def optional_get_element(node: Node) -> Op:
    """The value."""
    found = node.any()
    if isinstance(found, Absent):
        raise Unsupported("the optional value is absent", "export the model for values that are there")
    return found


def _position(node: Node, k: int, length: int, last: int) -> int:
    """A position of a sequence, counted from either end."""
    found = node.values.value(node.x(k))
    if found is None:
        raise Unsupported("a position in a sequence is computed from the model's inputs", _POSITIONS)
    at = int(found.reshape(-1)[0])
    if not -length <= at <= last:
        raise ShapeError(f"position {at} of a sequence of {length}")
    return at + length if at < 0 else at


def _stacked(xs: Sequence[Op], axis: int) -> Op:
    if len({x.type for x in xs}) > 1:
        raise ShapeError(f"tensors of different types: {', '.join(str(x.type) for x in xs[:4])}")
    rows = tuple(reshaped(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in xs)
    return rows[0] if len(rows) == 1 else Concat(rows, axis=axis)
