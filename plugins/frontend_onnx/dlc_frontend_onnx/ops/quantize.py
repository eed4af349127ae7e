"""Quantised operators, as compositions over wider integers and floats."""

from __future__ import annotations

from dlc.base.types import DType, f32, i32, u8
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import linear
from dlc.ops.index import Gather
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Expand, Slice
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.conversion import converted
from dlc_frontend_onnx.ops.nn import window
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import as_written, onnx
from dlc_frontend_onnx.unsupported import Unsupported


def per_axis(node: Node, v: Op, x: Op) -> Op:
    """A scale or zero point, shaped to broadcast along its axis."""
    axis, block = node.int("axis", 1), node.int("block_size", 0)
    if v.type.size == 1:
        return reshaped(v, ())
    d = normalized(axis, len(x.shape))
    if block:
        return _blocks(v, x, d, block)
    if v.shape != (x.shape[d],):
        raise ShapeError(f"a scale or zero point of type {v.type} along dimension {d} of {x.type}")
    return reshaped(v, (v.shape[0], *(1,) * (len(x.shape) - d - 1)))


def _blocks(v: Op, x: Op, d: int, block: int) -> Op:
    """A value per block along dimension d, once per element."""
    before, count, after = v.shape[:d], v.shape[d] if d < len(v.shape) else 0, v.shape[d + 1 :]
    if len(v.shape) != len(x.shape) or block < 1 or count != -(-x.shape[d] // block):
        raise ShapeError(
            f"scales or zero points of type {v.type} for blocks of {block} along dimension {d} of {x.type}"
        )
    repeated = Expand(reshaped(v, (*before, count, 1, *after)), to=(*before, count, block, *after))
    whole = reshaped(repeated, (*before, count * block, *after))
    if count * block == x.shape[d]:
        return whole
    ones, sizes = (1,) * len(x.shape), (*before, x.shape[d], *after)  # the last block may be shorter
    return Slice(whole, starts=(0,) * len(x.shape), sizes=sizes, steps=ones)


def saturated(x: Op, to: DType) -> Op:
    """x rounded half to even, clipped to the range of `to`, and converted."""
    if not to.is_integer or to.bits > 16:
        raise Unsupported(f"quantisation to {to}", "supported: integers of up to 16 bits, floats of up to 8")
    low, high = to.limits
    return cast(e.Clip(x, low=low, high=high), to)


@onnx("QuantizeLinear", since=10)
@as_written
def quantize(node: Node) -> Op:
    """y = saturate(x / scale + zero point), rounded to integers half to even before the zero point is added."""
    x, scale, zero = node.x(0), node.x(1), node.optional(2)
    to = zero.dtype if zero is not None else node.dtype("output_dtype", 2) if node.int("output_dtype") else u8
    floats = to.is_float and to.bits <= 8
    y: Op = cast(e.Div(*_divided(node, x, scale)), f32)
    if not floats:
        y = e.Round(y)
    if zero is not None:
        y = e.Add(y, cast(per_axis(node, zero, x), f32))
    if floats:
        return converted(node, y, to)
    node.ignore("saturate")
    return saturated(y, to)


def _divided(node: Node, x: Op, scale: Op) -> tuple[Op, Op]:
    """Dividend and divisor in the type that the division has: that of the scale, but for scales of 8 bits."""
    of = scale.dtype if scale.dtype.bits > 8 else x.dtype if x.dtype.is_float else f32
    of = node.dtype("precision") if node.int("precision") else of
    return cast(x, of), cast(per_axis(node, scale, x), of)


@onnx("DequantizeLinear", since=10)
def dequantize(node: Node) -> Op:
    """y = (x - zero point) · scale."""
    x, scale, zero = node.x(0), node.x(1), node.optional(2)
    to = node.dtype("output_dtype") if node.int("output_dtype") else scale.dtype
    zero = zero if zero is None else per_axis(node, zero, x)
    return cast(e.Mul(cast(centred(x, zero), f32), cast(per_axis(node, scale, x), f32)), to)


def centred(x: Op, zero: Op | None) -> Op:
    """x - zero point, of integers in 32 bits."""
    wide = f32 if x.dtype.is_float else i32
    return cast(x, wide) if zero is None else e.Sub(cast(x, wide), cast(zero, wide))


@onnx("MatMulInteger", since=10)
def matmul_integer(node: Node) -> Op:
    """Product of centred 8-bit matrices in 32 bits."""
    a, b, zero_a, zero_b = node.x(0), node.x(1), node.optional(2), node.optional(3)
    if zero_a is not None and zero_a.type.size > 1:
        zero_a = reshaped(zero_a, (*zero_a.shape[:-1], zero_a.shape[-1], 1) if len(zero_a.shape) == 1 else zero_a.shape)
    return linear.MatMul(centred(a, zero_a), centred(b, zero_b))


@onnx("ConvInteger", since=10)
def conv_integer(node: Node) -> Op:
    """Convolution of centred 8-bit data in 32 bits."""
    x, w, zero_x, zero_w = node.x(0), node.x(1), node.optional(2), node.optional(3)
    return _convolved(node, x, w, zero_x, zero_w, None)


def _convolved(node: Node, x: Op, w: Op, zero_x: Op | None, zero_w: Op | None, b: Op | None) -> Op:
    node.ints("kernel_shape")
    stride, pads, dilation = window(node, w.shape[2:], x)
    if zero_w is not None and zero_w.type.size > 1:
        zero_w = reshaped(zero_w, (w.shape[0], *(1,) * (len(w.shape) - 1)))
    zero_x = None if zero_x is None else reshaped(zero_x, ())
    group = node.int("group", 1)
    left, right = centred(x, zero_x), centred(w, zero_w if zero_w is None else unshaped(zero_w))
    return linear.Conv(left, right, b, stride=stride, pads=pads, dilation=dilation, group=group)


def unshaped(v: Op) -> Op:
    """A vector of one element as a scalar, which broadcasts with everything; a longer one as it is."""
    return reshaped(v, ()) if v.type.size == 1 else v


@onnx("QLinearMatMul", since=10)
def qlinear_matmul(node: Node) -> Op:
    """Product of quantised matrices, quantised again."""
    a, sa, za, b, sb, zb, sy, zy = (node.x(k) for k in range(8))
    product = linear.MatMul(centred(a, unshaped(za)), centred(b, unshaped(zb)))
    return _requantized(product, e.Div(e.Mul(unshaped(sa), unshaped(sb)), unshaped(sy)), unshaped(zy))


@onnx("QLinearConv", since=10)
def qlinear_conv(node: Node) -> Op:
    """Convolution of quantised data, quantised again."""
    x, sx, zx, w, sw, zw, sy, zy = (node.x(k) for k in range(8))
    if sw.type.size > 1:
        sw = reshaped(sw, (w.shape[0], *(1,) * (len(x.shape) - 2)))
    product = _convolved(node, x, w, zx, zw, node.optional(8))
    return _requantized(product, e.Div(e.Mul(unshaped(sx), unshaped(sw)), unshaped(sy)), unshaped(zy))


def dynamic_scale(x: Op) -> tuple[Op, Op]:
    """Scale and zero point (u8) of the range of x, which includes 0, as DynamicQuantizeLinear chooses them."""
    from dlc.ops.reduce import ReduceMax, ReduceMin

    every = tuple(range(len(x.shape)))
    high = e.Maximum(ReduceMax(x, axes=every), number(0, x))
    low = e.Minimum(ReduceMin(x, axes=every), number(0, x))
    # Of zeros alone every scale is right but 0.
    scale = e.Where(e.Equal(high, low), number(1, x), e.Div(e.Sub(high, low), number(255, x)))
    return scale, saturated(e.Round(e.Div(e.Neg(low), scale)), u8)


def quantized(x: Op, scale: Op, zero: Op) -> Op:
    """x of f32 / scale, rounded half to even, + zero point, saturated; scale and zero point broadcast with x."""
    return saturated(e.Add(e.Round(e.Div(x, scale)), cast(zero, f32)), zero.dtype)


def dequantized(x: Op, scale: Op, zero: Op | None) -> Op:
    """(x - zero point) · scale in f32; a zero point that is left out is 0."""
    return e.Mul(cast(centred(x, zero), f32), scale)


def _requantized(product: Op, factor: Op, zero: Op) -> Op:
    y = e.Round(e.Mul(cast(product, f32), cast(factor, f32)))
    return saturated(e.Add(y, cast(zero, f32)), zero.dtype)


@onnx("DynamicQuantizeLinear", since=11)
def dynamic_quantize(node: Node) -> tuple[Op, Op, Op]:
    """Quantisation to u8 with a scale from the data's own range, which includes 0."""
    x = node.x()
    scale, zero = dynamic_scale(x)
    return quantized(x, scale, zero), scale, zero


@onnx("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(node: Node) -> Op:
    """Columns of x by index."""
    x, y = node.x(0), node.x(1)
    shaped = reshaped(x, (1, *x.shape)) if len(x.shape) == 1 else x
    return Gather(shaped, reshaped(y, (y.type.size,)), axis=len(shaped.shape) - 1)
