"""The cross-entropy of rows of scores: with integer labels, and with a number for every class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.base.allowed import Demand
from dlc.graph.op import Op
from dlc.ops.elementwise import Add, And, Cast, Equal, IsInf, Mul, Neg, Sub, Where
from dlc.ops.loss.labels import LabelMask, PickLabel, check_labels, counted, label_demands, label_type, with_classes
from dlc.ops.loss.reduction import check_alike
from dlc.ops.normalize import LogSoftmax, Softmax
from dlc.ops.pointwise import normalized, scalar
from dlc.ops.reduce import ReduceSum


class LabelCrossEntropy(Op):
    """y = -(1 - s) · ln p[label] - s/C · Σ ln p per row, with p = softmax of scores[N, C, d…] and s = label_smoothing.

    0 where the label is `ignore_index`, NaN where it is no class. y has the shape of the labels. Smoothing: Szegedy et
    al. 2016, "Rethinking the Inception Architecture".
    """

    scores: Op
    labels: Op
    axis: int = 1
    ignore_index: int | None = None
    label_smoothing: float = 0.0

    def expand(self) -> Op:
        check_labels(self.labels.type, self.scores.type, self.axis)
        log = LogSoftmax(self.scores, axis=self.axis)
        picked = PickLabel(log, self.labels, axis=self.axis, ignore_index=self.ignore_index)
        if not self.label_smoothing:
            return Neg(picked)
        every = ReduceSum(log, axes=(self._axis,))
        mixed = Add(Mul(picked, self._number(1 - self.label_smoothing)), Mul(every, self._number(self._share)))
        return Neg(Where(counted(self.labels, self._classes, self.ignore_index), mixed, picked))

    def demands(self) -> Mapping[str, Demand]:
        return label_demands(self.labels, self.scores, self.axis, self.ignore_index)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # g · (p - q) with q the smoothed labels: no small differences of large numbers, and p shares its parts with the
        # loss. Chosen outside, so that an ignored row has gradient 0 whatever its scores are.
        (g,) = seeds
        if g is None:
            return [None, None]
        mask = LabelMask(self.labels, classes=self._classes, axis=self._axis)
        q: Op = Cast(mask, to=self.scores.dtype)
        if self.label_smoothing:
            q = Add(Mul(q, self._number(1 - self.label_smoothing)), self._number(self._share))
        change = Mul(Sub(Softmax(self.scores, axis=self.axis), q), with_classes(g, self.scores, self._axis))
        chosen = with_classes(counted(self.labels, self._classes, self.ignore_index), self.scores, self._axis)
        return [Where(chosen, change, self._number(0.0)), None]

    @property
    def _axis(self) -> int:
        return normalized(self.axis, len(self.scores.shape))

    @property
    def _classes(self) -> int:
        return self.scores.shape[self._axis]

    @property
    def _share(self) -> float:
        return self.label_smoothing / self._classes

    def _number(self, value: float) -> Op:
        return scalar(value, self.scores.dtype)


class TargetCrossEntropy(Op):
    """y = -Σ targets · ln p per row, with p = softmax of scores[N, C, d…] along `axis`; targets have the scores' type.

    A target of 0 counts nothing, even where ln p is -∞.
    """

    scores: Op
    targets: Op
    axis: int = 1

    def expand(self) -> Op:
        label_type(self.scores.type, self.axis)
        check_alike(self.scores, self.targets, "targets")
        return Neg(ReduceSum(Mul(self.targets, self._log()), axes=(normalized(self.axis, len(self.scores.shape)),)))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # g · (p · Σ targets - targets), as for labels; and -g · ln p.
        (g,) = seeds
        if g is None:
            return [None, None]
        axis = normalized(self.axis, len(self.scores.shape))
        rows = with_classes(g, self.scores, axis)
        mass = ReduceSum(self.targets, axes=(axis,), keep=True)
        change = Sub(Mul(Softmax(self.scores, axis=axis), mass), self.targets)
        return [Mul(change, rows), Mul(Neg(self._log()), rows)]

    def _log(self) -> Op:
        log = LogSoftmax(self.scores, axis=self.axis)
        zero = scalar(0.0, self.scores.dtype)
        return Where(And(Equal(self.targets, zero), IsInf(log)), zero, log)
