"""Losses whose labels are classes, or probabilities of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from dlc.api.training import Classes
from dlc.base.diagnostics import ExitCode, error
from dlc.base.types import Type
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import loss as ops
from dlc.ops.normalize import Softmax
from dlc.spec import option
from dlc.training.step.loss import REDUCTION, Loss, Reduction, vector

_IGNORE: Final = "label of rows that are ignored"
_WEIGHTS: Final = "what each class counts; () for 1 each"
_AXIS: Final = "dimension of the classes in the prediction"
"""Meanings of options that several losses have."""


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy of scores with classes: -ln softmax(scores)[label]; prediction [N, C, d…].

    A prediction that is a softmax along the classes already, as networks for inference end with, is what the scores'
    would be: the loss then reads what it is the softmax of.
    """

    name: ClassVar[str] = "cross-entropy"
    smoothing: float = option(0.0, "part of each label that is spread over all classes", low=0, high=1)
    ignore: int | None = option(None, _IGNORE)
    weights: tuple[float, ...] = option((), _WEIGHTS, low=0)
    one_hot: bool = option(False, "labels are a probability for each class, not the number of one class")
    axis: int = option(1, _AXIS)
    reduction: Reduction = option("mean", REDUCTION)

    def __post_init__(self) -> None:
        """Refuse options that exclude each other."""
        if self.one_hot and self.ignore is not None:
            raise error(
                "bad-option",
                f"{self.name}: ignore={self.ignore} is a number of a class, which one-hot labels do not have",
                help="labels of 0 for every class add nothing to a sum; a mean counts their rows all the same",
                exit_code=ExitCode.USAGE,
            )

    @property
    def class_axis(self) -> int:
        """See `Loss.class_axis`."""
        return self.axis

    def classes(self, prediction: Type) -> Classes | None:
        """See `Loss.classes`."""
        return None if self.one_hot else Classes(prediction.shape[self.axis], self.ignore)

    def _labels(self, prediction: Type) -> Type:
        integers = ops.label_type(prediction, self.axis)
        _check_classes(self.weights, prediction, self.axis)
        return prediction if self.one_hot else integers

    def _value(self, prediction: Op, labels: Op) -> Op:
        if self.one_hot != labels.dtype.is_float:
            wanted = "probabilities" if self.one_hot else "integers"
            raise ShapeError(f"labels are {labels.type}, not {wanted}")
        _check_classes(self.weights, prediction.type, self.axis)
        rank = len(prediction.shape)
        is_softmax = isinstance(prediction, Softmax) and (prediction.axis - self.axis) % rank == 0
        return ops.CrossEntropy(
            prediction.operands[0] if is_softmax else prediction,
            labels,
            vector(self.weights, prediction.dtype),
            axis=self.axis,
            ignore_index=self.ignore,
            label_smoothing=self.smoothing,
            reduction=self.reduction,
        )


@dataclass(frozen=True)
class Nll(Loss):
    """Negative log-likelihood: -prediction[label], of a prediction [N, C, d…] of logarithms, as log-softmax gives."""

    name: ClassVar[str] = "nll"
    ignore: int | None = option(None, _IGNORE)
    weights: tuple[float, ...] = option((), _WEIGHTS, low=0)
    axis: int = option(1, _AXIS)
    reduction: Reduction = option("mean", REDUCTION)

    @property
    def class_axis(self) -> int:
        """See `Loss.class_axis`."""
        return self.axis

    def classes(self, prediction: Type) -> Classes | None:
        """See `Loss.classes`."""
        return Classes(prediction.shape[self.axis], self.ignore)

    def _labels(self, prediction: Type) -> Type:
        _check_classes(self.weights, prediction, self.axis)
        return ops.label_type(prediction, self.axis)

    def _value(self, prediction: Op, labels: Op) -> Op:
        _check_classes(self.weights, prediction.type, self.axis)
        return ops.NegativeLogLikelihood(
            prediction,
            labels,
            vector(self.weights, prediction.dtype),
            axis=self.axis,
            ignore_index=self.ignore,
            reduction=self.reduction,
        )


def _check_classes(weights: tuple[float, ...], prediction: Type, axis: int) -> None:
    ops.label_type(prediction, axis)
    classes = prediction.shape[axis]
    if weights and len(weights) != classes:
        raise ShapeError(f"{len(weights)} weights for the {classes} classes of {prediction}")
