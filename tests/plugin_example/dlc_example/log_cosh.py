"""`LogCosh`: a loss for regression."""

import math
from dataclasses import dataclass

from dlc import Op, Type, option
from dlc.ops.elementwise import Add, Softplus, Sub
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.training.parts import Loss, Reduction, scalar, times


@dataclass(frozen=True)
class LogCosh(Loss):
    """ln cosh(prediction - labels): d²/2 where the difference d is small, |d| - ln 2 where it is large."""

    name = "log-cosh"
    reduction: Reduction = option("mean", "over all elements: their mean, or their sum")

    def _labels(self, prediction: Type) -> Type:
        return prediction

    def _value(self, prediction: Op, labels: Op) -> Op:
        d = Sub(prediction, labels)
        # cosh overflows where d is large: ln cosh d = d + ln(1 + e^(-2d)) - ln 2.
        each = Add(Add(d, Softplus(times(d, -2.0))), scalar(-math.log(2.0), d.dtype))
        return (ReduceMean if self.reduction == "mean" else ReduceSum)(each, axes=tuple(range(d.type.rank)))
