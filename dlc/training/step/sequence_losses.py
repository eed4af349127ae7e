"""Losses of labels in order, of predictions over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from dlc.api.training import Classes
from dlc.base.types import Type, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import loss as ops
from dlc.ops.normalize import Softmax
from dlc.ops.shape import Transpose
from dlc.spec import option
from dlc.training.step.loss import Loss, Reduction


@dataclass(frozen=True)
class Ctc(Loss):
    """Connectionist temporal classification: labels in order that say nothing of when; scores [N, T, C].

    A prediction that is a softmax or a log-softmax along the classes already does as well.
    """

    name: ClassVar[str] = "ctc"
    length: int = option(0, "places for the labels of a row, the rest blank; 0: as many as there are times", low=0)
    blank: int = option(0, "class that stands for no label, and that ends the labels of a row", low=0)
    time: Literal[0, 1] = option(1, "dimension of time in the prediction: 1 for [N, T, C], 0 for [T, N, C]")
    zero_infinity: bool = option(False, "rows whose labels do not fit into the time count 0, not infinity")
    reduction: Reduction = option("mean", "over all rows: the mean of each by the number of its labels, or the sum")

    def classes(self, prediction: Type) -> Classes | None:
        """See `Loss.classes`."""
        return Classes(prediction.shape[-1])

    def _labels(self, prediction: Type) -> Type:
        if prediction.rank != 3 or not prediction.dtype.is_float:
            raise ShapeError(f"scores must be floats for rows, times and classes: {prediction}")
        times = prediction.shape[self.time]
        if self.length > times:
            raise ShapeError(f"{self.length} labels never fit into the {times} times of {prediction}")
        return Type(i64, (prediction.shape[1 - self.time], self.length or times))

    def _value(self, prediction: Op, labels: Op) -> Op:
        if labels.shape != self._labels(prediction.type).shape:
            raise ShapeError(f"labels are {labels.type}, not {self._labels(prediction.type)}")
        is_softmax = isinstance(prediction, Softmax) and prediction.axis % 3 == 2
        scores = prediction.operands[0] if is_softmax else prediction
        scores = scores if self.time == 1 else Transpose(scores, perm=(1, 0, 2))
        return ops.Ctc(scores, labels, self.blank, self.zero_infinity, self.reduction)
