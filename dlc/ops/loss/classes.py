"""Losses of classifiers."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.base.allowed import Demand
from dlc.graph.op import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Add, Mul, Neg, Where
from dlc.ops.loss.labels import (
    PickLabel,
    check_labels,
    check_weights,
    counted,
    label_demands,
    label_type,
    over_classes,
    row_weights,
)
from dlc.ops.loss.reduction import check_alike, reduced
from dlc.ops.loss.softmax import LabelCrossEntropy, TargetCrossEntropy
from dlc.ops.pointwise import normalized, scalar
from dlc.ops.shape import Expand


class CrossEntropy(Op):
    """y = -Σ q · ln p with p = softmax of scores[N, C, d…] along `axis`, and q what the labels say of each row.

    Labels are integers [N, d…], or probabilities of the scores' type (one-hot, or any). Class weights [C] multiply the
    loss of each class; a mean over integer labels divides by the sum of the weights of what is counted, that over
    probabilities by the number of rows. ONNX SoftmaxCrossEntropyLoss 13; torch.nn.functional.cross_entropy.
    """

    scores: Op
    labels: Op
    weights: Op | None = None
    axis: int = 1
    ignore_index: int | None = None
    label_smoothing: float = 0.0
    reduction: str = "mean"

    def expand(self) -> Op:
        if not 0 <= self.label_smoothing <= 1:
            raise ShapeError(f"label smoothing of {self.label_smoothing}: it is between 0 and 1")
        label_type(self.scores.type, self.axis)
        if self.labels.dtype.is_float:
            return reduced(self._of_probabilities(), self.reduction)
        rows = row_weights(self.scores, self.labels, self.weights, self.axis, self.ignore_index)
        return reduced(self._of_labels(rows), self.reduction, rows)

    def demands(self) -> Mapping[str, Demand]:
        return label_demands(self.labels, self.scores, self.axis, self.ignore_index)

    def _of_labels(self, rows: Op | None) -> Op:
        s = self.label_smoothing
        smoothing = 0.0 if self.weights is not None else s
        loss = LabelCrossEntropy(self.scores, self.labels, self.axis, self.ignore_index, smoothing)
        if self.weights is None or rows is None:
            return loss
        if not s:
            return Mul(loss, rows)
        classes = self.weights.shape[0]
        uniform = Expand(over_classes(self.weights, self.scores, self.axis), to=self.scores.shape)
        every = TargetCrossEntropy(self.scores, uniform, axis=self.axis)
        mixed = Add(
            Mul(Mul(loss, rows), scalar(1 - s, loss.dtype)),
            Mul(every, scalar(s / classes, loss.dtype)),
        )
        return Where(counted(self.labels, classes, self.ignore_index), mixed, loss)

    def _of_probabilities(self) -> Op:
        if self.ignore_index is not None:
            raise ShapeError(f"labels of type {self.labels.type} are probabilities: none of them can be ignored")
        q, s = self.labels, self.label_smoothing
        check_alike(self.scores, q, "labels")
        if s:
            share = s / self.scores.shape[normalized(self.axis, len(self.scores.shape))]
            q = Add(Mul(q, scalar(1 - s, q.dtype)), scalar(share, q.dtype))
        if self.weights is not None:
            check_weights(self.weights, self.scores, self.axis)
            q = Mul(q, over_classes(self.weights, self.scores, self.axis))
        return TargetCrossEntropy(self.scores, q, axis=self.axis)


class NegativeLogLikelihood(Op):
    """y = -x at the class that each row's label names; x[N, C, d…] holds logarithms of probabilities.

    Labels are integers [N, d…]. Class weights and reduction as in `CrossEntropy`. ONNX NegativeLogLikelihoodLoss 13;
    torch.nn.functional.nll_loss.
    """

    x: Op
    labels: Op
    weights: Op | None = None
    axis: int = 1
    ignore_index: int | None = None
    reduction: str = "mean"

    def expand(self) -> Op:
        check_labels(self.labels.type, self.x.type, self.axis)
        rows = row_weights(self.x, self.labels, self.weights, self.axis, self.ignore_index)
        loss = Neg(PickLabel(self.x, self.labels, axis=self.axis, ignore_index=self.ignore_index))
        weighted = loss if self.weights is None or rows is None else Mul(loss, rows)
        return reduced(weighted, self.reduction, rows)

    def demands(self) -> Mapping[str, Demand]:
        return label_demands(self.labels, self.x, self.axis, self.ignore_index)
