"""What integer labels say of rows: which class is theirs, what it scores, what it weighs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dlc.base.allowed import Demand
from dlc.base.types import Type, i64
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import Expr, apply, select
from dlc.ops.elementwise import And, Cast, Equal, GreaterOrEqual, Less, Not, Where
from dlc.ops.index import Gather
from dlc.ops.loss.reduction import check_floats
from dlc.ops.pointwise import literal, normalized, scalar
from dlc.ops.shape import Reshape


def label_type(scores: Type, axis: int) -> Type:
    """The type of integer labels: that of the scores without their classes, as i64.

    Raises:
        ShapeError: scores are no floats, or have no rows beside their classes.
    """
    check_floats(scores)
    if scores.rank < 2:
        raise ShapeError(f"scores must have rows and classes: {scores}")
    at = normalized(axis, scores.rank)
    if scores.shape[at] == 0 and scores.with_shape(_without(scores.shape, at)).size:
        raise ShapeError(f"scores without classes: {scores}")
    return Type(i64, _without(scores.shape, at))


def _without(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*shape[:at], *shape[at + 1 :])


def check_labels(labels: Type, scores: Type, axis: int) -> None:
    """Refuse labels that do not fit the scores."""
    expected = label_type(scores, axis)
    if not labels.dtype.is_integer:
        raise ShapeError(f"labels must be integers, not {labels.dtype}")
    if labels.shape != expected.shape:
        raise ShapeError(f"labels {labels} of scores {scores} must have the shape {list(expected.shape)}")


def label_demands(labels: Op, scores: Op, axis: int, ignore_index: int | None = None) -> Mapping[str, Demand]:
    """What an op with a field `labels` says of integer ones; probabilities may be anything."""
    if labels.dtype.is_float:
        return {}
    return {"labels": Demand.labels(scores.shape[normalized(axis, len(scores.shape))], ignore_index)}


def with_classes(rows: Op, scores: Op, axis: int) -> Op:
    """A value per row, to broadcast over the classes."""
    at = normalized(axis, len(scores.shape))
    return Reshape(rows, to=(*scores.shape[:at], 1, *scores.shape[at + 1 :]))


def over_classes(values: Op, scores: Op, axis: int) -> Op:
    """A value per class, to broadcast over the rows."""
    at = normalized(axis, len(scores.shape))
    return Reshape(values, to=(values.shape[0], *(1,) * (len(scores.shape) - at - 1)))


def _wide(labels: Op) -> Op:
    return labels if labels.dtype == i64 else Cast(labels, to=i64)


def counted(labels: Op, classes: int, ignore_index: int | None) -> Op:
    """Whether a label is a class, and not the one to ignore."""
    wide = _wide(labels)  # so that the number of classes is a value of the type
    inside = And(GreaterOrEqual(wide, scalar(0, i64)), Less(wide, scalar(classes, i64)))
    return inside if ignore_index is None else And(inside, Not(Equal(wide, scalar(ignore_index, i64))))


class LabelMask(Op):
    """y: bool = whether the label of a row is the class c, along a new dimension of `classes` at `axis`.

    False for all classes where the label is `ignore_index`, or no class.
    """

    labels: Op
    classes: int = 1
    axis: int = 1
    ignore_index: int | None = None

    def define(self, *params: Any) -> Comp:
        (labels,) = params
        if not self.labels.dtype.is_integer:
            raise ShapeError(f"labels must be integers, not {labels.dtype}")
        if not 0 <= self.axis <= len(labels.shape) or self.classes < 0:
            raise ShapeError(f"{self.classes} classes at dimension {self.axis} for labels {labels.type}")
        i = grid((*labels.shape[: self.axis], self.classes, *labels.shape[self.axis :]))
        label = apply("i64", labels[tuple(a for d, a in enumerate(i) if d != self.axis)])
        same_class = apply("eq", label, i[self.axis])
        if self.ignore_index is None:
            return comp(i, same_class)
        return comp(i, same_class & apply("ne", label, self.ignore_index))


class PickLabel(Op):
    """y = the element of x[N, C, d…] at the class that the row's label names.

    0 where the label is `ignore_index`, NaN where it is no class. y has the shape of the labels.
    """

    exact: ClassVar[bool] = True
    x: Op
    labels: Op
    axis: int = 1
    ignore_index: int | None = None

    def define(self, *params: Any) -> Comp:
        x, labels = params
        check_labels(labels.type, x.type, self.axis)
        at = normalized(self.axis, len(x.shape))
        classes, rows = x.shape[at], grid(labels.shape)
        label = apply("i64", labels[rows])
        place = apply("min", apply("max", label, 0), classes - 1)
        picked: Expr = x[(*rows[:at], place, *rows[at:])]
        picked = select(apply("eq", label, place), picked, literal(math.nan, x.dtype))
        if self.ignore_index is not None:
            picked = select(apply("eq", label, self.ignore_index), literal(0, x.dtype), picked)
        return comp(rows, picked)

    def demands(self) -> Mapping[str, Demand]:
        return label_demands(self.labels, self.x, self.axis, self.ignore_index)

    def evaluate(self, *args: Array) -> Any:
        x, labels = args[0], args[1].astype(np.int64)
        at = normalized(self.axis, x.ndim)
        place = np.clip(labels, 0, x.shape[at] - 1)
        picked = np.take_along_axis(x, np.expand_dims(place, at), at).squeeze(at)
        picked = np.where(place == labels, picked, x.dtype.type(math.nan))
        return picked if self.ignore_index is None else np.where(labels == self.ignore_index, x.dtype.type(0), picked)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # A choice per element: the derivation of a read at a computed place is a write to it, which runs in order.
        (g,) = seeds
        if g is None:
            return [None, None]
        at = normalized(self.axis, len(self.x.shape))
        mask = LabelMask(self.labels, classes=self.x.shape[at], axis=at, ignore_index=self.ignore_index)
        return [Where(mask, with_classes(g, self.x, at), scalar(0.0, self.x.dtype)), None]


def row_weights(scores: Op, labels: Op, weights: Op | None, axis: int, ignore_index: int | None) -> Op | None:
    """What each row counts in a mean: the weight of its class, or 1, and 0 if it is ignored; None: all count 1.

    Args:
        scores: [N, C, d…], classes along `axis`.
        labels: Integers [N, d…].
        weights: [C], of the scores' element type.
    """
    check_labels(labels.type, scores.type, axis)
    if weights is not None:
        check_weights(weights, scores, axis)
    elif ignore_index is None:
        return None
    wide = _wide(labels)
    found = scalar(1.0, scores.dtype) if weights is None else Gather(weights, wide)
    if ignore_index is None:
        return found
    return Where(Equal(wide, scalar(ignore_index, i64)), scalar(0.0, scores.dtype), found)


def check_weights(weights: Op, scores: Op, axis: int) -> None:
    """Refuse weights that are not one for each class, of the scores' element type."""
    classes = scores.shape[normalized(axis, len(scores.shape))]
    if weights.type != Type(scores.dtype, (classes,)):
        raise ShapeError(f"class weights {weights.type} for {classes} classes of {scores.type}")
