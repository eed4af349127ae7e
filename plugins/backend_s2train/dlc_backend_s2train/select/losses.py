"""Cross-entropy with its gradient: the end of the forward stage and the begin of the backward one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from dlc.graph import Cotangent, Input, Op, evaluate_ops, toposort
from dlc.ops.elementwise import Div
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import Softmax
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc_backend_s2train.codes import Element, Flag, Opcode, Role, Stage
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import gradient, key, source
from dlc_backend_s2train.select.group import Forward, Group, Made
from dlc_backend_s2train.select.selection import Selection

TRAINS: Final = "the accelerator trains by loss=cross-entropy, whose labels may be left out by ignore=-1 or less"
_CLOSE: Final = 1e-6


def mean_loss(op: Op) -> LabelCrossEntropy | None:
    """The cross-entropy of which a value is the mean over all rows."""
    match op:
        case ReduceMean(x=LabelCrossEntropy(ignore_index=None) as loss) if op.type.size == 1:
            return loss
        case Div(a=ReduceSum(x=LabelCrossEntropy() as loss), b=b) if op.type.size == 1:
            return loss if _counts(b, loss, lambda count: count) else None
        case _:
            return None


def forward(work: Selection, op: LabelCrossEntropy) -> None:
    """Mean loss, and its gradient with respect to the scores, times the loss scale."""
    if why := _refusal(op):
        work.refuse(op, why, TRAINS)
        return
    group = _linear(work, op)
    if group is None:
        group = Group(Opcode.LOSS, Stage.FORWARD, op)
        group.reads["src0"] = work.given(op.scores)
        work.groups.append(group)
    else:
        del work.open[group.tail.digest]
    group.flags |= Flag.SOFTMAX_CE
    group.origin.append(op)
    group.reads["aux"] = work.given(op.labels)
    settings = work.settings
    group.hyper = replace(group.hyper or Hyper(), scale=settings.loss_scale, growth=settings.growth)
    group.writes["dst0"] = Made(gradient(op), Element.FP16, op.scores.shape, Role.FEATURE_GRADIENT)
    group.writes["dst1"] = Made(op.digest, Element.FP32, (1,), Role.LOSS)


def probabilities(work: Selection, op: Softmax) -> None:
    """Softmax over all that a sample has."""
    n, *rest = op.x.shape
    axis = op.axis % len(op.x.shape)
    if not rest or any(e != 1 for k, e in enumerate(op.x.shape) if k not in (0, axis)) or not axis:
        work.refuse(op, f"softmax of {op.x.type} along axis {axis}: the accelerator takes [samples, classes]")
        return
    group = Group(Opcode.LOSS, Stage.FORWARD, op)
    group.reads["src0"] = work.given(op.x, (n, op.x.type.size // n))
    group.origin.append(op)
    group.writes["dst0"] = Made(op.digest, Element.FP16, (n, op.x.type.size // n), Role.ACTIVATION)
    work.groups.append(group)


def backward(work: Selection, op: Cotangent, of: LabelCrossEntropy) -> None:
    """Nothing to do but to see that the loss is the mean: the instruction of the loss gives its gradient."""
    match op.seed:
        case Cotangent(of=ReduceMean(x=x) as mean, seed=seed) if x == of and mean.type.size == 1:
            right = _counts(seed, of, lambda _: 1.0) and of.ignore_index is None
        case seed:
            right = _counts(seed, of, lambda count: 1.0 / count)
    if not right:
        work.refuse(op, "the accelerator trains by the mean of the loss over the batch", TRAINS)


def _refusal(op: LabelCrossEntropy) -> str:
    if len(op.scores.shape) != 2 or op.axis % 2 != 1:
        return f"scores of {op.scores.type}: the accelerator takes [samples, classes]"
    if op.label_smoothing:
        return f"label smoothing by {op.label_smoothing:g}: the accelerator compares with the label alone"
    if op.ignore_index is not None and op.ignore_index >= 0:
        return f"rows of the label {op.ignore_index} are left out: on the accelerator those of negative labels are"
    return ""


def _counts(op: Op, of: LabelCrossEntropy, wanted: Callable[[int], float]) -> bool:
    """Whether a value is, in each element, what a number of rows makes it, those left out that `of` ignores.

    It is a constant, or it is computed of the labels: then it is tried with as many of them as there are rows, and
    with fewer.
    """
    rows = of.type.size
    if (known := parameters.known_value(op)) is not None:
        return of.ignore_index is None and np.allclose(known, wanted(rows), rtol=_CLOSE)
    if of.ignore_index is None or any(isinstance(x, Input) and x != of.labels for x in toposort((op,))):
        return False
    labels = np.arange(rows) % of.scores.shape[of.axis]
    for left in {0, min(1, rows - 1), rows // 2, rows - 1}:
        some = np.where(np.arange(rows) < left, of.ignore_index, labels).astype(of.labels.dtype.numpy)
        count = int((some != of.ignore_index).sum())
        (found,) = evaluate_ops((op,), {of.labels: some.reshape(of.labels.shape)})
        if count and not np.allclose(found, wanted(count), rtol=_CLOSE):
            return False
    return True


def _linear(work: Selection, op: LabelCrossEntropy) -> Group | None:
    """The linear layer whose scores nobody but the loss reads."""
    group = work.open.get(key(op.scores))
    if group is None or group.opcode is not Opcode.LINEAR or group.tail is not source(op.scores):
        return None
    return group if work.readers[key(op.scores)] == 1 and group.rank <= Forward.NORM else None
