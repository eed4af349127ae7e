"""Graphs as records hold them: a node per op that depends on an input, and what each reads.

Constants and what depends on nothing else are left out: they are weights, and would be most of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlc.api.plan import Plan
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.kernel.kernel import Kernel
from dlc.kernel.work import applied
from dlc.record.record import Layer, Node


def nodes_of(state: Graph | Plan) -> tuple[Node, ...]:
    """A graph, or that of a plan, whose steps are layers."""
    graph = state.graph if isinstance(state, Plan) else state
    steps = {s.digest: k for k, s in enumerate(state.steps)} if isinstance(state, Plan) else {}
    memo: dict[str, bool] = {}
    shown = [op for op in graph.ops if not isinstance(op, Item) and not is_constant(op, memo)]
    numbers = {op.digest: k for k, op in enumerate(shown)}
    given: dict[str, list[str]] = {}
    for name, out in zip(graph.names, graph.outputs, strict=True):
        given.setdefault(_whole(out).digest, []).append(name)
    return tuple(
        Node(
            kind_of(op),
            (op.name,) if isinstance(op, Input) else tuple(graph.origin(op)),
            ", ".join(map(str, op.types)),
            tuple(dict.fromkeys(numbers[x.digest] for x in map(_whole, op.operands) if x.digest in numbers)),
            (steps[op.digest],) if op.digest in steps else (),
            tuple(given.get(op.digest, ())),
        )
        for op in shown
    )


def _whole(op: Op) -> Op:
    """One result of several stands for all that the op gives."""
    return op.of if isinstance(op, Item) else op


def kind_of(op: Op) -> str:
    """What an op computes, in a word or two."""
    match op:
        case Input():
            return f"input {op.role}" if op.role != "data" else "input"
        case Call():
            return operation(op.body)
        case _:
            return op.text_name


def operation(kernel: Kernel) -> str:
    """What a kernel does, in a few words: its reductions and functions."""
    words: dict[str, None] = {}
    for nest in kernel.nests:
        if nest.reduce:
            words[f"{nest.reduce}-reduce"] = None
        words.update(dict.fromkeys(sorted(e.fn for e in applied(nest.body))))
    return ", ".join(words) or "copy"


def linked(nodes: Sequence[Node], layers: Sequence[Layer]) -> tuple[Node, ...]:
    """Nodes of a model with the numbers of the layers that compute them, which name them."""
    by_name: Mapping[str, dict[int, None]] = {name: {} for node in nodes for name in node.names}
    for layer in layers:
        for name in layer.nodes:
            if name in by_name:
                by_name[name][layer.number] = None
    return tuple(
        replace(n, layers=tuple(dict.fromkeys(k for name in n.names for k in by_name[name]))) if n.reads else n
        for n in nodes
    )
