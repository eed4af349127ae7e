"""Gradients that PyTorch's autograd writes into a graph: each is the gradient of the op that the forward rule makes."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dlc.base.types import Type
from dlc.graph import Graph, Input, Op, Splat
from dlc.graph.gradient import gradients
from dlc.ops import elementwise as e
from dlc.ops import reduce as r
from dlc.ops.linear import MatMul
from dlc.ops.pool import MaxPool
from dlc_frontend_torch.ops import activation, elementwise, linear, nn, pool
from dlc_frontend_torch.ops.shape import transpose
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import axis, cast, number, reshaped

Forward = Callable[..., Op]


def adjoint(forward: Forward, g: Op, *values: Op | None, wanted: Sequence[bool] = ()) -> list[Op | None]:
    """The cotangents of `values`, of which `forward` computes what `g` is the cotangent of.

    Args:
        forward: Makes an op of the values.
        g: The cotangent of its result.
        values: Operands; None for those that are absent.
        wanted: Which cotangents are needed; all by default.
    """
    own = [None if v is None else Input(f"adjoint {k}", v.type) for k, v in enumerate(values)]
    y = forward(*own)
    asked = [k for k, v in enumerate(own) if v is not None and (not wanted or wanted[k])]
    found = gradients((y,), (reshaped(g, y.shape),), [i for k in asked if (i := own[k]) is not None])
    back: dict[Op, Op] = {i: v for i, v in zip(own, values, strict=True) if i is not None and v is not None}
    at = Graph((), tuple(found), tuple(f"g{k}" for k in asked)).substitute(back).outputs
    result: list[Op | None] = [None] * len(values)
    for k, op in zip(asked, at, strict=True):
        result[k] = op
    return result


def linear_adjoint(forward: Forward, g: Op, of: Type) -> Op:
    """The cotangent of the operand of a linear function, whose value does not count."""
    found = adjoint(forward, g, Splat(0.0, of))[0]
    assert found is not None
    return found


@aten("convolution_backward")
def convolution_backward(
    g: Op,
    x: Op,
    weight: Op,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> list[Op | None]:
    """Gradients of a convolution for its data, weights and bias."""
    del bias_sizes

    def forward(x: Op, w: Op) -> Op:
        return linear.convolved(x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    data, weights = adjoint(forward, g, x, weight, wanted=output_mask[:2]) if any(output_mask[:2]) else (None, None)
    over = (0, *range(2, len(g.shape)))
    return [data, weights, r.ReduceSum(g, axes=over, keep=False) if output_mask[2] else None]


@aten("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    g: Op, x: Op, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Op
) -> Op | None:
    """The gradient goes to the first largest element of each window."""
    del indices
    known = pool.figures(x, kernel, stride, padding, dilation, ceil_mode)
    return adjoint(lambda x: MaxPool(x, **known), g, x)[0]


@aten("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(
    g: Op, x: Op, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor: Any
) -> Op:
    """The gradient of a mean over windows."""
    from dlc_frontend_torch.rules import table

    rule = table()[f"avg_pool{len(x.shape) - 2}d"]
    return linear_adjoint(lambda x: rule(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor), g, x.type)


@aten("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_average_backward(g: Op, x: Op) -> Op:
    """The gradient of means over parts."""
    rank = len(x.shape) - 2
    return linear_adjoint(lambda x: pool.adaptive_average(x, g.shape[-rank:]), g, x.type)


@aten("native_layer_norm_backward")
def layer_norm_backward(
    g: Op, x: Op, shape: Any, mean: Op, inverse: Op, weight: Op | None, bias: Op | None, output_mask: Sequence[bool]
) -> list[Op | None]:
    """Gradients of a normalisation over the last dimensions, by its saved statistics."""
    over = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    lead = tuple(range(len(x.shape) - len(shape)))
    hat = e.Mul(e.Sub(x, mean), inverse)
    part = g if weight is None else e.Mul(g, weight)
    middle = r.ReduceMean(part, axes=over, keep=True)
    along = r.ReduceMean(e.Mul(part, hat), axes=over, keep=True)
    del bias
    return [
        e.Mul(e.Sub(e.Sub(part, middle), e.Mul(hat, along)), inverse) if output_mask[0] else None,
        r.ReduceSum(e.Mul(g, hat), axes=lead, keep=False) if output_mask[1] else None,
        r.ReduceSum(g, axes=lead, keep=False) if output_mask[2] else None,
    ]


@aten("native_group_norm_backward")
def group_norm_backward(
    g: Op, x: Op, mean: Op, inverse: Op, weight: Op | None, n: Any, c: Any, area: Any, groups: int, mask: Sequence[bool]
) -> list[Op | None]:
    """Gradients of a normalisation per group, by its saved statistics."""
    size = x.type.size // (n * groups)
    rows = (n, groups, size)
    at = (n, groups, 1)
    hat = e.Mul(e.Sub(reshaped(x, rows), reshaped(mean, at)), reshaped(inverse, at))
    channels = (1, c, *(1,) * (len(x.shape) - 2))
    over = (0, *range(2, len(x.shape)))
    scaled = g if weight is None else e.Mul(g, reshaped(weight, channels))
    part = reshaped(scaled, rows)
    middle = r.ReduceMean(part, axes=(2,), keep=True)
    along = r.ReduceMean(e.Mul(part, hat), axes=(2,), keep=True)
    data = e.Mul(e.Sub(e.Sub(part, middle), e.Mul(hat, along)), reshaped(inverse, at))
    del area
    return [
        reshaped(data, x.shape) if mask[0] else None,
        r.ReduceSum(e.Mul(g, reshaped(hat, x.shape)), axes=over, keep=False) if mask[1] else None,
        r.ReduceSum(g, axes=over, keep=False) if mask[2] else None,
    ]


@aten("native_batch_norm_backward")
def batch_norm_backward(
    g: Op,
    x: Op,
    weight: Op | None,
    mean: Op | None,
    var: Op | None,
    save_mean: Op | None,
    save_inverse: Op | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Op | None]:
    """Gradients of a batch normalisation, by its batch or by stored statistics."""
    del save_mean, save_inverse
    bias = Splat(0.0, x.type.with_shape((x.shape[1],)))
    weight = Splat(1.0, bias.type) if weight is None else weight
    if train or mean is None or var is None:

        def by_batch(x: Op, w: Op, b: Op) -> Op:
            return nn.trained_norm(x, w, b, None, None, 0.1, eps)[0]

        return adjoint(by_batch, g, x, weight, bias, wanted=output_mask)

    def stored(x: Op, w: Op, b: Op, m: Op, v: Op) -> Op:
        return nn.stored_norm(x, w, b, m, v, 0.1, eps)

    return adjoint(stored, g, x, weight, bias, mean, var, wanted=[*output_mask, False, False])[:3]


@aten("_softmax_backward_data")
def softmax_backward(g: Op, y: Op, dim: int, dtype: Any = None) -> Op:
    """y · (g - Σ g·y)."""
    del dtype
    d = axis(dim, len(y.shape))
    return e.Mul(y, e.Sub(g, r.ReduceSum(e.Mul(g, y), axes=(d,), keep=True)))


@aten("_log_softmax_backward_data")
def log_softmax_backward(g: Op, y: Op, dim: int, dtype: Any = None) -> Op:
    """g - exp(y) · Σ g."""
    del dtype
    d = axis(dim, len(y.shape))
    return e.Sub(g, e.Mul(e.Exp(y), r.ReduceSum(g, axes=(d,), keep=True)))


@aten("threshold_backward")
def threshold_backward(g: Op, x: Op, threshold: float) -> Op:
    """g where x is above the threshold."""
    return e.Where(e.Greater(x, number(float(threshold), x.dtype)), g, number(0.0, g.dtype))


@aten("sigmoid_backward")
def sigmoid_backward(g: Op, y: Op) -> Op:
    """g · y · (1 - y)."""
    return e.Mul(g, e.Mul(y, e.Sub(number(1.0, y.dtype), y)))


@aten("tanh_backward")
def tanh_backward(g: Op, y: Op) -> Op:
    """g · (1 - y²)."""
    return e.Mul(g, e.Sub(number(1.0, y.dtype), e.Mul(y, y)))


def _declare_pointwise() -> None:
    def rule(forward: Forward) -> Callable[..., Op | None]:
        return lambda g, x, *args, **kwargs: adjoint(lambda x: forward(x, *args, **kwargs), g, x)[0]

    for name, forward in {
        "gelu": activation.gelu,
        "hardtanh": activation.hardtanh,
        "softplus": activation.softplus,
        "silu": elementwise.FLOAT_UNARY["silu"],
        "hardswish": elementwise.FLOAT_UNARY["hardswish"],
        "hardsigmoid": elementwise.FLOAT_UNARY["hardsigmoid"],
        "mish": elementwise.FLOAT_UNARY["mish"],
    }.items():
        aten(f"{name}_backward")(rule(forward))


_declare_pointwise()


@aten("leaky_relu_backward")
def leaky_relu_backward(g: Op, x: Op, slope: float, by_result: bool) -> Op:
    """g, or a part of it where x is negative."""
    del by_result  # a positive slope keeps the sign
    return e.Where(e.Greater(x, number(0.0, x.dtype)), g, e.Mul(g, number(float(slope), g.dtype)))


@aten("elu_backward")
def elu_backward(g: Op, alpha: float, scale: float, input_scale: float, by_result: bool, x: Op) -> Op | None:
    """The gradient of elu, by its operand or its result."""
    if by_result:
        raise Unsupported("the gradient of an elu in place")
    return adjoint(lambda x: activation.elu(x, alpha, scale, input_scale), g, x)[0]


@aten("upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward")
def upsample_nearest_backward(g: Op, output_size: Any, input_size: Any, *scales: Any) -> Op:
    """The gradient of repeated elements."""
    return linear_adjoint(
        lambda x: nn.upsample_nearest(x, output_size, *scales), g, g.type.with_shape(tuple(input_size))
    )


@aten("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward")
def upsample_linear_backward(g: Op, output_size: Any, input_size: Any, aligned: bool, *scales: Any) -> Op:
    """The gradient of linear interpolation."""
    of = g.type.with_shape(tuple(input_size))
    return linear_adjoint(lambda x: nn.upsample_linear(x, output_size, aligned, *scales), g, of)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    q: Op,
    k: Op,
    v: Op,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Op | None = None,
    scale: float | None = None,
) -> tuple[Op, Op]:
    """Attention, and the logarithm of its normaliser."""
    y = linear.attention(q, k, v, attn_mask, dropout_p, is_causal, scale)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = e.Mul(MatMul(q, transpose(k, -2, -1)), number(float(factor), q.dtype))
    return y, r.ReduceLogSumExp(scores, axes=(len(q.shape) - 1,), keep=False)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    g: Op,
    q: Op,
    k: Op,
    v: Op,
    out: Op,
    logsumexp: Op,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: Op | None = None,
    scale: float | None = None,
) -> list[Op | None]:
    """Gradients of attention for queries, keys and values, which compute the scores again."""
    del out, logsumexp

    def forward(q: Op, k: Op, v: Op) -> Op:
        return linear.attention(q, k, v, attn_mask, dropout_p, is_causal, scale)

    return adjoint(forward, g, q, k, v)


@aten("native_dropout_backward")
def dropout_backward(g: Op, mask: Op, scale: float) -> Op:
    """g where elements were kept."""
    return e.Mul(g, e.Mul(cast(mask, g.dtype), number(float(scale), g.dtype)))
