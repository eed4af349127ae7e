"""What a list of nodes is imported with, and what the nodes of a function or a branch give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType

import onnx

from dlc.base.diagnostics import ExitCode, error
from dlc.graph import Constant, Input, Op
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.rules import ImportRule
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

MAX_ORIGINS = 16

Scope = dict[str, Op | None]
"""Value by name; None for a value whose node was refused."""


@dataclass(frozen=True)
class Frame:
    """What a list of nodes is imported with: one per function or branch that is being read."""

    scope: Scope
    """Values by name; gets the nodes' outputs."""
    versions: Mapping[str, int]
    """Operator sets in force."""
    prefix: str = ""
    """Of the names of nodes inside a branch."""
    origin: str = ""
    """The name that all nodes go by; their own when empty."""
    attributes: Mapping[str, onnx.AttributeProto] | None = None
    """Values for attributes that refer to those of a calling node."""
    nodes: Sequence[onnx.NodeProto] = ()
    """The nodes so far, in topological order, those around a branch among them."""


def check_result(result: object, rule: ImportRule, title: str) -> None:
    """That a rule of another package gave what rules give."""
    parts: tuple[object, ...] = tuple(result) if isinstance(result, (tuple, list)) else (result,)  # pyright: ignore
    wrong = next((p for p in parts if not isinstance(p, (Op, NoneType))), result if result is None else None)
    if wrong is None and result is not None:
        return
    message = f"plugin {title}: its import rule for {rule.domain}.{rule.operator} returned {type(wrong).__name__}"
    help = "a rule returns an op, or a tuple with an op or None for each output"
    raise error("plugin", message, help=help, exit_code=ExitCode.PLUGIN)


def results_of(scope: Scope, names: Sequence[str], node: Node) -> tuple[Op | None, ...]:
    """The results of a function or branch by the names of its outputs."""
    for k, name in enumerate(names):
        if name not in scope and node.wants(k):
            raise Unsupported(f"its result {name} is not computed", MALFORMED)
    return tuple(scope.get(name) for name in names)


def attributes_of(
    proto: onnx.NodeProto, caller: Mapping[str, onnx.AttributeProto] | None
) -> dict[str, onnx.AttributeProto]:
    """The node's attributes; one that refers to the caller's takes its value, or is absent with it."""
    out: dict[str, onnx.AttributeProto] = {}
    for a in proto.attribute:
        if not a.ref_attr_name:
            out[a.name] = a
        elif caller is not None and a.ref_attr_name in caller:
            out[a.name] = caller[a.ref_attr_name]
    return out


def remember(origins: dict[str, tuple[str, ...]], result: Op, before: Iterable[Op | None], name: str) -> None:
    """Note a node as the origin of every op that it made of those before."""
    known = {x.digest for x in before if x is not None}
    if result.digest in known or isinstance(result, Input):
        return
    found = origins.get(result.digest, ())
    if found and name not in found:
        origins[result.digest] = (*found, name)[:MAX_ORIGINS]
    stack = [result]
    while stack:
        op = stack.pop()
        if op.digest in known or op.digest in origins or isinstance(op, (Input, Constant)):
            continue
        origins[op.digest] = (name,)
        stack += op.operands
