"""Products of matrices, convolutions, attention."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.base.types import bool_
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import linear as li
from dlc.ops.index import Trilu
from dlc.ops.normalize import Softmax
from dlc_frontend_torch.ops.make import filled
from dlc_frontend_torch.ops.shape import matrix_transpose, transpose
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import cast, number, pair, reshaped


@aten("linear")
def linear(x: Op, weight: Op, bias: Op | None = None) -> Op:
    """x · Wᵀ + b."""
    if len(x.shape) == 2 and len(weight.shape) == 2:
        return li.Gemm(x, weight, bias, trans_b=True)
    if len(x.shape) > 2 and len(weight.shape) == 2:
        # One product of matrices: rows of all batches together.
        *lead, width = x.shape
        y = li.Gemm(reshaped(x, (math.prod(lead), width)), weight, bias, trans_b=True)
        return reshaped(y, (*lead, weight.shape[0]))
    y: Op = li.MatMul(x, matrix_transpose(weight))
    return y if bias is None else e.Add(y, bias)


@aten("matmul", "mm", "bmm", "mv", "dot", "inner", "linalg_matmul")
def matmul(a: Op, b: Op) -> Op:
    """The product of matrices; leading dimensions broadcast."""
    return li.MatMul(a, b)


def _scaled(x: Op, factor: float) -> Op:
    return x if factor == 1 else e.Mul(x, number(float(factor), x.dtype))


@aten("addmm")
def addmm(c: Op, a: Op, b: Op, beta: float = 1, alpha: float = 1) -> Op:
    """beta · c + alpha · a · b."""
    return li.Gemm(a, b, c, alpha=float(alpha), beta=float(beta))


@aten("baddbmm", "addmv")
def baddbmm(c: Op, a: Op, b: Op, beta: float = 1, alpha: float = 1) -> Op:
    """beta · c + alpha · a · b, of batches."""
    return e.Add(_scaled(c, beta), _scaled(li.MatMul(a, b), alpha))


@aten("outer")
def outer(a: Op, b: Op) -> Op:
    """a · bᵀ."""
    return e.Mul(reshaped(a, (a.shape[0], 1)), b)


@aten("einsum")
def einsum(equation: str, operands: Sequence[Op], path: Any = None) -> Op:
    """The sum of products that an equation says."""
    del path
    return li.Einsum(tuple(operands), equation=equation.replace(" ", ""))


@aten("bilinear", "_trilinear")
def bilinear(*ignored: Any, **also: Any) -> Op:
    """Not supported."""
    del ignored, also
    raise Unsupported("a product of three tensors", "write it with einsum")


def convolved(
    x: Op,
    weight: Op,
    bias: Op | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Op:
    """A convolution of any rank; one item has no batch dimension."""
    rank = len(weight.shape) - 2
    if len(x.shape) == rank + 1:
        y = convolved(
            reshaped(x, (1, *x.shape)), weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return reshaped(y, y.shape[1:])
    stride, dilation = pair(stride, rank), pair(dilation, rank)
    if isinstance(padding, str):
        begins, ends = _same_pads(padding, weight.shape[2:], dilation)
    else:
        begins = ends = pair(padding, rank)
    figures: dict[str, Any] = {"stride": stride, "pads": (*begins, *ends), "dilation": dilation, "group": groups}
    if transposed:
        return li.ConvTranspose(x, weight, bias, output_pad=pair(output_padding, rank), **figures)
    return li.Conv(x, weight, bias, **figures)


def _same_pads(padding: str, window: Sequence[int], dilation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if padding == "valid":
        return (0,) * len(window), (0,) * len(window)
    if padding != "same":
        raise Unsupported(f"padding {padding!r}")
    totals = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
    return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)


@aten("convolution")
def convolution(
    x: Op,
    weight: Op,
    bias: Op | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Op:
    """A convolution or its adjoint."""
    return convolved(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@aten("conv1d", "conv2d", "conv3d")
def conv(
    x: Op, weight: Op, bias: Op | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Op:
    """A convolution."""
    return convolved(x, weight, bias, stride, padding, dilation, False, 0, groups)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    x: Op,
    weight: Op,
    bias: Op | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Op:
    """The adjoint of a convolution."""
    return convolved(x, weight, bias, stride, padding, dilation, True, output_padding, groups)


@aten("scaled_dot_product_attention")
def attention(
    q: Op,
    k: Op,
    v: Op,
    attn_mask: Op | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Op:
    """softmax(q · kᵀ · scale + mask) · v. Vaswani et al. 2017."""
    if dropout_p:
        raise Unsupported("dropout in attention", "export the module in inference mode: module.eval()")
    if enable_gqa:
        raise Unsupported("grouped queries in attention", "repeat the keys and values: repeat_interleave")
    if scale is None:
        width = q.shape[-1]
        if not isinstance(width, int):
            raise ShapeError(f"attention over {q.type.text}")
        scale = 1 / math.sqrt(width)
    scores: Op = e.Mul(li.MatMul(q, transpose(k, -2, -1)), number(float(scale), q.dtype))
    if is_causal:
        ones = filled(scores.shape[-2:], 1.0, q.dtype)
        attn_mask = cast(Trilu(ones, upper=False), bool_)
    if attn_mask is not None and attn_mask.dtype == bool_:
        scores = e.Where(attn_mask, scores, number(-math.inf, q.dtype))
    elif attn_mask is not None:
        scores = e.Add(scores, attn_mask)
    return li.MatMul(Softmax(scores, axis=len(scores.shape) - 1), v)
