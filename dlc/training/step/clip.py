"""Gradient clipping by the norm of all gradients together; Pascanu et al. 2013, algorithm 1.

    n = √Σ_k Σ_i g_k[i]²,   g_k → g_k · min(limit / (n + 10⁻⁶), 1)

As torch.nn.utils.clip_grad_norm_ computes it: gradients that are all zero stay as they are; where the norm is infinite,
finite gradients become 0 and infinite ones NaN; where it is NaN, all become NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from dlc.base.types import DType, f32, f64
from dlc.graph import Op
from dlc.ops.elementwise import Add, Cast, Div, Minimum, Mul, Sqrt
from dlc.ops.pointwise import scalar
from dlc.ops.reduce import ReduceSumSquare

_MARGIN: Final = 1e-6
"""Keeps the division defined for a norm of 0; part of PyTorch's definition."""


def global_norm(gradients: Sequence[Op]) -> Op:
    """The Euclidean norm of all elements of all gradients.

    Args:
        gradients: At least one; float, of any shapes.

    Returns:
        f64[] where a gradient is f64, else f32[]: squares of f16 would overflow above 255.
    """
    dtype = f64 if any(g.dtype == f64 for g in gradients) else f32
    sums = [ReduceSumSquare(_as(g, dtype), axes=tuple(range(len(g.shape)))) for g in gradients]
    return Sqrt(reduce(Add, sums))


def clip_by_global_norm(gradients: Sequence[Op], limit: float) -> tuple[tuple[Op, ...], Op]:
    """The gradients, scaled down together where their norm is above a limit.

    Args:
        gradients: At least one; float, of any shapes.
        limit: Largest norm, above 0.

    Returns:
        The gradients, of their types, and the norm that they had (see `global_norm`).

    Raises:
        ValueError: there is no gradient, or the limit is not above 0.
    """
    if not gradients or not limit > 0:
        raise ValueError(f"{len(gradients)} gradients cannot be clipped to a norm of {limit}")
    norm = global_norm(gradients)
    factor = Minimum(Div(scalar(limit, norm.dtype), Add(norm, scalar(_MARGIN, norm.dtype))), scalar(1.0, norm.dtype))
    return tuple(_scaled(g, factor) for g in gradients), norm


def _scaled(gradient: Op, factor: Op) -> Op:
    """The gradient times a factor of the same or a wider type, rounded once."""
    wide = f32 if gradient.dtype.itemsize < f32.itemsize else gradient.dtype
    return _as(Mul(_as(gradient, wide), _as(factor, wide)), gradient.dtype)


def _as(x: Op, dtype: DType) -> Op:
    return x if x.dtype == dtype else Cast(x, to=dtype)
