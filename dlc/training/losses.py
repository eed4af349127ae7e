"""Losses that a spec selects: what labels a prediction takes, and one number that tells how far off it is, as ops.

    cross-entropy{smoothing=0.1 ignore=-100}     huber{delta=0.5}     sum{losses=mse{},l1{} weights=1,0.5}

Each is an op of `dlc.ops.loss` with its options; what they compute, and by which source, stands there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from dlc.diagnostics import DlcError, ExitCode, error
from dlc.graph import Constant, Op, Tensor
from dlc.kernel.define import ShapeError
from dlc.ops import loss as ops
from dlc.ops.elementwise import Add, Mul, Sigmoid
from dlc.ops.normalize import Softmax
from dlc.ops.pointwise import scalar
from dlc.spec import Configurable, Spec, option
from dlc.training.bundle import Classes
from dlc.training.selection import selected
from dlc.types import DType, Type

Reduction = Literal["mean", "sum"]
_REDUCTION: Final = "over all rows: their mean, or their sum"
_IGNORE: Final = "label whose rows do not count"
_WEIGHTS: Final = "what each class counts; () for 1 each"
_AXIS: Final = "dimension of the classes in the prediction"
"""Meanings of options that several losses have."""


@dataclass(frozen=True)
class Loss(Configurable, ABC):
    """How far a prediction is from its labels."""

    name: ClassVar[str]

    def labels(self, prediction: Type) -> Type:
        """The type of the labels that a prediction of this type takes.

        Raises:
            DlcError: a prediction of this type has no such loss.
        """
        try:
            return self._labels(prediction)
        except ShapeError as problem:
            raise self._refused(problem) from None

    def value(self, prediction: Op, labels: Op) -> Op:
        """The loss: a scalar of the prediction's element type.

        Args:
            prediction: What the network gives: float.
            labels: Of the type that `labels` tells; where that is i64, of any integer type.

        Raises:
            DlcError: types do not fit each other, or the options.
        """
        try:
            return self._value(prediction, labels)
        except ShapeError as problem:
            raise self._refused(problem) from None

    def classes(self, prediction: Type) -> Classes | None:
        """Which integers are labels of a prediction of this type; None: labels are no classes."""
        del prediction
        return None

    @abstractmethod
    def _labels(self, prediction: Type) -> Type:
        """`labels`; raises ShapeError."""

    @abstractmethod
    def _value(self, prediction: Op, labels: Op) -> Op:
        """`value`; raises ShapeError."""

    def _refused(self, problem: ShapeError) -> DlcError:
        known = "; ".join(f"{o.key}: {o.doc}" for o in self.options_doc())
        return error("loss", f"{self.name}: {problem}", help=f"options of {self.name}: {known}")


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
    reduction: Reduction = option("mean", _REDUCTION)

    def __post_init__(self) -> None:
        """Refuse options that exclude each other."""
        if self.one_hot and self.ignore is not None:
            raise error(
                "bad-option",
                f"{self.name}: ignore={self.ignore} is a number of a class, which one-hot labels do not have",
                help="labels of 0 for every class add nothing to a sum; a mean counts their rows all the same",
                exit_code=ExitCode.USAGE,
            )

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
            _vector(self.weights, prediction.dtype),
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
    reduction: Reduction = option("mean", _REDUCTION)

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
            _vector(self.weights, prediction.dtype),
            axis=self.axis,
            ignore_index=self.ignore,
            reduction=self.reduction,
        )


@dataclass(frozen=True)
class _Difference(Loss):
    """A loss whose labels have the prediction's type."""

    name: ClassVar[str]

    def _labels(self, prediction: Type) -> Type:
        if not prediction.dtype.is_float:
            raise ShapeError(f"predictions must be floats: {prediction}")
        return prediction


@dataclass(frozen=True)
class Mse(_Difference):
    """Mean squared error."""

    name: ClassVar[str] = "mse"
    reduction: Reduction = option("mean", _REDUCTION)

    def _value(self, prediction: Op, labels: Op) -> Op:
        return ops.MeanSquaredError(prediction, labels, reduction=self.reduction)


@dataclass(frozen=True)
class L1(_Difference):
    """Mean absolute error."""

    name: ClassVar[str] = "l1"
    reduction: Reduction = option("mean", _REDUCTION)

    def _value(self, prediction: Op, labels: Op) -> Op:
        return ops.MeanAbsoluteError(prediction, labels, reduction=self.reduction)


@dataclass(frozen=True)
class Huber(_Difference):
    """Half the squared error where it is small, a multiple of the absolute error beyond."""

    name: ClassVar[str] = "huber"
    delta: float = option(1.0, "error from which on it grows evenly; above 0")
    reduction: Reduction = option("mean", _REDUCTION)

    def __post_init__(self) -> None:
        """Refuse a delta that leaves nothing, or no limit."""
        if not 0 < self.delta < math.inf:
            help = "for no limit take mse, which is twice as large"
            raise error(
                "bad-option", f"huber: delta={self.delta} is no size of an error", help=help, exit_code=ExitCode.USAGE
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
    reduction: Reduction = option("mean", _REDUCTION)

    def _value(self, prediction: Op, labels: Op) -> Op:
        weight = _vector(self.pos_weight, prediction.dtype)
        scores = prediction.x if isinstance(prediction, Sigmoid) else prediction
        return ops.BinaryCrossEntropyWithLogits(scores, labels, weight, reduction=self.reduction)


Single = CrossEntropy | Nll | Mse | L1 | Huber | Bce
"""A loss that is no sum of others."""


@dataclass(frozen=True)
class Sum(Loss):
    """A weighted sum of losses of one prediction and its labels."""

    name: ClassVar[str] = "sum"
    losses: tuple[Single, ...] = option((), "what is added: at least one")
    weights: tuple[float, ...] = option((), "a factor for each loss; () for 1 each")

    def __post_init__(self) -> None:
        """Refuse a sum of nothing, and weights that do not match the losses."""
        if not self.losses:
            raise _bad("there is nothing to add")
        if self.weights and len(self.weights) != len(self.losses):
            raise _bad(f"{len(self.losses)} losses have {len(self.weights)} weights")

    def classes(self, prediction: Type) -> Classes | None:
        """See `Loss.classes`: a label that does not count has to be one for every loss that takes classes."""
        found = [c for loss in self.losses if (c := loss.classes(prediction))]
        if not found:
            return None
        return found[0] if all(c == found[0] for c in found) else Classes(found[0].count)

    def _labels(self, prediction: Type) -> Type:
        first, *others = ((loss, loss.labels(prediction)) for loss in self.losses)
        for loss, of in others:
            if of != first[1]:
                raise ShapeError(f"{first[0].name} takes labels {first[1]}, {loss.name} takes {of}")
        return first[1]

    def _value(self, prediction: Op, labels: Op) -> Op:
        self.labels(prediction.type)
        total: Op | None = None
        for loss, weight in zip(self.losses, self.weights or (1.0,) * len(self.losses), strict=True):
            part = loss.value(prediction, labels)
            part = part if weight == 1 else Mul(part, scalar(weight, part.dtype))
            total = part if total is None else Add(total, part)
        assert total is not None
        return total


def _bad(message: str) -> DlcError:
    help = "write sum{losses=mse{},l1{} weights=1,0.5}"
    return error("bad-option", f"sum: {message}", help=help, exit_code=ExitCode.USAGE)


def _check_classes(weights: tuple[float, ...], prediction: Type, axis: int) -> None:
    ops.label_type(prediction, axis)
    classes = prediction.shape[axis]
    if weights and len(weights) != classes:
        raise ShapeError(f"{len(weights)} weights for the {classes} classes of {prediction}")


def _vector(values: tuple[float, ...], dtype: DType) -> Op | None:
    return Constant(Tensor.of(np.asarray(values, dtype.numpy))) if values else None


AnyLoss = Single | Sum
"""What an option that chooses a loss takes."""
LOSSES: Final[Mapping[str, type[AnyLoss]]] = {kind.name: kind for kind in (CrossEntropy, Nll, Mse, L1, Huber, Bce, Sum)}
"""Name in a spec → class."""


def parse_loss(text: str | Spec, source: str = "loss") -> AnyLoss:
    """The loss that a spec describes: `cross-entropy{smoothing=0.1}`.

    Raises:
        DlcError: (USAGE) with a caret: the text is no spec, or names a loss or option that does not exist.
    """
    return selected(text, source, LOSSES, "loss", "losses")
