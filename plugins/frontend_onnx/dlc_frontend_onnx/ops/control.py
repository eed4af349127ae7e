"""Control flow: branches are chosen when the model is read or at run time, loops of known length are written out."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Where
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Concat, Slice
from dlc_frontend_onnx.node import Node, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("If")
def if_(node: Node) -> Sequence[Op | None]:
    """The branch that a constant condition chooses; else both, of which every result is selected at run time."""
    node.ignore("then_branch", "else_branch")
    condition, known = node.x(), node.maybe_constant(0)
    if condition.type.size != 1:
        raise ShapeError(f"a condition of type {condition.type}, which is not one truth value")
    if known is not None:
        return node.values.subgraph(node.graph("then_branch" if known.reshape(-1)[0] else "else_branch"), node)
    branches = [node.values.subgraph(node.graph(key), node) for key in ("then_branch", "else_branch")]
    if len({len(results) for results in branches}) > 1:
        raise ShapeError(f"branches with {len(branches[0])} and {len(branches[1])} results")
    return [_selected(reshaped(condition, ()), a, b) for a, b in zip(*branches, strict=True)]


def _selected(condition: Op, then: Op | None, otherwise: Op | None) -> Op | None:
    """One of two values of the same type; None where one was refused, which has been reported."""
    if then is None or otherwise is None:
        return None
    if then.type != otherwise.type:
        kinds = f"{then.type} and {otherwise.type}"
        help = "let both branches give results of one type and shape"
        raise Unsupported(f"the condition is computed from the model's inputs, and the branches give {kinds}", help)
    return Where(condition, then, otherwise)


@onnx("Loop")
def loop(node: Node) -> Sequence[Op | None]:
    """The body as often as a constant count and constant conditions say."""
    body = node.graph("body")
    count = int(node.constant(0, "the number of iterations").reshape(-1)[0]) if node.optional(0) is not None else None
    going = node.optional(1) is None or bool(node.constant(1, "the condition").reshape(-1)[0])
    states: list[Op] = [node.x(k) for k in range(2, len(node.inputs))]
    scanned: list[list[Op]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    if len(body.input) != 2 + len(states):
        raise ShapeError(f"a body with {len(body.input)} inputs for {len(states)} values that are carried")
    step = 0
    while going and (count is None or step < count):
        if step >= (limit := node.values.budget.steps):
            steps = f"more than {limit:,}" if count is None else f"{count:,}"
            raise node.values.budget.exceeded("steps", steps, "the loop has")
        results = node.values.subgraph(body, node, (constant(step, i64), constant(True, bool_), *states))
        made = [r for r in results if r is not None]
        if len(made) < len(results):
            return [None] * node.outputs  # what was refused inside has been reported
        states = made[1 : 1 + len(states)]
        for values, value in zip(scanned, made[1 + len(states) :], strict=True):
            values.append(value)
        known = node.values.value(made[0])
        if known is None:
            help = "end the loop by a constant number of iterations"
            raise Unsupported("the condition of the next iteration depends on the model's inputs", help)
        going = bool(known.reshape(-1)[0])
        step += 1
    if any(not values for values in scanned):
        raise Unsupported(
            "a loop without iterations: the shapes of its results are not known", "remove the loop from the model"
        )
    return [*states, *(_stacked(values, 0) for values in scanned)]


@onnx("Scan", since=9)
def scan(node: Node) -> Sequence[Op | None]:
    """The body once per slice of the scanned inputs."""
    body, scans = node.graph("body"), node.int("num_scan_inputs")
    if not 0 < scans <= len(node.inputs):
        raise ShapeError(f"{scans} scanned inputs of {len(node.inputs)} operands")
    states: list[Op] = [node.x(k) for k in range(len(node.inputs) - scans)]
    inputs = [node.x(k) for k in range(len(states), len(node.inputs))]
    outputs = len(body.output) - len(states)
    if len(body.input) != len(node.inputs) or outputs < 0:
        raise ShapeError(f"a body with {len(body.input)} inputs for {len(node.inputs)} operands")
    axes = [normalized(a, len(x.shape)) for a, x in zip(_given(node, "scan_input_axes", scans), inputs, strict=True)]
    backward = _given(node, "scan_input_directions", scans)
    out_axes, out_backward = (_given(node, f"scan_output_{k}", outputs) for k in ("axes", "directions"))
    lengths = {x.shape[a] for a, x in zip(axes, inputs, strict=True)}
    if len(lengths) != 1:
        raise ShapeError(f"inputs of {sorted(lengths)} slices")
    steps = lengths.pop()
    scanned: list[list[Op]] = [[] for _ in range(outputs)]
    node.values.budget.check("steps", steps, "the scan has")
    for t in range(steps):
        slices = [_slice(x, a, steps - 1 - t if b else t) for x, a, b in zip(inputs, axes, backward, strict=True)]
        results = node.values.subgraph(body, node, (*states, *slices))
        made = [r for r in results if r is not None]
        if len(made) < len(results):
            return [None] * node.outputs  # what was refused inside has been reported
        states = made[: len(states)]
        for values, value in zip(scanned, made[len(states) :], strict=True):
            values.append(value)
    if steps == 0 and scanned:
        raise Unsupported(
            "a loop without iterations: the shapes of its results are not known", "remove the loop from the model"
        )
    ordered = [values[::-1] if b else values for values, b in zip(scanned, out_backward, strict=True)]
    return [*states, *(_stacked(values, a) for values, a in zip(ordered, out_axes, strict=True))]


def _given(node: Node, key: str, count: int) -> tuple[int, ...]:
    found = node.ints(key)
    if found is not None and len(found) != count:
        raise ShapeError(f"{len(found)} {key} for {count} values")
    return (0,) * count if found is None else found


def _slice(x: Op, axis: int, k: int) -> Op:
    starts = tuple(k if d == axis else 0 for d in range(len(x.shape)))
    sizes = tuple(1 if d == axis else n for d, n in enumerate(x.shape))
    part = Slice(x, starts=starts, sizes=sizes, steps=(1,) * len(sizes))
    return reshaped(part, tuple(n for d, n in enumerate(x.shape) if d != axis))


def _stacked(values: Sequence[Op], axis: int) -> Op:
    """The values along a new dimension."""
    if len({v.type for v in values}) > 1:
        raise ShapeError(f"iterations with results of different types: {', '.join(str(v.type) for v in values[:4])}")
    d = normalized(axis, len(values[0].shape) + 1)
    rows = tuple(reshaped(v, (*v.shape[:d], 1, *v.shape[d:])) for v in values)
    return rows[0] if len(rows) == 1 else Concat(rows, axis=d)
