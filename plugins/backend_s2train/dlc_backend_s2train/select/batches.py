"""Norms by the statistics of the batch, which need the whole value before them in memory: ELTWISE with BN_TRAIN.

    y = batch_norm_training(x, scale, shift)   →   y, [mean, 1/std], running statistics moved
    dy                                         →   dx, [d scale, d shift]

Ioffe and Szegedy 2015. Scale and shift are rows 2 and 3 of the norm's tensor [4, C], and trained there.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dlc.graph import Cotangent, Input, Op
from dlc.ops.normalize import BatchNormTraining
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.ops.standardize import CentredSum
from dlc_backend_s2train.codes import Element, Flag, Role
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import parts, statistics
from dlc_backend_s2train.select.group import Backward, Forward, Given, Made
from dlc_backend_s2train.select.selection import Running, Selection
from dlc_backend_s2train.select.updates import linear

_CLOSE = 1e-6


def forward(work: Selection, op: BatchNormTraining) -> None:
    """Normalise by the batch. Sum, relu, pool and dropout may follow in the same instruction."""
    held = parameters.batch_norm_input(op)
    if held is None:
        work.refuse(op, "its scale or its shift is computed: they must be stored")
        return
    channels = op.x.shape[1]
    group = work.stage(op, op.x, Forward.NORM, Flag.BN_TRAIN)
    group.reads["bn0"] = Given(held, held.shape)
    group.hyper = replace(group.hyper or Hyper(), epsilon=op.epsilon)
    group.writes["dst1"] = Made(statistics(op), Element.FP32, (2, channels), Role.NORM)
    if (running := work.running.get(op.digest)) is not None:
        group.hyper = replace(group.hyper, momentum=running.momentum)
        group.reads["bn1"] = Given(running.state, (2, channels))
        group.writes["bn1"] = Made(moved(op.digest), Element.FP32, (2, channels), Role.NORM)


def backward(work: Selection, op: Cotangent, of: BatchNormTraining) -> None:
    """All gradients of a norm, at the first of them."""
    held = parameters.batch_norm_input(of)
    if held is None or any(parts(of) == made.key for group in work.groups for made in group.writes.values()):
        return
    of_x = Cotangent.make(of, op.seed, 0)
    channels = of.x.shape[1]
    group = work.stage(of_x, op.seed, Backward.SCALE, Flag.BN_TRAIN | Flag.BN_BACKWARD)
    group.reads["src1"] = work.given(of.x)
    group.reads["bn0"] = Given(held, held.shape)
    group.reads["bn1"] = Given(statistics(of), (2, channels))
    group.writes["dst1"] = Made(parts(of), Element.FP32, (2, channels), Role.WEIGHT_GRADIENT)
    # What comes out of the array's side of it is complete: nothing follows a norm.
    work.open.pop(of_x.digest, None)


def moved(digest: str) -> str:
    """The key of the running statistics of a norm behind its step."""
    return f"{digest}.running"


def running_of(norm: BatchNormTraining, states: list[tuple[Input, Op]]) -> Running | None:
    """The running statistics of a norm, out of states and what they become; None where it has none.

    The new value is momentum·state + (1 - momentum)·statistic of the batch, see `dlc.ops.normalize`.
    """
    found: dict[str, tuple[Input, float]] = {}
    count = norm.x.type.size // norm.x.shape[1]
    for state, value in states:
        factors = linear(value)
        stays = factors.pop(state, 0.0)
        if len(factors) != 1:
            continue
        ((batch, factor),) = factors.items()
        kind = _statistic(norm.x, batch)
        factor *= 1 if isinstance(batch, ReduceMean) else count
        if kind and math.isclose(factor, 1.0 - stays, rel_tol=_CLOSE, abs_tol=_CLOSE):
            found.setdefault(kind, (state, stays))
    if len(found) != 2 or found["mean"][1] != found["var"][1]:
        return None
    (mean, momentum), (var, _) = found["mean"], found["var"]
    held = parameters.running_input(mean, var)
    return None if held is None else Running(held, momentum, (mean, var))


def _statistic(x: Op, batch: Op) -> str:
    """`mean` or `var`, for a sum or mean over all of x but its channels."""
    axes = [0, *range(2, len(x.shape))]
    match batch:
        case ReduceMean(x=of, axes=over) | ReduceSum(x=of, axes=over) if of == x and sorted(over) == axes:
            return "mean"
        case CentredSum(x=of, a=None) if of == x:
            return "var"
        case _:
            return ""
