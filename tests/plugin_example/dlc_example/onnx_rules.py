"""Import rules: ONNX operators of the domain org.example as ops."""

from __future__ import annotations

from dlc_frontend_onnx.api import Node, Unsupported, number, onnx, reshaped

from dlc import Op
from dlc.ops.elementwise import Mul, Sigmoid
from dlc.ops.shape import Expand
from dlc_example.swish import Swish

DOMAIN = "org.example"


@onnx("Swish", domain=DOMAIN)
def swish_by_attribute(node: Node) -> Op:
    """Version 1: y = x · sigmoid(beta · x), beta is a number."""
    x, beta = node.x(), node.float("beta", 1.0)
    return Swish(x) if beta == 1.0 else Swish(x, Expand(number(beta, x), to=x.shape[-1:]))


@onnx("Swish", since=2, domain=DOMAIN)
def swish(node: Node) -> Op:
    """Version 2: beta is an operand, a number for each channel; it may be left out."""
    beta = node.optional(1)
    return Swish(node.x(), None if beta is None else reshaped(beta, (beta.type.size,)))


@onnx("Gate", domain=DOMAIN)
def gate(node: Node) -> Op:
    """y = x · sigmoid(g)."""
    kind = node.text("kind", "sigmoid")
    if kind != "sigmoid":
        raise Unsupported(f"a gate of kind {kind}", "sigmoid is supported")
    return Mul(node.x(0), Sigmoid(node.x(1)))
