"""Matrix products and pools: biases, transposes and paddings that they can take in."""

from __future__ import annotations

import math

from dlc.api.rules import RewriteContext, equation, rule, unit
from dlc.graph.constants import number
from dlc.graph.op import Op
from dlc.ops.elementwise import Add, Mul
from dlc.ops.linear import Conv, ConvTranspose, Gemm, MatMul
from dlc.ops.pool import AveragePool, MaxPool
from dlc.ops.reduce import ReduceSum
from dlc.ops.shape import Pad, Transpose
from dlc.passes.rules.affine import spatial_pads

_SWAP = (1, 0)


@rule(Add, composes=True)
def matmul_bias(op: Add, context: RewriteContext) -> Op | None:
    """matmul(a, b) + c → gemm(a, b, c) for matrices a, b and constant c."""
    product, c = op.a, op.b
    if product.shape != op.shape or not context.single(product) or not context.constant(c) or not op.dtype.is_float:
        return None
    match product:
        case MatMul(a=a, b=b) if len(a.shape) == 2 and len(b.shape) == 2:
            return Gemm(a, b, c)
        case Gemm(a=a, b=b, c=None):
            return Gemm(a, b, c, product.alpha, 1.0, product.trans_a, product.trans_b)
        case Gemm(a=a, b=b, c=Op() as old) if context.constant(old):
            beta = old if product.beta == 1.0 else Mul(old, unit(product.beta, old.dtype))
            return Gemm(a, b, Add(beta, c), product.alpha, 1.0, product.trans_a, product.trans_b)
        case _:
            return None


@equation(Gemm)
def gemm_of_transpose(op: Gemm) -> Op | None:
    """gemm(aᵀ, bᵀ) → gemm(a, b) with the transposition flags of a and b inverted."""
    (a, turn_a), (b, turn_b) = _untransposed(op.a), _untransposed(op.b)
    if not turn_a and not turn_b:
        return None
    return Gemm(a, b, op.c, op.alpha, op.beta, op.trans_a != turn_a, op.trans_b != turn_b)


@equation(MatMul)
def matmul_of_transpose(op: MatMul) -> Op | None:
    """matmul(aᵀ, b) → gemm(a, b) with transposed operands, for matrices."""
    (a, turn_a), (b, turn_b) = _untransposed(op.a), _untransposed(op.b)
    if len(op.a.shape) != 2 or len(op.b.shape) != 2 or not (turn_a or turn_b):
        return None
    return Gemm(a, b, trans_a=turn_a, trans_b=turn_b)


def _untransposed(x: Op) -> tuple[Op, bool]:
    return (x.x, True) if isinstance(x, Transpose) and x.perm == _SWAP else (x, False)


@rule(Gemm)
def gemm_factors(op: Gemm, context: RewriteContext) -> Op | None:
    """gemm(a, b, c, alpha, beta) → gemm(a, b·alpha, c·beta) for constant b and c."""
    if not op.dtype.is_float:
        return None
    if op.alpha != 1.0 and context.constant(op.b):
        b = Mul(op.b, unit(op.alpha, op.b.dtype))
        return Gemm(op.a, b, op.c, 1.0, op.beta, op.trans_a, op.trans_b)
    if op.beta != 1.0 and op.c is not None and context.constant(op.c):
        c = Mul(op.c, unit(op.beta, op.c.dtype))
        return Gemm(op.a, op.b, c, op.alpha, 1.0, op.trans_a, op.trans_b)
    return None


@equation(Conv, ConvTranspose, Gemm)
def zero_bias(op: Conv | ConvTranspose | Gemm) -> Op | None:
    """conv(x, w, 0) → conv(x, w); also gemm. Sums start at 0, so adding 0 changes nothing, not even a sign."""
    bias = op.c if isinstance(op, Gemm) else op.b
    if bias is None or number(bias) != 0:
        return None
    match op:
        case Gemm():
            return Gemm(op.a, op.b, None, op.alpha, 1.0, op.trans_a, op.trans_b) if op.alpha == 1.0 else None
        case Conv():
            return Conv(op.x, op.w, None, op.stride, op.pads, op.dilation, op.group)
        case _:
            return ConvTranspose(op.x, op.w, None, op.stride, op.pads, op.dilation, op.output_pad, op.group)


@equation(Add)
def sum_plus_zero(op: Add) -> Op | None:
    """Σ + 0 → Σ for products and sums, which start at 0 and so are never -0.0."""
    starts_at_zero = isinstance(op.a, (MatMul, Conv, ConvTranspose, ReduceSum)) or (
        isinstance(op.a, Gemm) and op.a.alpha == 1.0
    )
    return op.a if starts_at_zero and number(op.b) == 0 and op.a.shape == op.shape else None


@rule(MaxPool)
def pad_into_max_pool(op: MaxPool, context: RewriteContext) -> Op | None:
    """max_pool(pad(x, p, -∞), pads=q) → max_pool(x, pads=p + q)."""
    pads = spatial_pads(op.x, op.pads, context)
    if pads is None or not isinstance(op.x, Pad) or op.x.value != -math.inf:
        return None
    moved = MaxPool(op.x.x, op.window, op.stride, pads, op.dilation, op.ceil)
    return moved if moved.shape == op.shape else None


@rule(AveragePool)
def pad_into_average_pool(op: AveragePool, context: RewriteContext) -> Op | None:
    """average_pool(pad(x, p, 0)) → average_pool(x, pads=p) that counts the padding."""
    pads = spatial_pads(op.x, op.pads, context)
    if pads is None or not isinstance(op.x, Pad) or op.x.value != 0 or (any(op.pads) and not op.count_pad):
        return None
    moved = AveragePool(op.x.x, op.window, op.stride, pads, op.dilation, op.ceil, count_pad=True)
    return moved if moved.shape == op.shape else None


RULES = (
    zero_bias,
    sum_plus_zero,
    matmul_bias,
    gemm_of_transpose,
    matmul_of_transpose,
    gemm_factors,
    pad_into_max_pool,
    pad_into_average_pool,
)
