"""Control flow: what is known when the model is read is resolved, short loops are written out, the rest runs as it is.

A loop of a known number of iterations is written out where that comes to few nodes (`onnx.unroll`), or where its
iterations differ in shape; else it is a `Scan`. One that ends at run time is a `Loop`, which has no result with a row
for every iteration. An `If` on a condition of run time runs one branch, or selects where both are cheap.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto

from dlc.base.extents import Dim
from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Concat, Slice, Transpose
from dlc_frontend_onnx.iterations import BOUND, as_loop, as_scan, made_of
from dlc_frontend_onnx.node import Node, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.refusals import Refusals
from dlc_frontend_onnx.regions import branch
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sequences import Resolved, SequenceValue, kind_of
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("If")
def if_(node: Node) -> Sequence[Op | None]:
    """The branch that a constant condition chooses; else the one that the condition chooses at run time."""
    node.ignore("then_branch", "else_branch")
    condition, known = node.x(), node.maybe_constant(0)
    if condition.type.size != 1:
        raise ShapeError(f"a condition of type {condition.type}, which is not one truth value")
    if known is not None:
        return node.values.subgraph(node.graph("then_branch" if known.reshape(-1)[0] else "else_branch"), node)
    then, otherwise = (node.values.subgraph(node.graph(key), node) for key in ("then_branch", "else_branch"))
    if len(then) != len(otherwise):
        raise ShapeError(f"branches with {len(then)} and {len(otherwise)} results")
    made = [(a, b) for a, b in zip(then, otherwise, strict=True) if a is not None and b is not None]
    if len(made) < len(then):
        return [None] * len(then)  # what was refused inside has been reported
    return _chosen(node, reshaped(condition, ()), made)


def _chosen(node: Node, condition: Op, pairs: Sequence[tuple[Op, Op]]) -> list[Op]:
    """The results of two branches; of sequences their tensors are chosen."""
    flat: list[tuple[Op, Op]] = []
    for a, b in pairs:
        if isinstance(a, SequenceValue) and isinstance(b, SequenceValue) and len(a.xs) == len(b.xs):
            flat += zip(a.xs, b.xs, strict=True)
        elif a != b:
            flat.append((a, b))
    for a, b in flat:
        if isinstance(a, Resolved) or isinstance(b, Resolved) or a.type != b.type:
            kinds = f"{kind_of(a)} and {kind_of(b)}"
            help = "let both branches give results of one type and shape"
            raise Unsupported(f"the condition is computed from the model's inputs, and the branches give {kinds}", help)
    differing = [(a, b) for a, b in dict.fromkeys(flat) if a != b]
    found: dict[tuple[Op, Op], Op] = {}
    if differing:
        then, otherwise = ([pair[k] for pair in differing] for k in (0, 1))
        found = dict(zip(differing, branch(condition, then, otherwise, node.values.around()), strict=True))
    results: list[Op] = []
    for a, b in pairs:
        if isinstance(a, SequenceValue) and isinstance(b, SequenceValue):
            results.append(SequenceValue(tuple(found.get(p, p[0]) for p in zip(a.xs, b.xs, strict=True))))
        else:
            results.append(found.get((a, b), a))
    return results


@onnx("Loop")
def loop(node: Node) -> Sequence[Op | None]:
    """The body again and again: written out where that is short, else as it is."""
    body = node.graph("body")
    states = [node.any(k) for k in range(2, len(node.inputs))]
    if len(body.input) != 2 + len(states) or len(body.output) < 1 + len(states):
        counts = f"{len(body.input)} inputs and {len(body.output)} outputs"
        raise ShapeError(f"a body with {counts} for {len(states)} values that are carried")
    for k, what in ((0, "a number of iterations"), (1, "a condition")):
        if (given := node.optional(k)) is not None and given.type.size != 1:
            raise ShapeError(f"{what} of type {given.type}")
    count, start = node.maybe_constant(0), node.maybe_constant(1)
    steps = None if count is None else max(0, int(count.reshape(-1)[0]))
    begins = node.optional(1) is None or (start is not None and bool(start.reshape(-1)[0]))
    if start is not None and not begins:
        steps, begins = 0, True
    is_known = begins and (steps is not None or node.optional(0) is None)
    few = node.values.unroll // max(1, nodes_in(body))
    if is_known and steps != 0 and (steps is None or steps <= few):
        found, trial = node.values.attempt(lambda: _unrolled(node, body, states, steps, few), node)
        if found is not None and not trial.found:
            return found
    found, trial = node.values.attempt(lambda: as_loop(node, body, states, steps if begins else None), node)
    if found is not None and not trial.found:
        return found
    if is_known and steps != 0:
        return _unrolled(node, body, states, steps, None) or []
    node.values.report(trial)
    return [None] * node.outputs


def nodes_in(graph: GraphProto) -> int:
    """Nodes of a graph, those of the graphs inside among them."""
    return len(graph.node) + sum(nodes_in(a.g) for n in graph.node for a in n.attribute if a.HasField("g"))


def _unrolled(
    node: Node, body: GraphProto, states: Sequence[Op], count: int | None, most: int | None
) -> Sequence[Op | None] | None:
    """The results with every iteration written out; None where there are more than `most`.

    Where nobody says how many may be, more than the budget allows are an error.
    """
    limit = node.values.budget.steps if most is None else most
    scanned: list[list[Op]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    step, going = 0, True
    while going and (count is None or step < count):
        if step >= limit:
            if most is not None:
                return None
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
            raise Unsupported("the condition of the next iteration depends on the model's inputs", BOUND)
        going = bool(known.reshape(-1)[0])
        step += 1
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
    steps = _fixed(lengths.pop())
    scanned = [_flipped(_first(x, a)) if b else _first(x, a) for x, a, b in zip(inputs, axes, backward, strict=True)]
    values = _scanned(node, body, states, scanned, steps)
    if values is None:
        return [None] * node.outputs  # what was refused inside has been reported
    rows = values[len(states) :]
    ordered = [_flipped(y) if b else y for y, b in zip(rows, out_backward, strict=True)]
    return [*values[: len(states)], *(_last(y, a) for y, a in zip(ordered, out_axes, strict=True))]


@onnx("Scan", since=8)
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
    return [_stacked(values, 0) for values in zip(*rows, strict=True)]


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
    return [*states, *(_stacked(values, 0) for values in rows)]


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


def _stacked(values: Sequence[Op], axis: int) -> Op:
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
