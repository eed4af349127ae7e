"""The numpy interpreter of graphs: the reference semantics of the language, and the engine of constant folding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc.graph.graph import Graph, toposort
from dlc.graph.op import Op, as_result
from dlc.graph.structure import Input
from dlc.graph.tensor import Array


def _value(op: Op, args: Sequence[Any]) -> Any:
    return op.evaluate(*args)


def evaluate_ops(
    outputs: Sequence[Op], known: Mapping[Op, Array], value: Callable[[Op, Sequence[Any]], Any] = _value
) -> list[Any]:
    """The values of ops, given the values of others. Intermediate arrays are dropped after their last use.

    `value` computes one op, for those who want it computed otherwise: with perturbed operands, say.
    """
    order = toposort(outputs, known)
    last = {x.digest: k for k, op in enumerate(order) for x in op.operands}
    keep = {o.digest for o in outputs}
    values: dict[str, Any] = {op.digest: v for op, v in known.items()}
    for k, op in enumerate(order):
        with np.errstate(all="ignore"):
            got = value(op, [values[x.digest] for x in op.operands])
        several = len(op.types) > 1
        values[op.digest] = tuple(map(as_result, got, op.types)) if several else as_result(got, op.type)
        for x in op.operands:
            if last[x.digest] == k and x.digest not in keep:
                values.pop(x.digest, None)
    return [values[o.digest] for o in outputs]


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a graph by name, for inputs by name.

    Raises:
        KeyError: an input is missing.
    """
    known: dict[Op, Array] = {i: as_result(feeds[i.name], i.type) for i in graph.inputs}
    return dict(zip(graph.names, evaluate_ops(graph.outputs, known), strict=True))


def is_constant(op: Op, memo: dict[str, bool] | None = None) -> bool:
    """Whether an op depends on no input; `memo` carries answers between calls. Ends at the first input it comes to."""
    memo = {} if memo is None else memo
    stack = [op]
    while stack:
        x = stack[-1]
        unknown = None
        constant = not isinstance(x, Input)
        for operand in x.operands if constant else ():
            known = memo.get(operand.digest)
            if known is None:
                unknown = operand
            elif not known:
                constant = False
                break
        if constant and unknown is not None:
            stack.append(unknown)
            continue
        memo[x.digest] = constant
        stack.pop()
    return memo[op.digest]
