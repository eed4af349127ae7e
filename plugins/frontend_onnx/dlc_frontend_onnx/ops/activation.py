"""Activations with parameters; those without are in `math`."""

from __future__ import annotations

from dlc.base.types import f32
from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx


@onnx("PRelu")
def prelu(node: Node) -> Op:
    """y = x or slope · x; before version 7 a slope for each channel is a list."""
    x, slope = node.x(0), node.x(1)
    if node.version < 7 and len(slope.shape) == 1 and len(x.shape) > 1:
        slope = reshaped(slope, (*slope.shape, *(1,) * (len(x.shape) - 2)))
    return e.PRelu(x, slope)


@onnx("LeakyRelu")
def leaky_relu(node: Node) -> Op:
    """y = x or alpha · x."""
    return e.LeakyRelu(node.x(), alpha=node.float("alpha", 0.01))


@onnx("Elu")
def elu(node: Node) -> Op:
    """y = x or alpha · (eˣ - 1)."""
    return e.Elu(node.x(), alpha=node.float("alpha", 1.0))


@onnx("Celu")
def celu(node: Node) -> Op:
    """y = max(0, x) + min(0, alpha · (e^(x/alpha) - 1))."""
    return e.Celu(node.x(), alpha=node.float("alpha", 1.0))


@onnx("Selu")
def selu(node: Node) -> Op:
    """Scaled exponential linear unit."""
    default = e.Selu(node.x())
    return e.Selu(node.x(), alpha=node.float("alpha", default.alpha), gamma=node.float("gamma", default.gamma))


@onnx("HardSigmoid")
def hard_sigmoid(node: Node) -> Op:
    """y = max(0, min(1, alpha · x + beta))."""
    return e.HardSigmoid(node.x(), alpha=node.float("alpha", 0.2), beta=node.float("beta", 0.5))


@onnx("ThresholdedRelu")
def thresholded_relu(node: Node) -> Op:
    """y = x where x > alpha."""
    return e.ThresholdedRelu(node.x(), alpha=node.float("alpha", 1.0))


@onnx("Shrink")
def shrink(node: Node) -> Op:
    """y = x + bias below -lambd, x - bias above lambd, else 0."""
    x = node.x() if node.x().dtype.is_float else cast(node.x(), f32)  # limit and bias need not be whole
    limit, bias = node.float("lambd", 0.5), node.float("bias", 0.0)
    low, high = e.Less(x, number(-limit, x)), e.Greater(x, number(limit, x))
    inner = e.Where(high, e.Sub(x, number(bias, x)), number(0, x))
    return cast(e.Where(low, e.Add(x, number(bias, x)), inner), node.x().dtype)


@onnx("Swish", since=24)
def swish(node: Node) -> Op:
    """y = x · sigmoid(alpha · x)."""
    return _swish(node.x(), node.float("alpha", 1.0))


@onnx("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> Op:
    """y = x · sigmoid(alpha · x)."""
    return _swish(node.x(), node.float("alpha", 1.702))


def _swish(x: Op, alpha: float) -> Op:
    return e.Mul(x, e.Sigmoid(x if alpha == 1.0 else e.Mul(x, number(alpha, x))))


@onnx("Gelu", since=20)
def gelu(node: Node) -> Op:
    """Gaussian error linear unit, exact or by tanh."""
    return e.Gelu(node.x(), approximate="tanh" if node.text("approximate", "none") == "tanh" else "none")


@onnx("Gelu")
@onnx("Gelu", domain=MICROSOFT)
def exact_gelu(node: Node) -> Op:
    """onnxruntime's Gelu; its optimizer also writes it into the standard domain of older models."""
    return e.Gelu(node.x())


@onnx("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> Op:
    """Gelu of x + bias by tanh."""
    bias = node.optional(1)
    return e.Gelu(node.x() if bias is None else e.Add(node.x(), bias), approximate="tanh")


@onnx("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> Op:
    """Gelu of x + bias."""
    return e.Gelu(e.Add(node.x(0), node.x(1)))
