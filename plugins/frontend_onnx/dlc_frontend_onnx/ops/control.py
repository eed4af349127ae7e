"""Control flow whose decisions are known when the model is read."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.graph import Op
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.rules import onnx


@onnx("If")
def if_(node: Node) -> Sequence[Op | None]:
    """The branch that a constant condition chooses."""
    chosen = bool(node.constant(0, "the condition").reshape(-1)[0])
    node.ignore("then_branch", "else_branch")
    return node.values.subgraph(node.graph("then_branch" if chosen else "else_branch"), node)
