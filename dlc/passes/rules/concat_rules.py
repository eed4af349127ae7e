"""Cutting and joining: concatenations, slices of them, and gathers whose indices are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dlc.api.rules import RewriteContext, equation, rule
from dlc.graph.op import Op
from dlc.graph.structure import Constant, Splat
from dlc.ops.index import Gather
from dlc.ops.shape import Concat, Expand, Reshape, Slice

# Indices beyond this number are data, not structure.
_MOST_INDICES = 4096


@equation(Concat)
def concat_of_one(op: Concat) -> Op | None:
    """concat(x) → x; empty operands are removed."""
    if len(op.xs) == 1:
        return op.xs[0]
    filled = tuple(x for x in op.xs if x.shape[op.axis])
    return Concat(filled or op.xs[:1], axis=op.axis) if len(filled) < len(op.xs) else None


@rule(Concat)
def concat_of_concat(op: Concat, context: RewriteContext) -> Op | None:
    """concat(concat(x, y), z) → concat(x, y, z) along one axis."""

    def parts(x: Op) -> tuple[Op, ...]:
        return x.xs if isinstance(x, Concat) and x.axis == op.axis and context.single(x) else (x,)

    flat = tuple(p for x in op.xs for p in parts(x))
    return Concat(flat, axis=op.axis) if len(flat) > len(op.xs) else None


@equation(Concat)
def concat_of_slices(op: Concat) -> Op | None:
    """concat(x[a:b], x[b:c]) → x[a:c]."""
    out = [op.xs[0]]
    for x in op.xs[1:]:
        joined = _joined(out[-1], x, op.axis)
        out[-1:] = [out[-1], x] if joined is None else [joined]
    return Concat(tuple(out), axis=op.axis) if len(out) < len(op.xs) else None


def _joined(a: Op, b: Op, axis: int) -> Op | None:
    """One slice for two neighbouring ones of the same value, or None."""
    if not isinstance(a, Slice) or not isinstance(b, Slice) or a.x != b.x:
        return None
    ones = (1,) * len(a.starts)
    steps = a.steps or ones
    next_start = a.starts[axis] + a.sizes[axis] * steps[axis]
    if (b.steps or ones) != steps or b.starts != (*a.starts[:axis], next_start, *a.starts[axis + 1 :]):
        return None
    sizes = tuple(n + (b.sizes[d] if d == axis else 0) for d, n in enumerate(a.sizes))
    return Slice(a.x, starts=a.starts, sizes=sizes, steps=a.steps)


@equation(Slice)
def slice_of_concat(op: Slice) -> Op | None:
    """concat(x, y)[a:b] → x[a:b], if the slice reads one operand only."""
    whole = op.x
    if not isinstance(whole, Concat) or any(s != 1 for s in op.steps) or not op.type.capacity:
        return None
    axis = whole.axis
    start, stop = op.starts[axis], op.starts[axis] + op.sizes[axis]
    offset, read = 0, list[Op]()
    for x in whole.xs:
        extent = x.shape[axis]
        low, high = max(start - offset, 0), min(stop - offset, extent)
        if low < high:
            starts = tuple(low if d == axis else s for d, s in enumerate(op.starts))
            sizes = tuple(high - low if d == axis else n for d, n in enumerate(op.sizes))
            read.append(x if sizes == x.shape else Slice(x, starts=starts, sizes=sizes))
        offset += extent
    # Several parts of a concatenation that exists anyway would only be joined again.
    return read[0] if len(read) == 1 else None


@equation(Slice)
def slice_of_expand(op: Slice) -> Op | None:
    """expand(x)[a:b] → expand(x[a:b])."""
    match op.x:
        case Expand(x=x):
            pass
        case _:
            return None
    lead = len(op.starts) - len(x.shape)
    own = [d + lead for d in range(len(x.shape))]
    steps = op.steps or (1,) * len(op.starts)
    kept = tuple(
        (0, min(op.sizes[d], 1), 1) if x.shape[d - lead] == 1 else (op.starts[d], op.sizes[d], steps[d]) for d in own
    )
    starts, sizes, strides = (tuple(k[j] for k in kept) for j in range(3))
    return Expand(Slice(x, starts=starts, sizes=sizes, steps=strides), to=op.sizes)


@equation(Gather)
def gather_of_constant(op: Gather) -> Op | None:
    """gather(x, c) → x[c:c+1] without the dimension; gather(x, [a, a+s, a+2s …]) → x[a::s]."""
    places = _places(op.indices, op.x.shape[op.axis])
    if places is None or op.indices.type.rank > 1 or not op.type.capacity:
        return None
    steps = {b - a for a, b in pairwise(places)} or {1}
    if len(steps) != 1 or 0 in steps:
        return None
    rank, (step,) = len(op.x.shape), steps
    part = Slice(
        op.x,
        starts=tuple(places[0] if d == op.axis else 0 for d in range(rank)),
        sizes=tuple(len(places) if d == op.axis else e for d, e in enumerate(op.x.shape)),
        steps=() if step == 1 else tuple(step if d == op.axis else 1 for d in range(rank)),
    )
    return Reshape(part, to=op.shape) if op.indices.type.rank == 0 else part


def _places(indices: Op, extent: int) -> list[int] | None:
    """The subscripts that constant indices mean, or None."""
    if not isinstance(indices, (Constant, Splat)) or not 0 < indices.type.size <= _MOST_INDICES:
        return None
    values = np.asarray(indices.evaluate()).reshape(-1).tolist()
    return [min(max(v + extent if v < 0 else v, 0), extent - 1) for v in values]


RULES = (concat_of_one, concat_of_concat, concat_of_slices, slice_of_concat, slice_of_expand, gather_of_constant)
