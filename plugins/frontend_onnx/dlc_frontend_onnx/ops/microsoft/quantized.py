"""Quantised operators: y = quantize(f(dequantize(x))), integer products, and matrices that are quantised at run time.

Quantisers of onnxruntime write these (QOperator format, dynamic quantisation). A scale or zero point is a scalar, or a
vector along the columns of a matrix. What onnxruntime rounds by other steps may differ by one step of the result.
"""

from __future__ import annotations

import math
from dataclasses import replace

from onnx import NodeProto

from dlc.base.types import f32, i32
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import linear, normalize, reduce
from dlc.ops.shape import Concat, Transpose
from dlc_frontend_onnx.domains import MICROSOFT
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.microsoft.layouts import channels_first, channels_last, with_channels_first
from dlc_frontend_onnx.ops.nn import average_pool, softmax_of_matrix
from dlc_frontend_onnx.ops.quantize import (
    centred,
    dequantize,
    dequantized,
    dynamic_scale,
    qlinear_conv,
    quantize,
    quantized,
    saturated,
    unshaped,
)
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


def _scale_of(node: Node, k: int) -> Op:
    """Operand `k`, a scale."""
    return cast(unshaped(node.x(k)), f32)


def _zero_of(node: Node, k: int, like: Op) -> Op:
    """Operand `k`, a zero point; 0 in the type of `like` where it is left out."""
    found = node.optional(k)
    return number(0, like) if found is None else unshaped(found)


def _value(node: Node, k: int) -> Op:
    """Operands `k`, `k + 1` and `k + 2`: what a quantised tensor, its scale and its zero point stand for."""
    x = node.x(k)
    return dequantized(x, _scale_of(node, k + 1), _zero_of(node, k + 2, x))


def _result(node: Node, y: Op, k: int, like: Op) -> Op:
    """y quantised by operands `k` and `k + 1`: a scale and a zero point."""
    return quantized(y, _scale_of(node, k), _zero_of(node, k + 1, like))


@onnx("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(node: Node) -> Op:
    """As the operator of the standard; without an axis, scales are scalars."""
    return quantize(node)


@onnx("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(node: Node) -> Op:
    """As the operator of the standard; without an axis, scales are scalars."""
    return dequantize(node)


@onnx("QLinearAdd", domain=MICROSOFT)
def qlinear_add(node: Node) -> Op:
    """c = quantize(a + b) by one product for each operand, as onnxruntime computes it; operands broadcast."""
    a, b, zero = node.x(0), node.x(3), _zero_of(node, 7, node.x(0))
    factors = [e.Div(_scale_of(node, k), _scale_of(node, 6)) for k in (1, 4)]
    zeros = [cast(_zero_of(node, k, x), f32) for k, x in ((2, a), (5, b))]
    offset = e.Sub(cast(zero, f32), e.Add(e.Mul(factors[0], zeros[0]), e.Mul(factors[1], zeros[1])))
    y = e.Add(e.Mul(cast(a, f32), factors[0]), e.Add(e.Mul(cast(b, f32), factors[1]), offset))
    return saturated(e.Round(y), zero.dtype)


@onnx("QLinearMul", domain=MICROSOFT)
def qlinear_mul(node: Node) -> Op:
    """c = quantize(a · b); operands broadcast."""
    a, b, zero = node.x(0), node.x(3), _zero_of(node, 7, node.x(0))
    product = e.Mul(centred(a, _zero_of(node, 2, a)), centred(b, _zero_of(node, 5, b)))
    factor = e.Div(e.Mul(_scale_of(node, 1), _scale_of(node, 4)), _scale_of(node, 6))
    return saturated(e.Round(e.Add(e.Mul(cast(product, f32), factor), cast(zero, f32))), zero.dtype)


@onnx("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(node: Node) -> Op:
    """y = quantize(sigmoid(x))."""
    return _result(node, e.Sigmoid(_value(node, 0)), 3, node.x(0))


@onnx("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(node: Node) -> Op:
    """y = quantize(x or alpha · x)."""
    return _result(node, e.LeakyRelu(_value(node, 0), alpha=node.float("alpha", 0.01)), 3, node.x(0))


@onnx("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(node: Node) -> Op:
    """y = quantize(softmax(x)): along one dimension from operator set 13 on, before over all from the axis on."""
    x = _value(node, 0)
    if node.int("opset", 13) >= 13:
        return _result(node, normalize.Softmax(x, axis=node.axis(default=-1)), 3, node.x(0))
    return _result(node, softmax_of_matrix(_float_node(node, x, "Softmax")), 3, node.x(0))


@onnx("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(node: Node) -> Op:
    """y = quantize(mean over windows); with `channels_last`, channels are the last dimension."""
    last = node.flag("channels_last")
    x = _value(node, 0)
    y = average_pool(_float_node(node, channels_first(x) if last else x, "AveragePool"))
    return _result(node, channels_last(y) if last else y, 3, node.x(0))


@onnx("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(node: Node) -> Op:
    """y = quantize(mean over all spatial dimensions)."""
    x, last = node.x(0), node.flag("channels_last")
    spatial = tuple(range(1, len(x.shape) - 1)) if last else tuple(range(2, len(x.shape)))
    # Sums of integers are exact, whatever their order.
    count = math.prod(x.shape[d] for d in spatial)
    total = reduce.ReduceSum(centred(x, _zero_of(node, 2, x)), axes=spatial, keep=True)
    mean = e.Mul(cast(total, f32), e.Div(_scale_of(node, 1), number(count, node.x(1))))
    return _result(node, mean, 3, x)


@onnx("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(node: Node) -> Op:
    """y = quantize(mean over axes)."""
    axes = node.axes(node.ints("axes"))
    y = reduce.ReduceMean(_value(node, 0), axes=axes, keep=node.flag("keepdims", True))
    return _result(node, y, 3, node.x(0))


@onnx("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: Node) -> Op:
    """z = quantize(x where the condition holds, else y)."""
    return _result(node, e.Where(node.x(0), _value(node, 1), _value(node, 4)), 7, node.x(1))


@onnx("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: Node) -> Op:
    """y = quantize(the operands behind each other); a part with the scale and zero point of y is taken as it is."""
    count = len(node.inputs)
    if count < 5 or count % 3 != 2:
        raise Unsupported(f"{count} operands are not a scale, a zero point and triples of operands", MALFORMED)
    scale, zero = _scale_of(node, 0), unshaped(node.x(1))
    parts: list[Op] = []
    for k in range(2, count, 3):
        same = _scale_of(node, k + 1).digest == scale.digest and unshaped(node.x(k + 2)).digest == zero.digest
        parts.append(node.x(k) if same else quantized(_value(node, k), scale, zero))
    return Concat(tuple(parts), axis=node.axis(rank=len(parts[0].shape)))


@onnx("QLinearConv", domain=MICROSOFT)
def qlinear_conv_of_layout(node: Node) -> Op:
    """The operator of the standard; with `channels_last`, channels are the last dimension of x and y, not of w."""
    if not node.flag("channels_last"):
        return qlinear_conv(node)
    return channels_last(qlinear_conv(with_channels_first(node, 0)))


def _float_node(node: Node, x: Op, operator: str) -> Node:
    """The node as one of the standard's operators on x."""
    named = NodeProto(op_type=operator, input=node.proto.input[:1], output=node.proto.output)
    return replace(node, proto=named, inputs=(x,))


# ---- matrices


def _product(a: Op, b: Op, zero_a: Op | None, zero_b: Op | None) -> Op:
    """The product of centred integers in i32."""
    return linear.MatMul(centred(a, zero_a), centred(b, zero_b))


def _columns(v: Op | None) -> Op | None:
    """A scale or zero point along the columns of a matrix, shaped to broadcast."""
    return None if v is None else unshaped(v)


@onnx("QGemm", domain=MICROSOFT)
def qgemm(node: Node) -> Op:
    """y = alpha · a_scale · b_scale · (A · B + C), quantised if the result has a scale; C is in i32."""
    a, b, c = node.x(0), node.x(3), node.optional(6)
    zero_a, zero_b = unshaped(node.x(2)), unshaped(node.x(5))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(f"{a.type} and {b.type} are not matrices")
    left, right = centred(a, zero_a), cast(b, i32)
    left = Transpose(left, perm=(1, 0)) if node.flag("transA") else left
    # A zero point for each column stands in the last dimension only after the transposition.
    right = e.Sub(Transpose(right, perm=(1, 0)) if node.flag("transB") else right, cast(zero_b, i32))
    total: Op = linear.MatMul(left, right)
    total = total if c is None else e.Add(total, c)
    factor = e.Mul(_scale_of(node, 1), _scale_of(node, 4))
    if (alpha := node.float("alpha", 1.0)) != 1.0:
        factor = e.Mul(factor, number(alpha, factor))
    if node.optional(7) is None:
        return e.Mul(cast(total, f32), factor)
    zero = node.optional(8)
    zero = number(0, a) if zero is None else unshaped(zero)
    return quantized(e.Mul(cast(total, f32), factor), _scale_of(node, 7), zero)


@onnx("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: Node) -> Op:
    """y = a_scale · b_scale · (A · B) + bias in floating point."""
    a, b, bias = node.x(0), node.x(1), node.optional(6)
    total = _product(a, b, _columns(node.optional(4)), _columns(node.optional(5)))
    to = node.x(2).dtype
    y = e.Mul(cast(total, f32), e.Mul(_scale_of(node, 2), _scale_of(node, 3)))
    return cast(y if bias is None else e.Add(y, cast(bias, f32)), to)


def dynamic_product(x: Op, b: Op, scale: Op, zero: Op | None) -> Op:
    """x · B for x of f32, which is quantised to u8 by its own range, and quantised B."""
    own_scale, own_zero = dynamic_scale(x)
    total = _product(quantized(x, own_scale, own_zero), b, own_zero, zero)
    return e.Mul(cast(total, f32), e.Mul(own_scale, scale))


@onnx("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: Node) -> Op:
    """y = A · B + bias: A is quantised by its own range, B is quantised already."""
    bias = node.optional(4)
    y = dynamic_product(node.x(0), node.x(1), _scale_of(node, 2), _columns(node.optional(3)))
    return y if bias is None else e.Add(y, bias)


@onnx("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_16(node: Node) -> Op:
    """The product of 16-bit matrices in 32 bits."""
    return _product(node.x(0), node.x(1), None, None)


@onnx("MulInteger", domain=MICROSOFT)
def mul_integer(node: Node) -> Op:
    """The product of centred 8-bit tensors in 32 bits; operands broadcast."""
    zero_a, zero_b = node.optional(1), node.optional(3)
    a = centred(node.x(0), None if zero_a is None else unshaped(zero_a))
    return e.Mul(a, centred(node.x(2), None if zero_b is None else unshaped(zero_b)))


@onnx("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(node: Node) -> Op:
    """Sums of 8-bit integers in 32 bits."""
    axes = node.axes(node.ints("axes"))
    return reduce.ReduceSum(cast(node.x(), i32), axes=axes, keep=node.flag("keepdims", True))
