"""Losses of single numbers: of regressions, and of yes or no."""

from __future__ import annotations

import math

from dlc.graph.op import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Abs, Add, LessOrEqual, Mul, Neg, Softplus, Sub, Where
from dlc.ops.loss.reduction import check_alike, reduced
from dlc.ops.pointwise import broadcast, scalar


class MeanSquaredError(Op):
    """y = (x - target)², reduced. torch.nn.functional.mse_loss."""

    x: Op
    target: Op
    reduction: str = "mean"

    def expand(self) -> Op:
        check_alike(self.x, self.target, "targets")
        error = Sub(self.x, self.target)
        return reduced(Mul(error, error), self.reduction)


class MeanAbsoluteError(Op):
    """y = |x - target|, reduced; the gradient is 0 where they are equal. torch.nn.functional.l1_loss."""

    x: Op
    target: Op
    reduction: str = "mean"

    def expand(self) -> Op:
        check_alike(self.x, self.target, "targets")
        return reduced(Abs(Sub(self.x, self.target)), self.reduction)


class Huber(Op):
    """y = e²/2 where |e| <= delta, else delta · (|e| - delta/2), with e = x - target; reduced.

    Huber 1964, "Robust Estimation of a Location Parameter"; torch.nn.functional.huber_loss.
    """

    x: Op
    target: Op
    delta: float = 1.0
    reduction: str = "mean"

    def expand(self) -> Op:
        if not 0 < self.delta < math.inf:
            raise ShapeError(f"delta of {self.delta}: it is positive")
        check_alike(self.x, self.target, "targets")
        error = Sub(self.x, self.target)
        size, delta, half = (Abs(error), *(scalar(v, self.x.dtype) for v in (self.delta, 0.5)))
        square = Mul(Mul(error, error), half)
        line = Mul(Sub(size, scalar(self.delta / 2, self.x.dtype)), delta)
        return reduced(Where(LessOrEqual(size, delta), square, line), self.reduction)


class BinaryCrossEntropyWithLogits(Op):
    """y = -pos_weight · t · ln σ(x) - (1 - t) · ln(1 - σ(x)), t = target in [0, 1]; reduced.

    pos_weight broadcasts to x. Computed as pos_weight · t · softplus(-x) + (1 - t) · softplus(x), which overflows
    nowhere, and whose gradient, (1 - t) · σ(x) - pos_weight · t · σ(-x), keeps its digits far out on both sides.
    torch.nn.functional.binary_cross_entropy_with_logits.
    """

    x: Op
    target: Op
    pos_weight: Op | None = None
    reduction: str = "mean"

    def expand(self) -> Op:
        check_alike(self.x, self.target, "targets")
        positive = self.target
        if (weight := self.pos_weight) is not None:
            if weight.dtype != self.x.dtype or broadcast(weight.shape, self.x.shape) != self.x.shape:
                raise ShapeError(f"pos_weight {weight.type} does not broadcast to {self.x.type}")
            positive = Mul(positive, weight)
        negative = Sub(scalar(1.0, self.x.dtype), self.target)
        loss = Add(Mul(positive, Softplus(Neg(self.x))), Mul(negative, Softplus(self.x)))
        return reduced(loss, self.reduction)
