"""Loops that stay loops: the body is imported once, with stand-ins for what changes from one iteration to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnx import GraphProto

from dlc.base.types import bool_, i64
from dlc.graph import Input, Item, Loop, Op, Scan
from dlc.graph.bodies import CONDITION, COUNTER
from dlc.kernel.define import ShapeError
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Concat
from dlc_frontend_onnx.node import Node, cast, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.regions import Formal, iteration
from dlc_frontend_onnx.sequences import Resolved
from dlc_frontend_onnx.unsupported import Conclusive, Unsupported

BOUND: Final = "export the loop with a constant number of iterations and no condition on data"


def as_loop(node: Node, body: GraphProto, states: Sequence[Op], steps: int | None) -> Sequence[Op | None]:
    """The results of a loop that stays one. `steps` are those of a constant count, if the loop begins at all."""
    number, carried = _formals(node, states)
    results = node.values.subgraph(body, node, (number, constant(True, bool_), *carried))
    made = made_of(results)
    if made is None:
        return [None] * node.outputs
    again, *values = made
    rows = values[len(states) :]
    going = node.values.value(again)
    ends = going is None or not going.reshape(-1)[0]
    if steps is not None and steps <= 1:
        ends = False  # whatever the condition of a second iteration is
    if steps is None and node.optional(0) is None and not ends:
        raise Conclusive("the loop never ends: it has no number of iterations, and its condition stays true", BOUND)
    if steps is not None and not ends:
        return _scan(node, (number, carried, ()), states, (), values, steps)
    if rows:
        reason = "how often the loop runs is known at run time only, and a result has a row for every iteration"
        raise Unsupported(reason, BOUND)
    return _loop(node, number, carried, states, reshaped(again, ()), values)


def _formals(node: Node, states: Sequence[Op]) -> tuple[Op, list[Op]]:
    """The number of an iteration, and what it is given."""
    if any(isinstance(s, Resolved) for s in states):
        raise Unsupported("a sequence or an optional value is carried from one iteration to the next", BOUND)
    key = node.values.fresh()
    return Formal(f"{key} i", COUNTER), [Formal(f"{key} c{k}", s.type) for k, s in enumerate(states)]


def made_of(results: Sequence[Op | None]) -> list[Op] | None:
    """The results; None where one was refused, which has been reported."""
    made = [r for r in results if r is not None]
    if len(made) < len(results):
        return None
    if any(isinstance(r, Resolved) for r in made):
        raise Unsupported("an iteration gives a sequence or an optional value", BOUND)
    return made


def _moving(carried: Sequence[Op], states: Sequence[Op], values: Sequence[Op]) -> list[int]:
    """The carried values that change. Raises Unsupported: one changes its type."""
    for state, value in zip(states, values, strict=False):
        if state.type != value.type:
            change = f"{state.type} becomes {value.type}"
            raise Unsupported(f"a value changes its type from one iteration to the next: {change}", BOUND)
    return [k for k, c in enumerate(carried) if values[k] != c]


def _names(number: Op, carried: Sequence[Op], moving: Sequence[int], slices: Sequence[Op]) -> dict[Op, Input]:
    found = {number: Input("i", COUNTER)}
    found |= {carried[k]: Input(f"c{n}", carried[k].type) for n, k in enumerate(moving)}
    return found | {x: Input(f"x{k}", x.type) for k, x in enumerate(slices)}


def _scan(
    node: Node,
    formals: tuple[Op, Sequence[Op], Sequence[Op]],
    states: Sequence[Op],
    scanned: Sequence[Op],
    values: Sequence[Op],
    steps: int,
) -> list[Op]:
    """What a known number of iterations gives: last values, then rows."""
    number, carried, slices = formals
    moving = _moving(carried, states, values)
    still = {c: s for k, (c, s) in enumerate(zip(carried, states, strict=True)) if k not in moving}
    outputs = [*(values[k] for k in moving), *values[len(carried) :]]
    last = list(states)
    if not outputs:
        return last
    body, captured = iteration(outputs, _names(number, carried, moving, slices), node.values.around())
    given = tuple(still.get(x, x) for x in captured)
    op = Scan(tuple(states[k] for k in moving), tuple(scanned), given, body, steps)
    found = [op] if len(op.types) == 1 else [Item(op, k) for k in range(len(op.types))]
    for k, value in zip(moving, found, strict=False):
        last[k] = value
    return [*last, *found[len(moving) :]]


def _loop(
    node: Node, number: Op, carried: Sequence[Op], states: Sequence[Op], again: Op, values: Sequence[Op]
) -> list[Op]:
    """What an unknown number of iterations gives."""
    count, start = node.optional(0), node.optional(1)
    if again.type != CONDITION:
        raise ShapeError(f"the condition of the next iteration is {again.type}")
    moving = _moving(carried, states, values)
    still = {c: s for k, (c, s) in enumerate(zip(carried, states, strict=True)) if k not in moving}
    last = list(states)
    if not moving:
        return last
    outputs = [again, *(values[k] for k in moving)]
    body, captured = iteration(outputs, _names(number, carried, moving, ()), node.values.around())
    if node.maybe_constant(1) is not None:
        start = None  # one that is false has no iterations
    op = Loop(
        None if count is None else cast(reshaped(count, ()), i64),
        None if start is None else reshaped(start, ()),
        tuple(states[k] for k in moving),
        tuple(still.get(x, x) for x in captured),
        body,
    )
    for n, k in enumerate(moving):
        last[k] = op if len(moving) == 1 else Item(op, n)
    return last


def as_scan(node: Node, body: GraphProto, states: Sequence[Op], scanned: Sequence[Op], steps: int) -> list[Op] | None:
    """The last values and the rows of a scan; None where something was refused, which has been reported."""
    number, carried = _formals(node, states)
    key = node.values.fresh()
    slices = [Formal(f"{key} x{k}", x.type.with_shape(x.shape[1:])) for k, x in enumerate(scanned)]
    made = made_of(node.values.subgraph(body, node, (*carried, *slices)))
    return None if made is None else _scan(node, (number, carried, slices), states, scanned, made, steps)


def nodes_in(graph: GraphProto) -> int:
    """Nodes of a graph, those of the graphs inside among them."""
    return len(graph.node) + sum(nodes_in(a.g) for n in graph.node for a in n.attribute if a.HasField("g"))


def stacked(values: Sequence[Op], axis: int) -> Op:
    """The values along a new dimension."""
    if not values:
        raise Unsupported("a loop without iterations: the shapes of its results are not known", "remove the loop")
    if any(isinstance(v, Resolved) for v in values):
        raise Unsupported("an iteration gives a sequence or an optional value", BOUND)
    if len({v.type for v in values}) > 1:
        raise ShapeError(f"iterations with results of different types: {', '.join(str(v.type) for v in values[:4])}")
    d = normalized(axis, len(values[0].shape) + 1)
    rows = tuple(reshaped(v, (*v.shape[:d], 1, *v.shape[d:])) for v in values)
    return rows[0] if len(rows) == 1 else Concat(rows, axis=d)
