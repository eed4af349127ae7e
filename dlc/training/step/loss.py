"""What every loss is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from dlc.api.training import Classes
from dlc.base.diagnostics import DlcError, error
from dlc.base.types import DType, Type
from dlc.graph import Constant, Op, Tensor
from dlc.kernel.define import ShapeError
from dlc.spec import Configurable

Reduction = Literal["mean", "sum"]
REDUCTION: Final = "over all rows: their mean, or their sum"
"""Meaning of the option that says which."""


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

    @property
    def class_axis(self) -> int | None:
        """The dimension of the prediction along which the highest score is the answer; None: there is none.

        Where there is one, `dlc train` tells the accuracy of validation data.
        """
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


def vector(values: tuple[float, ...], dtype: DType) -> Op | None:
    """Weights as a value of the graph; None for none."""
    return Constant(Tensor.of(np.asarray(values, dtype.numpy))) if values else None
