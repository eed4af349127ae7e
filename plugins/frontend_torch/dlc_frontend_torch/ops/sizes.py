"""Sizes, numbers and tuples, which programs of PyTorch compute beside tensors."""

from __future__ import annotations

import operator
from typing import Any

from dlc.base.types import f32, i64
from dlc.graph import Op
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.values import dtype_of, number


@aten("sym_size.int", "sym_size")
def sym_size(x: Op, dim: int) -> Any:
    """A dimension."""
    return x.shape[dim]


@aten("sym_numel")
def sym_numel(x: Op) -> Any:
    """The number of elements."""
    return x.type.size


@aten("scalar_tensor")
def scalar_tensor(value: Any, dtype: Any = None) -> Op:
    """A number as a tensor."""
    return number(value, dtype_of(dtype, f32 if isinstance(value, float) else i64))


@aten(
    "_assert_scalar", "_assert_async", "_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_constrain_range"
)
def checked(*ignored: Any, **also: Any) -> None:
    """Assertions of the exporter: programs of dlc check their own sizes."""
    del ignored, also


@aten("_operator.getitem")
def getitem(values: Any, index: int) -> Any:
    """One of several results."""
    return values[index]


def _declare_sizes() -> None:
    compared = {"eq", "ne", "lt", "le", "gt", "ge"}
    for name in sorted(compared):
        aten(f"_operator.{name}")(getattr(operator, name))
    aten("_operator.neg")(operator.neg)
    aten("torch.sym_int")(int)
    aten("torch.sym_float")(float)
    aten("torch.sym_max")(max)
    aten("torch.sym_min")(min)
    aten("math.trunc")(int)


_declare_sizes()
