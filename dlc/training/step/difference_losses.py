"""Losses whose labels are what the prediction should have been."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dlc.base.diagnostics import ExitCode, error
from dlc.base.types import Type
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import loss as ops
from dlc.ops.elementwise import Sigmoid
from dlc.spec import option
from dlc.training.step.loss import REDUCTION, Loss, Reduction, vector


@dataclass(frozen=True)
class _Difference(Loss):
    """A loss whose labels have the prediction's type."""

    name: ClassVar[str]

    def _labels(self, prediction: Type) -> Type:
        if not prediction.dtype.is_float:
            raise ShapeError(f"predictions must be floats: {prediction}")
        return prediction


@dataclass(frozen=True)
class _Plain(_Difference):
    """A loss without options of its own."""

    op: ClassVar[Callable[..., Op]]
    """What computes it."""
    reduction: Reduction = option("mean", REDUCTION)

    def _value(self, prediction: Op, labels: Op) -> Op:
        return type(self).op(prediction, labels, reduction=self.reduction)


@dataclass(frozen=True)
class Mse(_Plain):
    """Mean squared error."""

    name: ClassVar[str] = "mse"
    op = ops.MeanSquaredError


@dataclass(frozen=True)
class L1(_Plain):
    """Mean absolute error."""

    name: ClassVar[str] = "l1"
    op = ops.MeanAbsoluteError


@dataclass(frozen=True)
class Huber(_Difference):
    """Half the squared error where it is small, a multiple of the absolute error beyond."""

    name: ClassVar[str] = "huber"
    delta: float = option(1.0, "error from which on it grows evenly; above 0")
    reduction: Reduction = option("mean", REDUCTION)

    def __post_init__(self) -> None:
        """Refuse a delta that leaves nothing, or no limit."""
        if not 0 < self.delta < math.inf:
            help = "without a limit use mse, which is twice as large"
            raise error(
                "bad-option",
                f"huber: delta={self.delta} is not positive and finite",
                help=help,
                exit_code=ExitCode.USAGE,
            )

    def _value(self, prediction: Op, labels: Op) -> Op:
        return ops.Huber(prediction, labels, delta=self.delta, reduction=self.reduction)


@dataclass(frozen=True)
class Bce(_Difference):
    """Binary cross-entropy of scores before a sigmoid; labels are probabilities of yes, 0 to 1.

    Of a prediction that is a sigmoid already, the loss reads what it is the sigmoid of.
    """

    name: ClassVar[str] = "bce"
    pos_weight: tuple[float, ...] = option(
        (), "what yes counts beside no: one number, or one for each of the last", low=0
    )
    reduction: Reduction = option("mean", REDUCTION)

    def _value(self, prediction: Op, labels: Op) -> Op:
        weight = vector(self.pos_weight, prediction.dtype)
        scores = prediction.x if isinstance(prediction, Sigmoid) else prediction
        return ops.BinaryCrossEntropyWithLogits(scores, labels, weight, reduction=self.reduction)
