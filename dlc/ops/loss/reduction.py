"""What losses share: one number of many rows, and operands that fit."""

from __future__ import annotations

from typing import Final

from dlc.base.types import Type
from dlc.graph.op import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Div
from dlc.ops.reduce import ReduceMean, ReduceSum

REDUCTIONS: Final = ("mean", "sum", "none")
"""What `reduction` may be: one number by mean or sum, or the loss of every row."""


def reduced(rows: Op, reduction: str, weights: Op | None = None) -> Op:
    """The rows as `reduction` asks for them; a mean divides by the sum of the weights, where rows have any."""
    if reduction not in REDUCTIONS:
        raise ShapeError(f"unknown reduction {reduction!r}: it is one of {', '.join(REDUCTIONS)}")
    axes = tuple(range(len(rows.shape)))
    if reduction == "none":
        return rows
    if reduction == "sum":
        return ReduceSum(rows, axes=axes)
    if weights is None:
        return ReduceMean(rows, axes=axes)
    return Div(ReduceSum(rows, axes=axes), ReduceSum(weights, axes=axes))


def check_floats(of: Type) -> None:
    """Refuse predictions that are no floats."""
    if not of.dtype.is_float:
        raise ShapeError(f"predictions must be floats: {of}")


def check_alike(prediction: Op, other: Op, what: str) -> None:
    """Refuse another operand that is not of the type of the predictions, or predictions that are no floats."""
    check_floats(prediction.type)
    if other.type != prediction.type:
        raise ShapeError(f"{what} {other.type} must be of the type of the predictions, {prediction.type}")
