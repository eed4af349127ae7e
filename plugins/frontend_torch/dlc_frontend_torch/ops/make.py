"""Operators that make tensors of numbers."""

from __future__ import annotations

import math
from typing import Any

from dlc.base.extents import is_extent
from dlc.base.types import DType, Type, bool_, f32, i64
from dlc.graph import Op, Splat
from dlc.ops import elementwise as e
from dlc.ops.sizes import Count
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import cast, constant, dtype_of, expanded, number, reshaped


def filled(shape: Any, value: Any, dtype: DType) -> Op:
    """One value in every element."""
    if isinstance(value, Op):
        return expanded(cast(value, dtype), tuple(shape))
    if not isinstance(value, (bool, int, float)):
        return expanded(number(value, dtype), tuple(shape))
    plain = float(value) if dtype.is_float else bool(value) if dtype == bool_ else int(value)
    return Splat(plain, Type(dtype, tuple(shape)))


@aten("full")
def full(size: Any, value: Any, dtype: Any = None) -> Op:
    """A tensor of one value."""
    default = bool_ if isinstance(value, bool) else i64 if is_extent(value) else f32
    return filled(size, value, dtype_of(dtype, default))


@aten("zeros", "empty.memory_format", "empty")
def zeros(size: Any, dtype: Any = None) -> Op:
    """A tensor of zeros."""
    return filled(size, 0, dtype_of(dtype))


@aten("ones")
def ones(size: Any, dtype: Any = None) -> Op:
    """A tensor of ones."""
    return filled(size, 1, dtype_of(dtype))


@aten("full_like", "fill")
def full_like(x: Op, value: Any, dtype: Any = None) -> Op:
    """A tensor of one value, shaped as another."""
    return filled(x.shape, value, dtype_of(dtype, x.dtype))


@aten("zeros_like", "empty_like", "zero")
def zeros_like(x: Op, dtype: Any = None) -> Op:
    """Zeros, shaped as another tensor."""
    return filled(x.shape, 0, dtype_of(dtype, x.dtype))


@aten("ones_like")
def ones_like(x: Op, dtype: Any = None) -> Op:
    """Ones, shaped as another tensor."""
    return filled(x.shape, 1, dtype_of(dtype, x.dtype))


@aten("new_zeros", "new_empty")
def new_zeros(x: Op, size: Any, dtype: Any = None) -> Op:
    """Zeros of the element type of another tensor."""
    return filled(size, 0, dtype_of(dtype, x.dtype))


@aten("new_ones")
def new_ones(x: Op, size: Any, dtype: Any = None) -> Op:
    """Ones of the element type of another tensor."""
    return filled(size, 1, dtype_of(dtype, x.dtype))


@aten("new_full")
def new_full(x: Op, size: Any, value: Any, dtype: Any = None) -> Op:
    """One value, of the element type of another tensor."""
    return filled(size, value, dtype_of(dtype, x.dtype))


@aten("arange.default")
def arange(end: Any, dtype: Any = None) -> Op:
    """0, 1, … up to `end`."""
    return arange_from(0, end, 1, dtype)


@aten("arange.start")
def arange_start(start: Any, end: Any, dtype: Any = None) -> Op:
    """start, start + 1, … up to `end`."""
    return arange_from(start, end, 1, dtype)


@aten("arange.start_step")
def arange_from(start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Op:
    """start, start + step, … up to `end`."""
    whole = all(is_extent(v) for v in (start, end, step))
    of = dtype_of(dtype, i64 if whole else f32)
    if not whole:
        count = math.ceil((end - start) / step)
        return constant([start + k * step for k in range(count)], of)
    count = (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    return cast(Count(count, start=start, step=step), of)


@aten("eye")
def eye(n: int, m: int | None = None, dtype: Any = None) -> Op:
    """The identity matrix; `eye.m` gives its columns."""
    rows, columns = Count(n), Count(n if m is None else m)
    return cast(e.Equal(reshaped(rows, (n, 1)), columns), dtype_of(dtype))


@aten("linspace")
def linspace(start: float, end: float, steps: int, dtype: Any = None) -> Op:
    """`steps` numbers from start to end."""
    step = (end - start) / max(steps - 1, 1)
    return constant([start + k * step for k in range(steps)], dtype_of(dtype))


@aten(
    "rand", "randn", "rand_like", "randn_like", "bernoulli", "randint", "randperm", "multinomial", "normal", "uniform"
)
def random(*ignored: Any, **also: Any) -> Op:
    """Random numbers are PyTorch's own."""
    del ignored, also
    raise Unsupported("it draws random numbers of PyTorch", "pass the numbers as an input of the module")
