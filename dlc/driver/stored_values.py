"""What a backend's types (`Backend.stores`) cannot hold of the constants that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlc.api.plan import Plan
from dlc.base.narrowing import Record, Stored, loss_of
from dlc.graph.constants import read_constants
from dlc.graph.evaluate import evaluate_ops
from dlc.graph.structure import Constant, Input
from dlc.graph.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlc.api.backend import Backend
    from dlc.base.report import Report
    from dlc.base.types import Array
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op


def tell_stored(state: Graph | Plan, backend: Backend, report: Report) -> None:
    """Warn of constants, and first values of weights, that the types in which a backend stores them cannot hold."""
    parts = [(p.graph, p.steps) for p in state.plans] if isinstance(state, Plan) else [(g, None) for g in state.graphs]
    record, owners = Record(), dict[str, tuple[str, tuple[str, ...]]]()
    for graph, steps in parts:
        for op in (*graph.inputs, *read_constants(graph, steps)):
            dtype = backend.stores.get(op.dtype)
            values = None if dtype is None or op.digest in owners else _values(op)
            if dtype is None or values is None:
                continue
            owners[op.digest] = _name(graph, op)
            if (loss := loss_of(values, dtype)) is not None:
                named = isinstance(op, Input | Constant) and bool(op.name)
                record.found.append(Stored(op.digest, "" if named else f"a constant {op.type}", values, loss))
    record.tell(report, owners.__getitem__, backend.name)


def _values(op: Op) -> Array | None:
    """None: nobody knows before the program runs."""
    if not isinstance(op, Input):
        return evaluate_ops((op,), {})[0]
    return op.initial.array() if isinstance(op.initial, Tensor) else None


def _name(graph: Graph, op: Op) -> tuple[str, tuple[str, ...]]:
    """What users call a constant, and nodes that read it."""
    readers: Sequence[Any] = () if graph.origin(op) else [r for r in graph.ops if op in r.operands]
    nodes = graph.origin(op) or tuple(dict.fromkeys(name for r in readers for name in graph.origin(r)))
    name = op.name if isinstance(op, Input | Constant) else ""
    return name or ", ".join(nodes) or str(op.type), nodes
