"""How good predictions are: a loss over all rows of a data set, and figures that people understand.

    integer labels, scores of classes     accuracy    part of the labels whose class has the highest score
    one-hot labels, scores of classes     accuracy    likewise, for the class with the highest probability
    labels of the prediction's type       mae, rmse   mean absolute error, root of the mean squared error

Rows that do not fill the last batch are followed by copies of the last one. Where the loss has a label that does not
count, copies have it. Otherwise a batch of nothing but the copied row tells what the copies add, which is taken out
again: a mean over a batch is the sum of the rows' losses over the sum of their weights. So the loss is that of all
rows, as if they were one batch, up to rounding. (A `sum` of losses that weigh rows in different ways is taken as one
that weighs them as its first does.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlc.base.diagnostics import DlcError, error
from dlc.base.types import Array

if TYPE_CHECKING:
    from dlc.api.parts import Part
    from dlc.api.training_program import TrainingProgram
    from dlc.training.loop.data import DataSet
    from dlc.training.step.loss import Loss


@dataclass(frozen=True)
class Measure:
    """Figures that labels and one output give."""

    output: str
    """Which output is the prediction."""
    names: tuple[str, ...]
    terms: Callable[[Array, Array], tuple[float, ...]] = field(repr=False)
    """(prediction, labels) of some rows → how many values count, then a sum for each name."""


@dataclass(frozen=True)
class Score:
    """A data set judged."""

    loss: float
    """Over all rows; where the program's loss is a sum, per batch."""
    figures: Mapping[str, float]


def evaluate(
    program: TrainingProgram,
    data: DataSet,
    size: int,
    stopped: Callable[[int], bool] = lambda _: False,
    losses: Sequence[Part[Loss]] = (),
) -> Score | None:
    """Loss and figures over all rows of a data set.

    Args:
        program: The program, with the parameters to judge.
        data: At least one row.
        size: Rows of a batch.
        stopped: Asked before every batch, with the number of rows done; True ends it.
        losses: Those of plugins: the program's may be one of them.

    Returns:
        None if it was stopped.

    Raises:
        DlcError: no label counts (`no-labels`); or as `TrainingProgram.evaluate` does.
    """
    kind, label = loss_of(program, losses), program.arguments[-1].name
    measure, ignore = measure_of(program, kind), program.classes.ignore if program.classes else None
    is_sum = getattr(kind, "reduction", "mean") == "sum"
    total = weight = count = 0.0
    sums = [0.0] * len(measure.names if measure else ())
    for first in range(0, data.rows, size):
        if stopped(first):
            return None
        valid = min(size, data.rows - first)
        feeds = data.batch(np.minimum(np.arange(first, first + size), data.rows - 1))
        labels = feeds[label]
        per = len(labels) // size
        own, copies = _weight(kind, labels[: valid * per], ignore), 0.0
        if valid < size and ignore is not None:
            labels[valid * per :] = ignore
        elif valid < size:
            copies = _weight(kind, labels[valid * per :], ignore)
        found = program.evaluate(**feeds)
        loss = float(found["loss"]) * (1.0 if is_sum else own + copies) if own + copies else 0.0
        if copies:
            row = program.evaluate(**data.batch(np.full(size, data.rows - 1)))
            loss -= float(row["loss"]) * ((size - valid) / size if is_sum else copies)
        total, weight = total + loss, weight + own
        if measure:
            prediction = found[measure.output]
            terms = measure.terms(prediction[: valid * (len(prediction) // size)], labels[: valid * per])
            count += terms[0]
            sums = [s + t for s, t in zip(sums, terms[1:], strict=True)]
    if not weight:
        raise error(
            "no-labels",
            f"no label of the {data.rows:,} validation rows counts: all of them are {ignore}, which is ignored",
        )
    over = data.rows / size if is_sum else weight
    means = [s / count if count else math.nan for s in sums]
    named = dict(zip(measure.names, means, strict=True)) if measure else {}
    figures = {name: math.sqrt(x) if name == "rmse" else x for name, x in named.items()}
    return Score(total / over, figures)


def loss_of(program: TrainingProgram, losses: Sequence[Part[Loss]] = ()) -> Loss | None:
    """The loss of a program, of a sum its first; None when what the program tells is no spec of a loss."""
    from dlc.training.step.losses import Sum, parse_loss

    try:
        found = parse_loss(str(program.facts.get("loss", "")), more=losses)
    except DlcError:
        return None
    return found.losses[0] if isinstance(found, Sum) else found


def measure_of(program: TrainingProgram, kind: Loss | None) -> Measure | None:
    """What besides the loss tells how good the predictions of a program are; None: nothing that makes sense."""
    from dlc.training.step.difference_losses import Bce

    labels = program.arguments[-1].type
    outputs = [p for p in program.signature.outputs if p.type.dtype.is_float]
    if kind is not None and (classes := kind.class_axis) is not None:
        for port in outputs:
            shape, axis = port.type.shape, classes + (port.type.rank if classes < 0 else 0)
            one_hot = labels.dtype.is_float
            fits = labels.shape == (shape if one_hot else (*shape[:axis], *shape[axis + 1 :]))
            if 0 < axis < len(shape) and fits:
                known = None if one_hot else kind.classes(port.type)
                return Measure(port.name, ("accuracy",), _hits(axis, one_hot, known.ignore if known else None))
        return None
    if isinstance(kind, Bce):
        return None  # labels are probabilities, predictions are scores: their difference means nothing
    for port in outputs:
        if port.type.shape == labels.shape and labels.dtype.is_float:
            return Measure(port.name, ("mae", "rmse"), _distances)
    return None


def _hits(axis: int, one_hot: bool, ignore: int | None) -> Callable[[Array, Array], tuple[float, ...]]:
    def terms(prediction: Array, labels: Array) -> tuple[float, ...]:
        wanted = labels.argmax(axis) if one_hot else labels
        counts = np.ones(wanted.shape, bool) if ignore is None else wanted != ignore
        return float(counts.sum()), float(((prediction.argmax(axis) == wanted) & counts).sum())

    return terms


def _distances(prediction: Array, labels: Array) -> tuple[float, ...]:
    d = prediction.astype(np.float64) - labels.astype(np.float64)
    return float(d.size), float(np.abs(d).sum()), float((d * d).sum())


def _weight(kind: Loss | None, labels: Array, ignore: int | None) -> float:
    """What some labels count in a mean: the weights of their classes, or one for each that counts."""
    counts = labels != ignore if ignore is not None else np.ones(labels.shape, bool)
    weights = getattr(kind, "weights", ())
    if weights and labels.dtype.kind != "f":
        return float(np.asarray(weights, np.float64)[labels[counts]].sum())
    return float(counts.sum())
