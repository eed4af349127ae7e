"""Activations, and what limits values."""

from __future__ import annotations

from typing import Any

from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import axis, cast, cut, number, operand, promoted, reshaped


@aten("clamp", "clip")
def clamp(x: Op, min: Any = None, max: Any = None) -> Op:
    """x limited from below and above."""
    dtype = promoted(*(v for v in (x, min, max) if v is not None))
    y = cast(x, dtype)
    if not isinstance(min, Op) and not isinstance(max, Op):
        kind = float if dtype.is_float else int
        return e.Clip(y, low=None if min is None else kind(min), high=None if max is None else kind(max))
    y = y if min is None else e.Maximum(y, operand(min, dtype))
    return y if max is None else e.Minimum(y, operand(max, dtype))


@aten("clamp_min")
def clamp_min(x: Op, min: Any) -> Op:
    """x limited from below."""
    return clamp(x, min)


@aten("clamp_max")
def clamp_max(x: Op, max: Any) -> Op:
    """x limited from above."""
    return clamp(x, None, max)


@aten("hardtanh")
def hardtanh(x: Op, min_val: float = -1.0, max_val: float = 1.0) -> Op:
    """x limited to an interval."""
    return clamp(x, min_val, max_val)


@aten("gelu")
def gelu(x: Op, approximate: str = "none") -> Op:
    """Gaussian error linear unit."""
    return e.Gelu(x, approximate="tanh" if approximate == "tanh" else "none")


@aten("leaky_relu")
def leaky_relu(x: Op, negative_slope: float = 0.01) -> Op:
    """x, or a part of it where it is negative."""
    return e.LeakyRelu(x, alpha=float(negative_slope))


@aten("elu")
def elu(x: Op, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Op:
    """scale · x, or scale · alpha · (exp(input_scale · x) - 1) where x is negative."""
    if input_scale != 1:
        raise Unsupported(f"elu with input_scale {input_scale}")
    y = e.Elu(x, alpha=float(alpha))
    return y if scale == 1 else e.Mul(y, number(float(scale), x.dtype))


@aten("celu")
def celu(x: Op, alpha: float = 1.0) -> Op:
    """Continuously differentiable exponential linear unit."""
    return e.Celu(x, alpha=float(alpha))


@aten("softplus")
def softplus(x: Op, beta: float = 1.0, threshold: float = 20.0) -> Op:
    """ln(1 + exp(beta · x)) / beta; the threshold only keeps PyTorch's own formula from overflowing."""
    del threshold
    if beta == 1:
        return e.Softplus(x)
    return e.Div(e.Softplus(e.Mul(x, number(float(beta), x.dtype))), number(float(beta), x.dtype))


@aten("prelu", "_prelu_kernel")
def prelu(x: Op, weight: Op) -> Op:
    """x, or a learned part of it where it is negative."""
    if len(weight.shape) == 1 and len(x.shape) > 1:
        weight = reshaped(weight, (weight.shape[0], *(1,) * (len(x.shape) - 2)))
    return e.PRelu(x, weight)


@aten("glu")
def glu(x: Op, dim: int = -1) -> Op:
    """The first half, gated by the second."""
    d = axis(dim, len(x.shape))
    half = x.shape[d] // 2
    return e.Mul(cut(x, d, 0, half), e.Sigmoid(cut(x, d, half, half)))
