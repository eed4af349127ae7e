"""Transposes and reshapes sink towards the outputs, so that they meet, cancel, or reach an op that absorbs them.

Written once for all elementwise ops. A transpose sinks only if nothing else reads it: otherwise it would be copied.
"""

from __future__ import annotations

from dlc.api.rules import RewriteContext, rule
from dlc.graph.constants import prefix_shape
from dlc.graph.op import Op
from dlc.ops.normalize import LogSoftmax, Softmax
from dlc.ops.pointwise import Pointwise
from dlc.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from dlc.ops.shape import Concat, Pad, Reshape, Slice, Transpose


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=lambda d: perm[d]))


@rule(Pointwise)
def transpose_through_pointwise(op: Pointwise, context: RewriteContext) -> Op | None:
    """f(transpose(x, p), transpose(y, p), c) → transpose(f(x, y, c'), p), c a constant."""
    perms = {x.perm for x in op.operands if isinstance(x, Transpose)}
    if len(perms) != 1:
        return None
    (perm,) = perms
    if len(perm) != len(op.shape):
        return None
    moved: list[Op] = []
    for x in op.operands:
        if isinstance(x, Transpose) and context.single(x):
            moved.append(x.x)
        elif context.constant(x):
            moved.append(_untransposed(x, perm))
        else:
            return None
    return Transpose(op.with_operands(moved), perm=perm)


def _untransposed(c: Op, perm: tuple[int, ...]) -> Op:
    """A constant as it is beside values that are not transposed yet."""
    if c.type.size == 1:
        return c
    shape = prefix_shape(c.shape, len(perm))
    whole = c if shape == c.shape else Reshape(c, to=shape)
    return Transpose(whole, perm=_inverse(perm))


@rule(Pointwise)
def reshape_through_pointwise(op: Pointwise, context: RewriteContext) -> Op | None:
    """f(reshape(x, s), reshape(y, s), c) → reshape(f(x, y, c), s), x and y of one shape, c a single number."""
    shapes = {x.x.shape for x in op.operands if isinstance(x, Reshape)}
    if len(shapes) != 1:
        return None
    moved: list[Op] = []
    for x in op.operands:
        if isinstance(x, Reshape) and x.to == op.shape and context.single(x):
            moved.append(x.x)
        elif context.constant(x) and x.type.rank == 0:
            moved.append(x)
        else:
            return None
    return Reshape(op.with_operands(moved), to=op.shape)


@rule(Softmax, LogSoftmax)
def transpose_through_softmax(op: Softmax | LogSoftmax, context: RewriteContext) -> Op | None:
    """softmax(transpose(x, p), axis) → transpose(softmax(x, p[axis]), p)."""
    match op.x:
        case Transpose(x=x, perm=perm) if context.single(op.x):
            return Transpose(type(op)(x, axis=perm[op.axis]), perm=perm)
        case _:
            return None


@rule(Softmax, LogSoftmax)
def reshape_through_softmax(op: Softmax | LogSoftmax, context: RewriteContext) -> Op | None:
    """softmax(reshape(x, s), axis) → reshape(softmax(x, axis'), s) for a reshape that only adds or removes ones."""
    match op.x:
        case Reshape(x=x, to=to) if context.single(op.x):
            pass
        case _:
            return None
    ours, theirs = ([d for d, e in enumerate(s) if e != 1] for s in (to, x.shape))
    axis = op.axis % len(to)
    if [to[d] for d in ours] != [x.shape[d] for d in theirs] or axis not in ours:
        return None
    return Reshape(type(op)(x, axis=theirs[ours.index(axis)]), to=to)


@rule(Concat)
def transpose_through_concat(op: Concat, context: RewriteContext) -> Op | None:
    """concat(transpose(x, p), transpose(y, p)) → transpose(concat(x, y), p)."""
    inner: list[Op] = []
    perms: set[tuple[int, ...]] = set()
    for x in op.xs:
        if not isinstance(x, Transpose) or not context.single(x):
            return None
        perms.add(x.perm)
        inner.append(x.x)
    if len(perms) != 1:
        return None
    (perm,) = perms
    return Transpose(Concat(tuple(inner), axis=perm[op.axis]), perm=perm)


@rule(Slice)
def transpose_through_slice(op: Slice, context: RewriteContext) -> Op | None:
    """slice(transpose(x, p)) → transpose(slice(x), p), which moves less data."""
    match op.x:
        case Transpose(x=x, perm=perm) if context.single(op.x):
            back = _inverse(perm)
            starts, sizes = (tuple(v[d] for d in back) for v in (op.starts, op.sizes))
            steps = tuple(op.steps[d] for d in back) if op.steps else ()
            return Transpose(Slice(x, starts=starts, sizes=sizes, steps=steps), perm=perm)
        case _:
            return None


@rule(Pad)
def transpose_through_pad(op: Pad, context: RewriteContext) -> Op | None:
    """pad(transpose(x, p)) → transpose(pad(x), p)."""
    match op.x:
        case Transpose(x=x, perm=perm) if context.single(op.x):
            back, rank = _inverse(perm), len(perm)
            pads = (*(op.pads[d] for d in back), *(op.pads[rank + d] for d in back))
            return Transpose(Pad(x, pads=pads, value=op.value, mode=op.mode), perm=perm)
        case _:
            return None


@rule(ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd)
def transpose_through_reduce(
    op: ReduceSum | ReduceMean | ReduceMax | ReduceMin | ReduceProd, context: RewriteContext
) -> Op | None:
    """reduce(transpose(x, p), axes) → transpose(reduce(x, p[axes]), the rest of p)."""
    match op.x:
        case Transpose(x=x, perm=perm) if context.single(op.x):
            pass
        case _:
            return None
    axes = tuple(sorted(perm[a] for a in op.axes))
    inner = type(op)(x, axes=axes, keep=op.keep)
    if op.keep:
        return Transpose(inner, perm=perm)
    left = [p for d, p in enumerate(perm) if d not in op.axes]
    rank = {p: k for k, p in enumerate(sorted(left))}
    return Transpose(inner, perm=tuple(rank[p] for p in left))


RULES = (
    transpose_through_pointwise,
    reshape_through_pointwise,
    transpose_through_softmax,
    reshape_through_softmax,
    transpose_through_concat,
    transpose_through_slice,
    transpose_through_pad,
    transpose_through_reduce,
)
