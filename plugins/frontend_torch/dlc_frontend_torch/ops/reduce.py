"""Reductions, and sums and products along an axis."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dlc.base.types import bool_, i64
from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc.ops import reduce as r
from dlc.ops.index import GatherElements
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import axes, axis, cast, dtype_of, floats, number, reshaped


def _reduced(make: Callable[..., Op], x: Op, dim: Any, keepdim: bool) -> Op:
    if not x.shape:
        return x
    return make(x, axes=axes(dim, len(x.shape)), keep=keepdim)


@aten("sum")
def total(x: Op, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Op:
    """Σ x; of integers an i64."""
    x = cast(x, dtype_of(dtype, x.dtype if x.dtype.is_float else i64))
    return _reduced(r.ReduceSum, x, dim, keepdim)


@aten("mean")
def mean(x: Op, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Op:
    """Σ x / n."""
    return _reduced(r.ReduceMean, cast(x, dtype_of(dtype, x.dtype)), dim, keepdim)


@aten("prod")
def product(x: Op, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Op:
    """Π x; of integers an i64."""
    x = cast(x, dtype_of(dtype, x.dtype if x.dtype.is_float else i64))
    return _reduced(r.ReduceProd, x, dim, keepdim)


@aten("amax")
def amax(x: Op, dim: Any = (), keepdim: bool = False) -> Op:
    """The largest element; equal ones share the gradient."""
    return _reduced(r.ReduceMax, x, dim, keepdim)


@aten("amin")
def amin(x: Op, dim: Any = (), keepdim: bool = False) -> Op:
    """The smallest element."""
    return _reduced(r.ReduceMin, x, dim, keepdim)


@aten("max.default")
def largest(x: Op) -> Op:
    """The largest element of all."""
    return amax(x)


@aten("min.default")
def smallest(x: Op) -> Op:
    """The smallest element of all."""
    return amin(x)


@aten("max.dim")
def max_along(x: Op, dim: int, keepdim: bool = False) -> tuple[Op, Op]:
    """The largest element along an axis, and its subscript."""
    return _extreme(r.ArgMax, x, dim, keepdim)


@aten("min.dim")
def min_along(x: Op, dim: int, keepdim: bool = False) -> tuple[Op, Op]:
    """The smallest element along an axis, and its subscript."""
    return _extreme(r.ArgMin, x, dim, keepdim)


def _extreme(make: Callable[..., Op], x: Op, dim: int, keepdim: bool) -> tuple[Op, Op]:
    d = axis(dim, len(x.shape))
    place = make(x, axis=d, keep=True)
    y = GatherElements(x, place, axis=d)
    if keepdim:
        return y, place
    shape = (*x.shape[:d], *x.shape[d + 1 :])
    return reshaped(y, shape), reshaped(place, shape)


@aten("argmax")
def argmax(x: Op, dim: int | None = None, keepdim: bool = False) -> Op:
    """The subscript of the largest element."""
    return _place(r.ArgMax, x, dim, keepdim)


@aten("argmin")
def argmin(x: Op, dim: int | None = None, keepdim: bool = False) -> Op:
    """The subscript of the smallest element."""
    return _place(r.ArgMin, x, dim, keepdim)


def _place(make: Callable[..., Op], x: Op, dim: int | None, keepdim: bool) -> Op:
    if dim is None:
        if keepdim:
            raise Unsupported("keepdim of all dimensions")
        return make(reshaped(x, (x.type.size,)), axis=0, keep=False)
    return make(x, axis=axis(dim, len(x.shape)), keep=keepdim)


@aten("any")
def any_(x: Op, dim: Any = None, keepdim: bool = False) -> Op:
    """Whether any element is not 0."""
    return cast(_reduced(r.ReduceMax, cast(cast(x, bool_), i64), dim, keepdim), bool_)


@aten("all")
def all_(x: Op, dim: Any = None, keepdim: bool = False) -> Op:
    """Whether all elements are not 0."""
    return cast(_reduced(r.ReduceMin, cast(cast(x, bool_), i64), dim, keepdim), bool_)


def moments(x: Op, dim: Any, correction: float, keepdim: bool) -> tuple[Op, Op]:
    """Variance and mean."""
    over = axes(dim, len(x.shape))
    middle = r.ReduceMean(x, axes=over, keep=True)
    off = e.Sub(x, middle)
    count: Any = math.prod(x.shape[d] for d in over)
    spread = r.ReduceSum(e.Mul(off, off), axes=over, keep=keepdim)
    divisor = number(float(count - correction) if isinstance(count, int) else count - int(correction), x.dtype)
    flat = middle if keepdim else r.ReduceMean(x, axes=over, keep=False)
    return e.Div(spread, divisor), flat


def _correction(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        return dim, float(unbiased)
    return dim, 1.0 if correction is None else float(correction)


@aten("var")
def var(x: Op, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Op:
    """Variance."""
    dim, correction = _correction(dim, unbiased, correction)
    return moments(x, dim, correction, keepdim)[0]


@aten("std")
def std(x: Op, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Op:
    """Standard deviation."""
    return e.Sqrt(var(x, dim, unbiased, keepdim, correction))


@aten("var_mean")
def var_mean(
    x: Op, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> tuple[Op, Op]:
    """Variance and mean."""
    dim, correction = _correction(dim, unbiased, correction)
    return moments(x, dim, correction, keepdim)


@aten("logsumexp")
def logsumexp(x: Op, dim: Any, keepdim: bool = False) -> Op:
    """ln Σ exp x."""
    return _reduced(r.ReduceLogSumExp, x, dim, keepdim)


@aten("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar", "frobenius_norm")
def norm(x: Op, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Op:
    """(Σ |x|^p)^(1/p)."""
    x = cast(floats(x), dtype_of(dtype, floats(x).dtype))
    if ord in (2, None):
        return _reduced(r.ReduceL2, x, dim, keepdim)
    if ord == 1:
        return _reduced(r.ReduceL1, x, dim, keepdim)
    if ord in (math.inf, -math.inf):
        return _reduced(r.ReduceMax if ord > 0 else r.ReduceMin, e.Abs(x), dim, keepdim)
    power = e.Pow(e.Abs(x), number(float(ord), x.dtype))
    return e.Pow(_reduced(r.ReduceSum, power, dim, keepdim), number(1 / ord, x.dtype))


@aten("cumsum")
def cumsum(x: Op, dim: int, dtype: Any = None) -> Op:
    """Σ of the elements up to each one."""
    x = cast(x, dtype_of(dtype, x.dtype if x.dtype.is_float else i64))
    return r.CumSum(x, axis=axis(dim, len(x.shape))) if x.shape else x


@aten("cumprod")
def cumprod(x: Op, dim: int, dtype: Any = None) -> Op:
    """Π of the elements up to each one."""
    x = cast(x, dtype_of(dtype, x.dtype if x.dtype.is_float else i64))
    return r.CumProd(x, axis=axis(dim, len(x.shape))) if x.shape else x
