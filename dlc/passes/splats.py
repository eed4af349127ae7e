"""Splat algebra: what is computed from values that are equal everywhere is known without any memory.

add(splat 1, splat 2) → splat 3        transpose(splat v) → splat v        concat(splat v, splat v) → splat v
"""

from __future__ import annotations

import math

from dlc.base.types import Type
from dlc.graph.op import Op
from dlc.graph.structure import Splat
from dlc.ops.index import Gather, GatherElements, GatherNd
from dlc.ops.pointwise import Pointwise, literal
from dlc.ops.shape import Concat, DepthToSpace, Expand, Pad, Reshape, Slice, SpaceToDepth, Tile, Transpose
from dlc.passes.exact import evaluate_exactly

# Ops that only place elements of their first operand.
_MOVES = (Reshape, Transpose, Expand, Slice, Tile, DepthToSpace, SpaceToDepth, Gather, GatherElements, GatherNd)


def fold_splats(op: Op) -> Splat | None:
    """The splat that an op with splats as operands is, or None where its elements differ or are not known exactly."""
    if len(op.types) != 1 or not op.operands:
        return None
    first = op.operands[0]
    if isinstance(op, Pointwise):
        return _pointwise(op)
    if isinstance(op, _MOVES):
        return Splat(first.value, op.type) if isinstance(first, Splat) else None
    if isinstance(op, Concat):
        values = {(repr(x.value), x.dtype) for x in op.xs if isinstance(x, Splat)}
        alike = len(values) == 1 and all(isinstance(x, Splat) for x in op.xs)
        return Splat(first.value, op.type) if alike and isinstance(first, Splat) else None
    if isinstance(op, Pad) and isinstance(first, Splat):
        fill = literal(op.value, op.dtype) if op.mode == "constant" else first.value
        crops = all(p <= 0 for p in op.pads)
        return Splat(first.value, op.type) if crops or repr(fill) == repr(first.value) else None
    return None


def _pointwise(op: Pointwise) -> Splat | None:
    values = [x.value for x in op.operands if isinstance(x, Splat)]
    if len(values) < len(op.operands):
        return None
    if math.prod(op.shape) == 0:
        return Splat(literal(0, op.dtype), op.type)
    # On single elements: at its own shape, the op would fill memory with what is one number.
    single = op.with_operands([Splat(v, Type(x.dtype, ())) for v, x in zip(values, op.operands, strict=True)])
    got = evaluate_exactly(single, [x.evaluate() for x in single.operands])
    return None if got is None else Splat(got.item(), op.type)
