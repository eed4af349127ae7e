"""Cross-entropy with its gradient: the end of the forward stage and the begin of the backward one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlc.graph import Cotangent, Op
from dlc.ops.elementwise import Div
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import Softmax
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc_backend_s2train.program import Element, Flag, Hyper, Opcode, Role, Stage
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import gradient, key, source
from dlc_backend_s2train.select.group import Forward, Group, Made
from dlc_backend_s2train.select.selection import Selection


def mean_loss(op: Op) -> LabelCrossEntropy | None:
    """The cross-entropy of which a value is the mean over all rows."""
    match op:
        case ReduceMean(x=LabelCrossEntropy() as loss) if op.type.size == 1:
            return loss
        case Div(a=ReduceSum(x=LabelCrossEntropy() as loss), b=b) if op.type.size == 1:
            count = parameters.known_value(b)
            return loss if count is not None and count.size == 1 and float(count) == loss.type.size else None
        case _:
            return None


def forward(work: Selection, op: LabelCrossEntropy) -> None:
    """Mean loss, and its gradient with respect to the scores, times the loss scale."""
    if why := _refusal(op):
        work.refuse(op, why)
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
            share = parameters.known_value(seed)
        case seed:
            found = parameters.known_value(seed)
            share = None if found is None else found * of.type.size
    if share is None or not np.allclose(share, 1.0, rtol=1e-6):
        work.refuse(op, "the accelerator trains by the mean of the loss over the batch", "loss=cross-entropy")


def _refusal(op: LabelCrossEntropy) -> str:
    if len(op.scores.shape) != 2 or op.axis % 2 != 1:
        return f"scores of {op.scores.type}: the accelerator takes [samples, classes]"
    if op.label_smoothing:
        return f"label smoothing by {op.label_smoothing:g}: the accelerator compares with the label alone"
    if op.ignore_index is not None:
        return f"rows of the label {op.ignore_index} are left out: the accelerator takes all"
    return ""


def _linear(work: Selection, op: LabelCrossEntropy) -> Group | None:
    """The linear layer whose scores nobody but the loss reads."""
    group = work.open.get(key(op.scores))
    if group is None or group.opcode is not Opcode.LINEAR or group.tail is not source(op.scores):
        return None
    return group if work.readers[key(op.scores)] == 1 and group.rank <= Forward.NORM else None
