"""What a training step has besides layers: the loss with its gradient, and updates of weights, read off the graph.

Cross-entropy is the end of the forward stage and the begin of the backward one. Of an update, rate, momentum and decay
are found in the weight's new value:

    v' = m·v + g + d·w;   w' = w - r·v'   (with Nesterov's momentum: w' = w - r·(g + d·w + m·v'))

Both are sums of values times constants. So the coefficients of w, v and the gradient g are found by walking through
sums, differences and products, however they are written, and compared with those of the instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dlc.graph import Constant, Cotangent, Input, Op, Splat, evaluate_ops, toposort
from dlc.graph.evaluate import is_constant
from dlc.ops.elementwise import Add, Cast, Div, Mul, Neg, Sub
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import Softmax
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.instruction import kind_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.homogeneous import is_linear
from dlc_backend_s2train.select.memory import gradient, is_gradient, key, source
from dlc_backend_s2train.select.selection import Forward, Group, Made, Selection

TRAINS: Final = "the accelerator trains by loss=cross-entropy, whose labels may be left out by ignore=-1 or less"
_CLOSE: Final = 1e-6


def mean_loss(op: Op) -> LabelCrossEntropy | None:
    """The cross-entropy of which a value is the mean over all rows."""
    match op:
        case ReduceMean(x=x) if op.type.size == 1:
            loss = source(x)
            return loss if isinstance(loss, LabelCrossEntropy) and loss.ignore_index is None else None
        case Div(a=ReduceSum(x=x), b=b) if op.type.size == 1:
            loss = source(x)
            return loss if isinstance(loss, LabelCrossEntropy) and _counts(b, loss, lambda count: count) else None
        case _:
            return None


def loss_forward(work: Selection, op: LabelCrossEntropy) -> None:
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


def loss_backward(work: Selection, op: Cotangent, of: LabelCrossEntropy) -> None:
    """Nothing to do but to see that the loss is the mean: the instruction of the loss gives its gradient."""
    match source(op.seed):
        case Cotangent(of=ReduceMean(x=x) as mean, seed=seed) if source(x) == of and mean.type.size == 1:
            right = _counts(seed, of, lambda _: 1.0) and of.ignore_index is None
        case _:
            seed = op.seed
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
    if (known := memory.known_value(op)) is not None:
        return of.ignore_index is None and np.allclose(known, wanted(rows), rtol=_CLOSE)
    given = source(of.labels)
    if of.ignore_index is None or any(isinstance(x, Input) and x != given for x in toposort((op,))):
        return False
    labels = np.arange(rows) % of.scores.shape[of.axis]
    for left in {0, min(1, rows - 1), rows // 2, rows - 1}:
        some = np.where(np.arange(rows) < left, of.ignore_index, labels).astype(of.labels.dtype.numpy)
        count = int((some != of.ignore_index).sum())
        (found,) = evaluate_ops((op,), {given: some.reshape(given.shape)})
        if count and not np.allclose(found, wanted(count), rtol=_CLOSE):
            return False
    return True


def _linear(work: Selection, op: LabelCrossEntropy) -> Group | None:
    """The linear layer whose scores nobody but the loss reads."""
    group = work.open.get(key(op.scores))
    if group is None or group.opcode is not Opcode.LINEAR or group.tail is not source(op.scores):
        return None
    return group if work.readers[key(op.scores)] == 1 and group.rank <= Forward.NORM else None


_MORE = "its new value is no SGD step: it depends on more than the weight, its velocity and one gradient"


@dataclass(frozen=True)
class Update:
    """SGD as the instruction does it."""

    gradient: Op
    rate: float
    momentum: float = 0.0
    decay: float = 0.0
    nesterov: bool = False


def linear(op: Op) -> dict[Op, float]:
    """A value as a sum of other values times numbers: value → its factor."""
    factors: dict[Op, float] = {}
    pending: list[tuple[Op, float]] = [(op, 1.0)]
    while pending:
        x, factor = pending.pop()
        match x:
            case Add(a=a, b=b):
                pending += [(a, factor), (b, factor)]
            case Sub(a=a, b=b):
                pending += [(a, factor), (b, -factor)]
            case Neg(x=a) | Cast(x=a):
                pending.append((a, -factor if isinstance(x, Neg) else factor))
            case Mul(a=a, b=b) if (number := _number(b)) is not None:
                pending.append((a, factor * number))
            case Mul(a=b, b=a) if (number := _number(b)) is not None:
                pending.append((a, factor * number))
            case Div(a=a, b=b) if number := _number(b):
                pending.append((a, factor / number))
            case Splat(value=0):
                pass
            case _:
                factors[x] = factors.get(x, 0.0) + factor
    return factors


def _number(op: Op) -> float | None:
    """The number in every element of a constant; None where there is none, or several."""
    if isinstance(op, Splat):
        return float(op.value)
    if not is_constant(op) or op.type.size > 1 or (isinstance(op, Constant) and op.name):
        return None
    (value,) = evaluate_ops((op,), {})
    return float(value.reshape(-1)[0])


def update_of(weight: Input, new: Op, velocity: Input | None, moved: Op | None) -> Update | str:
    """The update that gives `new` for `weight`, and `moved` for its velocity; or why there is none."""
    step = linear(new)
    first = linear(moved) if moved is not None else step
    gradients = [x for x in first if x not in (weight, velocity)]
    if not gradients:
        return "its gradient is zero everywhere"
    if len(gradients) != 1 or any(x not in (weight, velocity, gradients[0]) for x in step):
        return _MORE
    (g,) = gradients
    if not is_gradient(g) and not is_linear(g):
        what = g.name if isinstance(g, Input) else f"the result of {kind_of(g)}"
        return f"its new value is no SGD step: it follows {what}, which is not linear in gradients"
    if velocity is None:
        rate = -step.get(g, 0.0)
        decay = (1.0 - step.get(weight, 0.0)) / rate if rate else 0.0
        return Update(g, rate, 0.0, decay)
    m, one, decay = first.get(velocity, 0.0), first[g], first.get(weight, 0.0)
    if not math.isclose(one, 1.0, rel_tol=_CLOSE):
        return f"its velocity takes {one:g} times the gradient, where the instruction takes it once (dampening)"
    plain = -step.get(g, 0.0)
    for rate, nesterov in ((plain, False), (plain / (1.0 + m), True)):
        factor = m if not nesterov else m * m
        if math.isclose(-step.get(velocity, 0.0), rate * factor, rel_tol=_CLOSE, abs_tol=1e-12):
            return Update(g, rate, m, decay, nesterov)
    return "its new value is not a step along its velocity"
