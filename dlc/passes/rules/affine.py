"""Factors and offsets per channel merge into the convolution or normalisation before them.

New weights and biases are constant expressions over the old ones: they are evaluated when the weights are written, so
nothing is copied here however large the weights are.
"""

from __future__ import annotations

from dlc.api.rules import RewriteContext, full, rule, unit
from dlc.base.types import Type
from dlc.graph.constants import prefix_shape
from dlc.graph.op import Op
from dlc.graph.structure import Splat
from dlc.ops.elementwise import Add, Div, Mul, Reciprocal, Sqrt, Sub
from dlc.ops.linear import Conv, ConvTranspose, Gemm
from dlc.ops.normalize import BatchNorm
from dlc.ops.shape import Expand, Pad, Reshape

Layer = Conv | ConvTranspose | Gemm


def channels(c: Op, x: Op, context: RewriteContext) -> Op | None:
    """A constant that varies along dimension 1 of x at most, as a vector over it; None if it is anything else."""
    rank = len(x.shape)
    if not context.constant(c) or rank < 2 or len(c.shape) > rank or c.dtype != x.dtype:
        return None
    shape, count = prefix_shape(c.shape, rank), x.shape[1]
    if any(e != 1 for d, e in enumerate(shape) if d != 1) or shape[1] not in (1, count):
        return None
    if isinstance(c, Splat):
        return Splat(c.value, Type(c.dtype, (count,)))
    vector = Reshape(c, to=(shape[1],)) if c.shape != (shape[1],) else c
    return vector if shape[1] == count else Expand(vector, to=(count,))


def factor_and_offset(op: BatchNorm) -> tuple[Op, Op]:
    """(a, b) with batch_norm(x) = x·a + b, both vectors over channels."""
    a = Div(op.scale, Sqrt(Add(op.var, unit(op.epsilon, op.var.dtype))))
    return a, Sub(op.bias, Mul(op.mean, a))


def affine(x: Op, a: Op, b: Op) -> BatchNorm:
    """x·a + b per channel, as the batch normalisation that computes exactly this."""
    return BatchNorm(x, a, b, full(0, a.type), full(1, a.type), epsilon=0.0)


def scaled(layer: Layer, a: Op | None, b: Op | None) -> Layer | None:
    """layer(x)·a + b per output channel as one layer, or None where its form does not allow it."""
    w, bias = _weights(layer), _bias(layer)
    if a is not None:
        axis = _output_dimension(layer)
        if axis is None:
            return None
        w = Mul(w, Reshape(a, to=tuple(a.shape[0] if d == axis else 1 for d in range(len(w.shape)))))
        bias = None if bias is None else Mul(bias, a)
    if b is not None:
        bias = b if bias is None else Add(bias, b)
    match layer:
        case Gemm():
            return Gemm(layer.a, w, bias, layer.alpha, 1.0, layer.trans_a, layer.trans_b)
        case Conv():
            return Conv(layer.x, w, bias, layer.stride, layer.pads, layer.dilation, layer.group)
        case ConvTranspose():
            return ConvTranspose(
                layer.x, w, bias, layer.stride, layer.pads, layer.dilation, layer.output_pad, layer.group
            )


def _weights(layer: Layer) -> Op:
    return layer.b if isinstance(layer, Gemm) else layer.w


def _bias(layer: Layer) -> Op | None:
    """The addend per output channel as a vector."""
    if not isinstance(layer, Gemm):
        return layer.b
    if layer.c is None:
        return None
    count = layer.shape[1]
    vector = layer.c if layer.c.shape == (count,) else Expand(Reshape(layer.c, to=(layer.c.type.size,)), to=(count,))
    return vector if layer.beta == 1.0 else Mul(vector, unit(layer.beta, vector.dtype))


def _output_dimension(layer: Layer) -> int | None:
    """The dimension of the weights that output channels run along."""
    match layer:
        case Gemm():
            return 0 if layer.trans_b else 1
        case Conv():
            return 0
        case ConvTranspose():
            return 1 if layer.group == 1 else None


def absorbs(layer: Op, context: RewriteContext, shared: bool = False) -> Layer | None:
    """The layer, if constant factors and offsets may move into it: it has one reader, unless `shared` is fine."""
    if not isinstance(layer, (Conv, ConvTranspose, Gemm)) or not (shared or context.single(layer)):
        return None
    if not layer.dtype.is_float:
        return None
    own = _weights(layer) if not isinstance(layer, Gemm) or layer.c is None else layer.c
    vectors = not isinstance(layer, Gemm) or layer.c is None or layer.c.type.size in (1, *layer.c.shape[-1:])
    return layer if context.constant(_weights(layer)) and context.constant(own) and vectors else None


@rule(BatchNorm, composes=True)
def batch_norm_into_layer(op: BatchNorm, context: RewriteContext) -> Op | None:
    """batch_norm(conv(x, w, b)) → conv(x, w·a, b·a + c), a = scale / √(var + ε), c = bias - mean·a; also gemm."""

    def is_known(reader: Op) -> bool:
        return isinstance(reader, BatchNorm) and all(context.constant(v) for v in reader.operands[1:])

    # Equal layers under different normalisations become as many layers, each with its own activation fused behind it.
    layer = absorbs(op.x, context, shared=context.read_by(op.x, is_known))
    if layer is None or not is_known(op):
        return None
    a, b = factor_and_offset(op)
    return scaled(layer, a, b)


@rule(BatchNorm, composes=True)
def batch_norm_twice(op: BatchNorm, context: RewriteContext) -> Op | None:
    """batch_norm(batch_norm(x)) → batch_norm(x): (x·a + b)·c + d = x·(a·c) + (b·c + d)."""
    inner = op.x
    if not isinstance(inner, BatchNorm) or not context.single(inner):
        return None
    if not all(context.constant(v) for v in (*op.operands[1:], *inner.operands[1:])):
        return None
    (a, b), (c, d) = factor_and_offset(inner), factor_and_offset(op)
    return affine(inner.x, Mul(a, c), Add(Mul(b, c), d))


@rule(Mul, Div, composes=True)
def factor_into_layer(op: Mul | Div, context: RewriteContext) -> Op | None:
    """conv(x, w, b) · c → conv(x, w·c, b·c), c per channel; batch_norm(x) · c → batch_norm with scale·c, bias·c."""
    if op.a.shape != op.shape or not op.dtype.is_float or (c := channels(op.b, op, context)) is None:
        return None
    c = Reciprocal(c) if isinstance(op, Div) else c
    if (layer := absorbs(op.a, context)) is not None:
        return scaled(layer, c, None)
    match op.a:
        case BatchNorm(x=x, scale=scale, bias=bias, mean=mean, var=var) as layer if context.single(op.a):
            return BatchNorm(x, Mul(scale, c), Mul(bias, c), mean, var, layer.epsilon, layer.momentum)
        case _:
            return None


@rule(Add, composes=True)
def offset_into_layer(op: Add, context: RewriteContext) -> Op | None:
    """conv(x, w, b) + c → conv(x, w, b + c), c per channel; batch_norm(x) + c → batch_norm with bias + c."""
    if op.a.shape != op.shape or not op.dtype.is_float or (c := channels(op.b, op, context)) is None:
        return None
    layer = op.a
    if (
        isinstance(layer, (Conv, ConvTranspose))
        and context.single(layer)
        and (layer.b is None or context.constant(layer.b))
    ):
        return scaled(layer, None, c)
    match layer:
        case BatchNorm(x=x, scale=scale, bias=bias, mean=mean, var=var) if context.single(layer):
            return BatchNorm(x, scale, Add(bias, c), mean, var, layer.epsilon, layer.momentum)
        case _:
            return None


@rule(Conv, composes=True)
def factor_before_conv(op: Conv, context: RewriteContext) -> Op | None:
    """conv(x · c, w) → conv(x, w·c), c per input channel: padding stays zero."""
    match op.x:
        case Mul(a=x, b=c) if (
            x.shape == op.x.shape and context.single(op.x) and context.constant(op.w) and op.group == 1
        ):
            vector = channels(c, op.x, context)
        case _:
            return None
    if vector is None or not op.dtype.is_float:
        return None
    per = Reshape(vector, to=(1, vector.shape[0], *(1,) * (len(op.w.shape) - 2)))
    return Conv(x, Mul(op.w, per), op.b, op.stride, op.pads, op.dilation, op.group)


@rule(Conv)
def pad_into_conv(op: Conv, context: RewriteContext) -> Op | None:
    """conv(pad(x, p, 0), pads=q) → conv(x, pads=p + q), p along spatial dimensions."""
    pads = spatial_pads(op.x, op.pads, context)
    if pads is None or not isinstance(op.x, Pad) or op.x.value != 0:
        return None
    return Conv(op.x.x, op.w, op.b, op.stride, pads, op.dilation, op.group)


def spatial_pads(x: Op, pads: tuple[int, ...], context: RewriteContext) -> tuple[int, ...] | None:
    """`pads` and those of a constant padding of spatial dimensions together, or None if x is no such padding."""
    if not isinstance(x, Pad) or x.mode != "constant" or not context.single(x) or any(p < 0 for p in x.pads):
        return None
    rank = len(x.shape)
    if any(x.pads[d] for d in (0, 1, rank, rank + 1)):
        return None
    own = (*x.pads[2:rank], *x.pads[rank + 2 :])
    return tuple(a + b for a, b in zip(own, pads or (0,) * len(own), strict=True))


RULES = (
    batch_norm_into_layer,
    batch_norm_twice,
    factor_into_layer,
    offset_into_layer,
    factor_before_conv,
    pad_into_conv,
)
