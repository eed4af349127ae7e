"""What passes ask about constants: which ops depend on no input, and which value a constant has."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Constant, Input, Item, Splat


def constant_ops(graph: Graph) -> frozenset[str]:
    """Digests of all ops that depend on no input: constants, splats and constant expressions."""
    found: set[str] = set()
    for op in graph.ops:
        if (
            not isinstance(op, Input)
            and not op.symbols
            and not op.body_names
            and all(x.digest in found for x in op.operands)
        ):
            found.add(op.digest)
    return frozenset(found)


def compute_ops(graph: Graph) -> tuple[Op, ...]:
    """The ops that a run of the program computes: no inputs, constants, constant expressions or parts of results."""
    constant = constant_ops(graph)
    return tuple(op for op in graph.ops if not isinstance(op, (Input, Item)) and op.digest not in constant)


def read_constants(graph: Graph, steps: Sequence[Op] | None = None) -> tuple[Op, ...]:
    """The constants and constant expressions that ops read or the graph gives: what a program has to store.

    Each once, in order of first use; `evaluate_ops((op,), {})` gives its elements.

    Args:
        graph: The graph.
        steps: The ops that read; `compute_ops(graph)` by default.
    """
    constant = constant_ops(graph)
    readers = compute_ops(graph) if steps is None else steps
    read = (*(x for op in readers for x in op.operands), *graph.outputs)
    return tuple({op.digest: op for op in read if op.digest in constant}.values())


def without_names(graph: Graph) -> Graph:
    """The graph with constants that are no parameters any more: those of equal values are one."""
    if not any(isinstance(op, Constant) and op.name for op in graph.ops):
        return graph
    return graph.rewrite(lambda op: Constant(op.tensor) if isinstance(op, Constant) else None)


def number(op: Op) -> bool | int | float | None:
    """The one value of all elements of a splat or of a constant with one element, else None."""
    match op:
        case Splat(value=value):
            return value
        case Constant(tensor=tensor) if tensor.type.size == 1:
            return tensor.array().reshape(-1)[0].item()
        case _:
            return None


def is_number(op: Op, value: float) -> bool:
    """Whether every element equals `value`; zeros differ by their sign."""
    found = number(op)
    return found is not None and found == value and math.copysign(1.0, found) == math.copysign(1.0, value)


def is_near(op: Op, value: float, tolerance: float = 1e-4) -> bool:
    """Whether every element is `value` up to a relative difference: exporters write √½ with few or many digits."""
    found = number(op)
    return found is not None and abs(found - value) <= tolerance * abs(value)


def prefix_shape(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """A shape with ones in front, up to a rank."""
    return (*(1,) * (rank - len(shape)), *shape)
