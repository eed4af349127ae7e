"""Operators that onnxruntime's training tools write: derivatives of other operators, and the update by SGD.

Their first operand is the cotangent dY of the operator's result. Where the others are the operator's own operands, the
derivative is that of dlc's op; where its result stands instead of them, it is written out here. In the operator set of
the standard, where some tools write them, they are read with `lenient` only.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.types import Type, i64
from dlc.graph import Op, Splat
from dlc.graph.gradient import gradients
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import index, linear, loss, reduce
from dlc.ops.standardize import summed
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.loss import options
from dlc_frontend_onnx.ops.nn import window
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx


def _same(*operands: Op) -> None:
    if len({x.shape for x in operands}) > 1:
        raise ShapeError(f"operands of types {', '.join(str(x.type) for x in operands)}, which should have one shape")


@onnx("GeluGrad", "FastGeluGrad", "BiasGeluGrad_dX", "BiasFastGeluGrad_dX", domain=MICROSOFT)
def gelu_grad(node: Node) -> Op:
    """dX = dY · Gelu'(X), of X + B where there is a bias."""
    x, fast = node.x(1), "Fast" in node.proto.op_type
    if (bias := node.optional(2)) is not None:
        x = e.Add(x, bias)
    _same(node.x(0), x)
    (dx,) = gradients((e.Gelu(x, approximate="tanh" if fast else "none"),), (node.x(0),), (x,))
    return dx


@onnx("ReluGrad", "SigmoidGrad", "TanhGrad", domain=MICROSOFT)
def of_result(node: Node) -> Op:
    """From the result Y: dX = dY where Y > 0; dY · Y · (1 - Y); dY · (1 - Y²)."""
    dy, y = node.x(0), node.x(1)
    _same(dy, y)
    match node.proto.op_type:
        case "ReluGrad":
            return e.Where(e.Greater(y, number(0, y)), dy, number(0, dy))
        case "SigmoidGrad":
            return e.Mul(dy, e.Mul(y, e.Sub(number(1, y), y)))
        case _:
            return e.Mul(dy, e.Sub(number(1, y), e.Mul(y, y)))


@onnx("SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13", domain=MICROSOFT)
def softmax_grad(node: Node) -> Op:
    """From the result Y: dX = Y · (dY - Σ dY · Y), and of the logarithm dX = dY - exp(Y) · Σ dY.

    The sum is along `axis`; before version 13, along all dimensions from it on.
    """
    dy, y = node.x(0), node.x(1)
    _same(dy, y)
    late = node.proto.op_type.endswith("_13")
    axis = node.axis(default=-1 if late else 1)
    axes = (axis,) if late else tuple(range(axis, len(y.shape)))
    if node.proto.op_type.startswith("Log"):
        return e.Sub(dy, e.Mul(e.Exp(y), reduce.ReduceSum(dy, axes=axes, keep=True)))
    return e.Mul(y, e.Sub(dy, reduce.ReduceSum(e.Mul(dy, y), axes=axes, keep=True)))


@onnx("LayerNormalizationGrad", domain=MICROSOFT)
def layer_norm_grad(node: Node) -> tuple[Op, Op, Op]:
    """With x̂ = (X - mean) · s: dX = s · (g - mean g - x̂ · mean(g · x̂)) for g = dY · scale; Σ dY · x̂; Σ dY.

    Operands are dY, X, scale, mean and s. Some tools have a bias in the place of the last two, which are computed with
    `epsilon` then.
    """
    node.ignore("stash_type")
    dy, x, scale = node.x(0), node.x(1), node.x(2)
    _same(dy, x)
    axis = node.axis(default=-1, rank=len(x.shape))
    axes = tuple(range(axis, len(x.shape)))
    if scale.shape != x.shape[axis:]:
        raise ShapeError(f"a scale of type {scale.type} for the dimensions of {x.type} from {axis} on")

    def mean(of: Op) -> Op:
        return reduce.ReduceMean(of, axes=axes, keep=True)

    if node.optional(4) is not None:
        statistics = (*x.shape[:axis], *(1,) * len(axes))
        node.float("epsilon")
        centred, inverse = e.Sub(x, reshaped(node.x(3), statistics)), reshaped(node.x(4), statistics)
    else:
        node.quirk("it has no operands for mean and inverse deviation", "with both computed from X")
        centred = e.Sub(x, mean(x))
        variance = mean(e.Mul(centred, centred))
        inverse = e.Reciprocal(e.Sqrt(e.Add(variance, number(node.float("epsilon", 1e-5), variance))))
    standard, g = e.Mul(centred, inverse), e.Mul(dy, scale)
    dx = e.Mul(inverse, e.Sub(e.Sub(g, mean(g)), e.Mul(standard, mean(e.Mul(g, standard)))))
    return dx, summed(e.Mul(dy, standard), axes, scale), summed(dy, axes, scale)


@onnx("SoftmaxCrossEntropyLossGrad", domain=MICROSOFT)
def cross_entropy_grad(node: Node) -> Op:
    """dX = dY · (exp(L) - onehot(labels)), weighted and divided as `reduction` says, from L = ln softmax(X).

    ln softmax(L) is L, so that is the derivative of the loss of L by L.
    """
    reduction, ignored = options(node)
    given = [node.x(k) for k in range(len(node.inputs))]
    seed = None
    if len(given) == 2:
        node.quirk("it has no cotangent of the loss", "with 1 for it")
    else:
        seed, *given = given
    logarithms, labels, *weights = given
    if isinstance(logarithms, loss.CrossEntropy):
        node.quirk("its operand is the loss, not the logarithms of probabilities", "with those of the loss")
        logarithms = logarithms.scores
    y = loss.CrossEntropy(
        logarithms, labels, weights[0] if weights else None, ignore_index=ignored, reduction=reduction
    )
    seed = Splat(1.0, y.type) if seed is None else reshaped(seed, y.shape)
    (dx,) = gradients((y,), (seed,), (logarithms,))
    return dx


@onnx("ConvGrad", domain=MICROSOFT)
def conv_grad(node: Node) -> Sequence[Op | None]:
    """dX, dW and db of a convolution."""
    dy, x, w = node.x(0), node.x(1), node.x(2)
    node.ints("kernel_shape")
    stride, pads, dilation = window(node, w.shape[2:], x)
    y = linear.Conv(x, w, None, stride=stride, pads=pads, dilation=dilation, group=node.int("group", 1))
    _same(dy, y)
    dx, dw = gradients((y,), (dy,), (x, w))
    channels = tuple(d for d in range(len(dy.shape)) if d != 1)
    return dx, dw, reduce.ReduceSum(dy, axes=channels, keep=False) if node.wants(2) else None


@onnx("GatherGrad", domain=MICROSOFT)
def gather_grad(node: Node) -> Op:
    """dX, in the shape that is given, with the slices of dY added where Gather took them."""
    shape, indices, dy = node.numbers(0, "the shape"), cast(node.x(1), i64), node.x(2)
    if any(d < 0 for d in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative dimension")
    x = Splat(0.0, Type(dy.dtype, shape))
    y = index.Gather(x, indices, axis=node.axis(rank=len(shape)))
    _same(dy, y)
    (dx,) = gradients((y,), (dy,), (x,))
    return dx


@onnx("SGD")
def sgd(node: Node) -> Op:
    """W' = W - lr · G: no operator of any standard, but what training tools for microcontrollers write."""
    node.quirk("the standard has no such operator", "as the weight minus lr times the gradient")
    weight, gradient = node.x(0), node.x(1)
    if gradient.type.size == 1:  # a reduction to nothing, for a weight of one element
        gradient = reshaped(gradient, weight.shape if weight.type.size == 1 else gradient.shape)
    _same(weight, gradient)
    return e.Sub(weight, e.Mul(gradient, number(node.float("lr", 0.01), gradient)))
