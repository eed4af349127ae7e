"""NonMaxSuppression: of boxes that overlap the one with the highest score."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dlc.base.types import Type, bool_, f32, i64
from dlc.graph import Input, Loop, Op, Splat
from dlc.graph.bodies import body_of, item
from dlc.kernel.define import ShapeError
from dlc.ops import index as ix
from dlc.ops.elementwise import (
    Add,
    Div,
    Equal,
    Greater,
    Maximum,
    Minimum,
    Mul,
    Or,
    Sub,
    Where,
)
from dlc.ops.packed import kept
from dlc.ops.pointwise import scalar
from dlc.ops.reduce import ArgMax, ReduceMax
from dlc.ops.shape import Concat, Expand, Slice, Transpose
from dlc.ops.sizes import Count
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rooms import whole, with_row
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count

_OUT: Final = -math.inf
"""The score of a box that is selected or suppressed already, or was never considered."""


@onnx("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> Op:
    """Rows (batch, class, box) of the boxes that are kept, by batch, class and falling score.

    One iteration selects a box of every class at once, until there is none: at most as many as may be selected, if that
    is a constant, else as many as there are boxes. Dimensions without a size have the largest one, with boxes that are
    never considered: nothing is selected of those.
    """
    boxes, scores = node.x(0), node.x(1)
    if len(boxes.shape) != 3 or boxes.shape[2] != 4 or len(scores.shape) != 3 or scores.shape[2] != boxes.shape[1]:
        raise ShapeError(f"boxes {boxes.type} with scores {scores.type}")
    if scores.shape[0] != boxes.shape[0]:
        raise ShapeError(f"boxes {boxes.type} with scores {scores.type}")
    considered = Greater(scores, _number(node, 4, _OUT))  # no NaN
    alive: Op = Where(considered, scores, scalar(_OUT, f32))
    alive, boxes = whole(alive, _OUT), whole(boxes, 0.0)
    batch, classes, count = alive.shape
    most, known = _number(node, 2, 0), node.maybe_constant(2)
    steps = count if known is None else max(min(int(known.reshape(-1)[0]), count), 0)
    if node.optional(2) is None:
        steps = 0
    rows = steps * batch * classes
    check_count(rows, "the selected boxes")
    edges = _edges(boxes, bool(node.int("center_point_box", 0)))
    chosen, valid = _selected(alive, edges, _number(node, 3, 0.0), Minimum(most, scalar(steps, i64)), steps)
    # [steps, batch, class] → rows in the order of batch, class, step
    places, mask = (reshaped(Transpose(x, perm=(1, 2, 0)), (rows,)) for x in (chosen, valid))
    number = Count(rows)
    group = Div(number, scalar(max(steps, 1), i64))
    first = Div(group, scalar(max(classes, 1), i64))
    second = Sub(group, Mul(first, scalar(classes, i64)))
    table = Concat(tuple(reshaped(x, (rows, 1)) for x in (first, second, places)), axis=1)
    return kept(table, mask, node.values.found_size(node.proto.output[0], mask))


def _number(node: Node, k: int, default: float) -> Op:
    """A scalar operand, or what stands for it where it is left out."""
    found = node.optional(k)
    if found is None:
        return scalar(default, f32 if isinstance(default, float) else i64)
    if found.type.size != 1:
        raise ShapeError(f"operand {k} is {found.type}, not a number")
    return reshaped(found, ())


def _edges(boxes: Op, centers: bool) -> tuple[Op, ...]:
    """Lower and upper ends along both axes, each [batch, 1, boxes]."""
    batch, count, _ = boxes.shape
    a, b, c, d = (
        reshaped(Slice(boxes, starts=(0, 0, k), sizes=(batch, count, 1)), (batch, 1, count)) for k in range(4)
    )
    if not centers:
        return Minimum(a, c), Maximum(a, c), Minimum(b, d), Maximum(b, d)
    half = scalar(0.5, f32)
    wide, high = Mul(c, half), Mul(d, half)
    return Sub(a, wide), Add(a, wide), Sub(b, high), Add(b, high)


def _selected(alive: Op, edges: tuple[Op, ...], overlap: Op, most: Op, steps: int) -> tuple[Op, Op]:
    """(box, whether there was one) of every iteration, [steps, batch, class]."""
    batch, classes, count = alive.shape
    rows = Type(i64, (steps, batch, classes))
    nothing = Splat(0, rows), Splat(False, replace(rows, dtype=bool_))
    if not rows.size or not count:
        return nothing
    outer = (*edges, overlap)
    t = Input("t", scalar(0, i64).type)
    carried = tuple(Input(f"c{k}", x.type) for k, x in enumerate((alive, *nothing)))
    inner = tuple(Input(f"v{k}", x.type) for k, x in enumerate(outer))
    scores, chosen, valid = carried
    low0, high0, low1, high1, limit = inner
    best = ArgMax(scores, axis=2, keep=True)
    ok = Greater(ix.GatherElements(scores, best, axis=2), scalar(_OUT, f32))

    def of_best(x: Op) -> Op:
        return ix.GatherElements(Expand(x, to=(batch, classes, count)), best, axis=2)

    zero = scalar(0.0, f32)
    shared0 = Maximum(Sub(Minimum(high0, of_best(high0)), Maximum(low0, of_best(low0))), zero)
    shared1 = Maximum(Sub(Minimum(high1, of_best(high1)), Maximum(low1, of_best(low1))), zero)
    common = Mul(shared0, shared1)
    area = Mul(Sub(high0, low0), Sub(high1, low1))
    union = Sub(Add(area, of_best(area)), common)
    gone = Or(Greater(Div(common, union), limit), Equal(Expand(best, to=(batch, classes, count)), Count(count)))
    after = Where(gone, Splat(_OUT, alive.type), scores)
    again = Greater(ReduceMax(after, axes=(0, 1, 2), keep=False), scalar(_OUT, f32))
    body = body_of((t, *carried, *inner), (again, after, with_row(chosen, t, best), with_row(valid, t, ok)), {})
    loop = Loop(most, None, (alive, *nothing), outer, body)
    return item(loop, 1), item(loop, 2)
