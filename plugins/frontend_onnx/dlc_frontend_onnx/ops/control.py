"""Control flow: what is known when the model is read is resolved, short loops are written out, the rest runs as it is.

A loop of a known number of iterations is written out where that comes to few nodes (`onnx.unroll`), or where its
iterations differ in shape; else it is a `Scan`. One that ends at run time is a `Loop`, which has no result with a row
for every iteration. An `If` on a condition of run time runs one branch, or selects where both are cheap.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto

from dlc.base.polynomials import LONGEST
from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.checked import Checked
from dlc_frontend_onnx.iterations import BOUND, as_loop, nodes_in, stacked
from dlc_frontend_onnx.joined import fit, joined
from dlc_frontend_onnx.node import Node, cast, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.regions import branch
from dlc_frontend_onnx.rules import as_written, onnx
from dlc_frontend_onnx.sequences import Resolved, SequenceValue, kind_of
from dlc_frontend_onnx.terms import Term, as_op, clip, where
from dlc_frontend_onnx.unsupported import Unsupported


@onnx("If")
@as_written
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
    found: dict[tuple[Op, Op], Op] = {}
    for a, b in flat:
        resolved = isinstance(a, Resolved) or isinstance(b, Resolved)
        if not resolved and a.type == b.type:
            continue
        if resolved or not fit(a, b):
            kinds = f"{kind_of(a)} and {kind_of(b)}"
            help = "let both branches give results of one type and number of dimensions"
            raise Unsupported(f"the condition is computed from the model's inputs, and the branches give {kinds}", help)
        found[a, b] = joined(condition, a, b, lambda mask: node.values.found_size(node.proto.output[0], mask))
    differing = [pair for pair in dict.fromkeys(flat) if pair[0] != pair[1] and pair not in found]
    if differing:
        then, otherwise = ([pair[k] for pair in differing] for k in (0, 1))
        found |= dict(zip(differing, branch(condition, then, otherwise, node.values.around()), strict=True))
    results: list[Op] = []
    for a, b in pairs:
        if isinstance(a, SequenceValue) and isinstance(b, SequenceValue):
            results.append(SequenceValue(tuple(found.get(p, p[0]) for p in zip(a.xs, b.xs, strict=True))))
        else:
            results.append(found.get((a, b), a))
    return results


@onnx("Loop")
@as_written
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
    rows = node.declared[len(states) : len(body.output) - 1]
    if node.optional(0) is not None and (steps is None or not begins) and any(shape is not None for shape in rows):
        return _of_declared_rows(node, body, states, rows)
    is_known = begins and (steps is not None or node.optional(0) is None)
    return _repeated(node, body, states, steps, begins, is_known)


def _of_declared_rows(
    node: Node, body: GraphProto, states: Sequence[Op], rows: Sequence[tuple[int, ...] | None]
) -> Sequence[Op | None]:
    """A loop whose number of iterations is known when it runs, with results for each: the model declares how many."""
    lengths = {shape[0] for shape in rows if shape}
    if len(lengths) != 1:
        raise ShapeError(f"results with a row for every iteration are declared as {', '.join(map(str, rows))}")
    steps = lengths.pop()
    made = _repeated(node, body, states, steps, True, True)
    length = next((op.shape[:1] for op in made[len(states) :] if op is not None), (steps,))
    if length != (steps,):
        raise Unsupported(f"{steps} iterations are declared, and the condition ends the loop after {length[0]}", BOUND)
    asked = clip(Term(cast(reshaped(node.x(0), ()), i64)), 0, LONGEST)
    if (begins := node.optional(1)) is not None:
        asked = where(Term(reshaped(begins, ())), asked, 0)
    if any(isinstance(op, Resolved) for op in made):
        raise Unsupported("a sequence or an optional value is carried from one iteration to the next", BOUND)
    name = node.values.size_name(f"{node.name}_iterations")
    return [None if op is None else Checked(op, as_op(asked, i64), name, steps, steps) for op in made]


def _repeated(
    node: Node, body: GraphProto, states: Sequence[Op], steps: int | None, begins: bool, is_known: bool
) -> Sequence[Op | None]:
    """The results of a loop that is written out where that is short, else as it is.

    Args:
        node: The loop.
        body: What is repeated.
        states: What is carried at first.
        steps: The number of iterations, if it is known.
        begins: Whether the loop is known to begin.
        is_known: Whether the condition of the body alone may end the loop before `steps`.
    """
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
    return [*states, *(stacked(values, 0) for values in scanned)]
