"""How many nodes a model comes to once its functions are written out, before any is read.

Functions that call each other twice double in number with every level: a file of a few kilobytes can stand for more
nodes than there is memory for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from dlc.base.diagnostics import Location, error
from dlc_frontend_onnx.budget import Budget

HELP = "inline the functions before exporting, or export a smaller model"

Key = tuple[str, str, str]
"""Domain, the standard one as "", operator, and which of several functions of that name."""


def domain_of(proto: onnx.NodeProto | onnx.FunctionProto | onnx.OperatorSetIdProto) -> str:
    """The domain of a node, function or operator set, the standard one as ""."""
    return "" if proto.domain == "ai.onnx" else proto.domain


def key_of(node: onnx.NodeProto) -> Key:
    """What a node calls."""
    return domain_of(node), node.op_type, node.overload


def functions_of(model: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """The model's own functions."""
    return {(domain_of(f), f.name, f.overload): f for f in model.functions}


def versions_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Operator sets by domain; of several versions of one the newest."""
    found: dict[str, int] = {}
    for o in imports:
        domain = domain_of(o)
        found[domain] = max(found.get(domain, 0), o.version)
    return found


def check_calls(
    nodes: Iterable[onnx.NodeProto], functions: Mapping[Key, onnx.FunctionProto], source: str, budget: Budget
) -> None:
    """Raise DlcError when functions call themselves, or come to too many nodes."""
    sizes: dict[Key, int] = {}
    for key in functions:
        _measure(key, functions, sizes, source)
    total = sum(sizes.get(called, 0) for called in calls(nodes))
    budget.check("nodes", total, "calls of the model's functions come to", Location(source))


def _measure(root: Key, functions: Mapping[Key, onnx.FunctionProto], sizes: dict[Key, int], source: str) -> None:
    """Add the number of nodes of a function, and of all that it calls, to `sizes`."""
    active: set[Key] = set()
    stack = [(root, False)]
    while stack:
        key, done = stack.pop()
        called = list(calls(functions[key].node))
        if done:
            active.discard(key)
            sizes[key] = sum(1 + sizes.get(c, 0) for c in called)
        elif key not in sizes:
            active.add(key)
            stack.append((key, True))
            for c in dict.fromkeys(called):
                if c in active:
                    message = f"function {'.'.join(filter(None, c))} calls itself"
                    raise error("recursion", message, location=Location(source), help=HELP)
                if c in functions and c not in sizes:
                    stack.append((c, False))


def calls(nodes: Iterable[onnx.NodeProto]) -> Iterator[Key]:
    """What nodes call, those in branches among them."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield key_of(node)
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                pending += a.g.node
