"""What plugins with import rules use: the mark of a rule, the node that it reads, and how it refuses one.

from dlc_frontend_onnx.api import Node, Unsupported, onnx

@onnx("Swish", domain="org.example")
def swish(node: Node) -> Op: ...
"""

from __future__ import annotations

from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

__all__ = ["Node", "Unsupported", "cast", "constant", "number", "onnx", "reshaped"]
