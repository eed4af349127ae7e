"""Scans: a body once per slice of its inputs; a short one is written out, the rest runs as it is."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto

from dlc.base.extents import Dim
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Slice, Transpose
from dlc_frontend_onnx.iterations import as_scan, made_of, nodes_in, stacked
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.refusals import Refusals
from dlc_frontend_onnx.rules import as_written, onnx
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("Scan", since=9)
@as_written
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
    steps = _fixed(lengths.pop())
    scanned = [_flipped(_first(x, a)) if b else _first(x, a) for x, a, b in zip(inputs, axes, backward, strict=True)]
    values = _scanned(node, body, states, scanned, steps)
    if values is None:
        return [None] * node.outputs  # what was refused inside has been reported
    rows = values[len(states) :]
    ordered = [_flipped(y) if b else y for y, b in zip(rows, out_backward, strict=True)]
    return [*values[: len(states)], *(_last(y, a) for y, a in zip(ordered, out_axes, strict=True))]


@onnx("Scan", since=8)
@as_written
def batched_scan(node: Node) -> Sequence[Op | None]:
    """The same for each row of a batch, the first dimension of everything; all sequences have their full length."""
    body, scans = node.graph("body"), node.int("num_scan_inputs")
    if not 0 < scans < len(node.inputs):
        raise ShapeError(f"{scans} scanned inputs of {len(node.inputs)} operands")
    states, inputs = ([node.x(k) for k in ks] for ks in _parted(range(1, len(node.inputs)), -scans))
    backward = _given(node, "directions", scans)
    if len(body.input) != len(node.inputs) - 1 or len(body.output) < len(states):
        raise ShapeError(f"a body with {len(body.input)} inputs for {len(node.inputs) - 1} operands")
    sizes = {x.shape[:2] for x in inputs if len(x.shape) > 1}
    if len(sizes) != 1 or any(x.shape[:1] != x0[:1] for x in (*states, *inputs) for x0 in sizes):
        raise ShapeError(f"operands of types {', '.join(str(x.type) for x in (*states, *inputs)[:8])}")
    ((batch, steps),) = (tuple(map(_fixed, pair)) for pair in sizes)
    lengths = node.numbers_or_none(0, "the lengths of the sequences")
    if lengths is not None and set(lengths) != {steps}:
        raise Unsupported(f"sequences of lengths {lengths[:8]}, of {steps} steps", "give all sequences one length")
    rows: list[list[Op]] = []
    for b in range(batch):
        own = [_flipped(_row(x, b)) if r else _row(x, b) for x, r in zip(inputs, backward, strict=True)]
        found = _scanned(node, body, [_row(s, b) for s in states], own, steps)
        if found is None:
            return [None] * node.outputs
        rows.append(found)
    return [stacked(values, 0) for values in zip(*rows, strict=True)]


def _fixed(size: int) -> int:
    """A number of slices; raises Unsupported where it is known at run time only."""
    if isinstance(size, Dim):
        reason = f"it runs over a dimension whose size, {size}, is known at run time only"
        raise Unsupported(reason, "give the dimension one size, as --dim seq=128")
    return size


def _parted(numbers: Sequence[int], at: int) -> tuple[Sequence[int], Sequence[int]]:
    return numbers[:at], numbers[at:]


def _scanned(node: Node, body: GraphProto, states: Sequence[Op], scanned: Sequence[Op], steps: int) -> list[Op] | None:
    """Last values and rows; None where something was refused, which has been reported."""
    trial: Refusals | None = None
    values: list[Op] | None = None
    if not steps or steps * nodes_in(body) > node.values.unroll:
        values, trial = node.values.attempt(lambda: as_scan(node, body, states, scanned, steps), node)
    if values is None or (trial is not None and trial.found):
        if not steps and trial is not None:
            node.values.report(trial)
            return None
        values = _written_out(node, body, states, scanned, steps)
    return values


def _written_out(
    node: Node, body: GraphProto, states: Sequence[Op], scanned: Sequence[Op], steps: int
) -> list[Op] | None:
    rows: list[list[Op]] = [[] for _ in range(len(body.output) - len(states))]
    node.values.budget.check("steps", steps, "the scan has")
    for t in range(steps):
        made = made_of(node.values.subgraph(body, node, (*states, *(_row(x, t) for x in scanned))))
        if made is None:
            return None
        states = made[: len(states)]
        for values, value in zip(rows, made[len(states) :], strict=True):
            values.append(value)
    return [*states, *(stacked(values, 0) for values in rows)]


def _given(node: Node, key: str, count: int) -> tuple[int, ...]:
    found = node.ints(key)
    if found is not None and len(found) != count:
        raise ShapeError(f"{len(found)} {key} for {count} values")
    return (0,) * count if found is None else found


def _first(x: Op, axis: int) -> Op:
    """x with a dimension in front."""
    return x if axis == 0 else Transpose(x, (axis, *(d for d in range(len(x.shape)) if d != axis)))


def _last(x: Op, axis: int) -> Op:
    """x with its first dimension elsewhere."""
    rank = len(x.shape)
    order = list(range(1, rank))
    order.insert(normalized(axis, rank), 0)
    return x if order == list(range(rank)) else Transpose(x, tuple(order))


def _flipped(x: Op) -> Op:
    """The rows of x in opposite order."""
    rows, *rest = x.shape
    zeros, ones = (0,) * len(rest), (1,) * len(rest)
    return x if rows < 2 else Slice(x, starts=(rows - 1, *zeros), sizes=x.shape, steps=(-1, *ones))


def _row(x: Op, k: int) -> Op:
    starts = (k, *(0 for _ in x.shape[1:]))
    return reshaped(Slice(x, starts=starts, sizes=(1, *x.shape[1:]), steps=(1,) * len(x.shape)), x.shape[1:])
