"""A graph of AOTAutograd → a program of dlc, called with tensors in order."""

# pyright: basic
# PyTorch's own types are partly unknown.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from dlc import Source, Type, build
from dlc.graph import Constant, Graph, Input, Op, print_graph
from dlc.graph.text import is_inline
from dlc_frontend_torch.calls import Call
from dlc_frontend_torch.fx import program_of
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.nodes import Program, Ref
from dlc_frontend_torch.unsupported import Refusals, Unsupported


def _read(module: GraphModule) -> Program:
    return program_of(module, "graph", lambda node: attribute(module, str(node.target)))


def attribute(module: torch.nn.Module, path: str) -> Any:
    """An attribute by its path."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _imported(found: Program) -> Importer:
    values: dict[str, Any] = {name: Input(name, of) for name, of in found.inputs if isinstance(of, Type)}
    values |= {p.value: Input(p.value, p.type) for p in found.parameters}
    importer = Importer(Refusals("torch.compile"), values, found.types)
    importer.run(found.nodes)
    return importer


def refused_nodes(module: GraphModule) -> dict[str, str]:
    """Name of a node that dlc does not import → operator and reason. All nodes are tried."""
    try:
        importer = _imported(_read(module))
    except Unsupported as problem:
        return {n.name: problem.reason for n in module.graph.nodes if n.op == "call_function"}
    found: dict[str, str] = {}
    for (target, reason, _), nodes in importer.refusals.found.items():
        found |= {n.name: f"{target}: {reason}" for n in nodes}
    return found | {name: "it reads what was refused" for name in importer.refused if name not in found}


@dataclass(frozen=True)
class Compiled:
    """A program in the place of a graph."""

    call: Call | None
    """None where the graph computes nothing."""
    inputs: tuple[tuple[str, int], ...]
    """Names of the program's inputs, and which arguments they are."""
    fixed: dict[str, torch.Tensor]
    """Inputs that are no arguments: attributes of the graph, and large constants."""
    results: tuple[tuple[str, Any], ...]
    """For each result the name of an output, the number of an argument, or a constant."""

    @classmethod
    def of(cls, module: GraphModule, target: str, settings: Sequence[str], cache_dir: str | None) -> Compiled:
        """Build a graph all of whose nodes are supported. Raises DlcError."""
        found = _read(module)
        importer = _imported(found)
        importer.refusals.check()
        order = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        attributes = {n.name: attribute(module, str(n.target)) for n in module.graph.nodes if n.op == "get_attr"}
        outputs: dict[str, Op] = {}
        results = tuple(_result(ref, importer, order, attributes, outputs) for _, ref in found.outputs)
        if not outputs:
            return cls(None, (), {}, results)
        graph, fixed = _without_constants(Graph((), tuple(outputs.values()), tuple(outputs)))
        inputs = [op for op in graph.ops if isinstance(op, Input)]
        place = {name: k for k, name in enumerate(order)}
        inputs.sort(key=lambda i: (place.get(i.name, len(place)), i.name))
        graph = Graph(tuple(inputs), graph.outputs, graph.names)
        source = Source(data=print_graph(graph).encode(), label="torch.dlc")
        program: Any = build(source, target, settings=["dlc.weights=refuse", *settings], cache_dir=cache_dir)
        kept = {i.name: attributes[i.name].detach() for i in inputs if i.name in attributes} | fixed
        own = tuple((i.name, place[i.name]) for i in inputs if i.name in place)
        return cls(Call(program), own, kept, results)

    def __call__(self, *args: torch.Tensor) -> tuple[Any, ...]:
        """The graph's results, from its arguments."""
        made: dict[str, torch.Tensor] = {}
        if self.call is not None:
            given = {name: args[k] for name, k in self.inputs}
            made = self.call(given | self.fixed if self.fixed else given)
        return tuple(
            made[name] if name else args[what.at] if isinstance(what, At) else what for name, what in self.results
        )


@dataclass(frozen=True)
class At:
    """An argument that is a result."""

    at: int


def _result(
    ref: Any, importer: Importer, order: Sequence[str], attributes: dict[str, Any], outputs: dict[str, Op]
) -> tuple[str, Any]:
    """(name of an output, "") or ("", what it is); makes outputs of ops."""
    if not isinstance(ref, Ref):
        return "", ref
    if ref.name in order:
        return "", At(order.index(ref.name))
    if ref.name in attributes:
        return "", attributes[ref.name]
    value = importer.values[ref.name]
    if not isinstance(value, Op):
        return "", value
    name = next((n for n, op in outputs.items() if op is value), f"out{len(outputs)}")
    outputs[name] = value
    return name, None


def _without_constants(graph: Graph) -> tuple[Graph, dict[str, torch.Tensor]]:
    """The graph with constants that its text would not hold as inputs, and their values."""
    large = [op for op in graph.ops if isinstance(op, Constant) and not is_inline(op.tensor)]
    inputs: dict[Op, Op] = {op: Input(f"constant{k}", op.type) for k, op in enumerate(large)}
    values = {f"constant{k}": torch.from_numpy(op.tensor.array().copy()) for k, op in enumerate(large)}
    return (graph.substitute(inputs) if inputs else graph), values
