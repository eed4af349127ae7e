"""What rules share: element types that meet, numbers as operands, axes, sizes."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.base.extents import is_extent
from dlc.base.types import DType, Type, bool_, f32, i64
from dlc.graph import Constant, Op, Splat, Tensor
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import shape as s
from dlc.ops.pointwise import broadcast, normalized, scalar
from dlc_frontend_torch.nodes import DTYPES
from dlc_frontend_torch.unsupported import Unsupported


def cast(x: Op, dtype: DType) -> Op:
    """x as another element type."""
    if x.dtype == dtype:
        return x
    if isinstance(x, Splat):
        value = x.value
        if dtype == bool_:
            return Splat(bool(value), Type(dtype, x.shape))
        return Splat(float(value) if dtype.is_float else int(value), Type(dtype, x.shape))
    return e.Cast(x, to=dtype)


def dtype_of(name: Any, default: DType = f32) -> DType:
    """dlc's element type for the name of PyTorch's; `default` for None."""
    if name is None:
        return default
    if name not in DTYPES:
        raise Unsupported(f"element type {name}")
    return DTYPES[name]


def number(value: Any, dtype: DType) -> Op:
    """A number, or a symbolic size, as an operand that broadcasts."""
    return scalar(value, dtype)


def constant(values: Any, dtype: DType) -> Op:
    """A small constant."""
    return Constant(Tensor.of(np.asarray(values, dtype.numpy)))


def is_number(value: Any) -> bool:
    """Whether an argument is a number or a symbolic size, and no tensor."""
    return isinstance(value, (int, float)) or is_extent(value)


def _category(dtype: DType) -> int:
    return 2 if dtype.is_float else 0 if dtype == bool_ else 1


def promoted(*values: Any) -> DType:
    """The element type in which operands meet: torch.result_type.

    Tensors with dimensions count before those without, those before numbers, as long as the category (bool, integer,
    float) is no lower.
    """
    ranked = [v.dtype for v in values if isinstance(v, Op) and v.shape]
    scalars = [v.dtype for v in values if isinstance(v, Op) and not v.shape]
    numbers = [bool_ if isinstance(v, bool) else f32 if isinstance(v, float) else i64 for v in values if is_number(v)]
    found: DType | None = None
    for group in (ranked, scalars, numbers):
        if not group:
            continue
        own = group[0]
        for other in group[1:]:
            own = _joined(own, other)
        if found is None or _category(own) > _category(found):
            found = own
    if found is None:
        raise Unsupported("operands without an element type")
    return found


def _joined(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if _category(a) != _category(b):
        return a if _category(a) > _category(b) else b
    if a.is_float:
        return f32 if a.bits == b.bits else a if a.bits > b.bits else b
    wide = np.promote_types(a.numpy, b.numpy)
    return next(d for d in DTYPES.values() if d.numpy == wide)


def operand(value: Any, dtype: DType) -> Op:
    """A tensor or number as an operand of an element type."""
    if isinstance(value, Op):
        return cast(value, dtype)
    if isinstance(value, float) and not dtype.is_float:
        value = int(value)
    return number(value, dtype)


def floats(x: Any) -> Op:
    """x, or as float where it has integers: what functions such as exp take."""
    if not isinstance(x, Op):
        return number(float(x), f32)
    return x if x.dtype.is_float else cast(x, f32)


def axis(dim: int, rank: int) -> int:
    """An axis counted from the front."""
    return normalized(dim, max(rank, 1))


def axes(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; all for none."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return tuple(axis(d, rank) for d in listed) if rank else ()


def reshaped(x: Op, shape: Sequence[Any]) -> Op:
    """x in another shape."""
    return x if tuple(shape) == tuple(x.shape) else s.Reshape(x, to=tuple(shape))


def expanded(x: Op, shape: Sequence[Any]) -> Op:
    """x broadcast to a shape."""
    if tuple(x.shape) == tuple(shape):
        return x
    if broadcast(x.shape, tuple(shape)) != tuple(shape):
        raise ShapeError(f"{x.type.text} does not broadcast to {list(shape)}")
    return Splat(x.value, x.type.with_shape(tuple(shape))) if isinstance(x, Splat) else s.Expand(x, to=tuple(shape))


def transposed(x: Op, perm: Sequence[int]) -> Op:
    """x with its dimensions in another order."""
    return x if tuple(perm) == tuple(range(len(x.shape))) else s.Transpose(x, perm=tuple(perm))


def cut(x: Op, dim: int, start: Any, size: Any, step: int = 1) -> Op:
    """`size` elements along an axis."""
    rank = len(x.shape)
    starts = tuple(start if d == dim else 0 for d in range(rank))
    sizes = tuple(size if d == dim else x.shape[d] for d in range(rank))
    if starts == (0,) * rank and sizes == tuple(x.shape) and step == 1:
        return x
    return s.Slice(x, starts=starts, sizes=sizes, steps=tuple(step if d == dim else 1 for d in range(rank)))


def joined(xs: Sequence[Op], dim: int) -> Op:
    """Tensors one after the other along an axis."""
    return xs[0] if len(xs) == 1 else s.Concat(tuple(xs), axis=dim)


def pair(value: Any, rank: int) -> tuple[Any, ...]:
    """A number for each spatial dimension."""
    if isinstance(value, (list, tuple)):
        return tuple(value) if len(value) == rank else tuple(value) * rank
    return (value,) * rank
