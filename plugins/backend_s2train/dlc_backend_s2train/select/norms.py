"""Norms with statistics that are stored, constant ones or those that training moved: stages of the unit."""

from __future__ import annotations

from dataclasses import replace

from dlc.graph import Constant, Cotangent, Input, Op
from dlc.ops.linear import Conv
from dlc.ops.normalize import BatchNorm
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import key, source
from dlc_backend_s2train.select.group import Backward, Forward, Given, Group, Made
from dlc_backend_s2train.select.selection import Selection

_STORED = "keep the norm's parameters as they are: wrt=!norms stored-norms=yes"


def forward(work: Selection, op: BatchNorm) -> None:
    """A norm behind a sum, or by itself."""
    if (running := parameters.running_input(op.mean, op.var)) is not None:
        _standing(work, op, running)
        return
    product = work.open.get(key(op.x))
    bias = _fixed_bias(work, product, op) if product is not None else None
    try:
        rows = parameters.norm_rows(op, None if bias is None else parameters.known_value(bias))
    except ValueError as problem:
        work.refuse(op, str(problem), _STORED)
        return
    if product is not None and bias is not None:
        # A bias before a norm with stored statistics only moves the mean.
        group = work.absorb(product, op, Forward.NORM, Flag.BN_FORWARD)
    else:
        group = work.stage(op, op.x, Forward.NORM, Flag.BN_FORWARD)
    group.reads["bn0"] = _stored(op, rows)


def _standing(work: Selection, op: BatchNorm, running: Input) -> None:
    """A norm by the running statistics of training, as at inference."""
    if (held := parameters.batch_norm_input(op)) is None:
        work.refuse(op, "its scale or its shift is computed: they must be stored")
        return
    group = work.stage(op, op.x, Forward.NORM, Flag.BN_FORWARD)
    group.reads["bn0"], group.reads["bn1"] = Given(held, held.shape), Given(running, running.shape)
    group.hyper = replace(group.hyper or Hyper(), epsilon=op.epsilon)


def _stored(op: BatchNorm, rows: parameters.Array) -> Given:
    held = parameters.held(op, rows, op.scale.name if isinstance(op.scale, Constant) else "")
    return Given(held, rows.shape)


def _fixed_bias(work: Selection, product: Group, op: BatchNorm) -> Op | None:
    """The bias of a convolution that only this norm reads, if it is not trained."""
    last = product.tail
    alone = work.readers[last.digest] == 1 and source(op.x) is last and product.rank == Forward.NORM
    return last.b if alone and isinstance(last, Conv) and isinstance(last.b, Constant) else None


def backward(work: Selection, op: Cotangent, of: BatchNorm) -> None:
    """The gradient of what a norm reads; where two norms read one value, the second's with that of the first."""
    if op.operand:
        work.refuse(op, "the unit does not train the parameters of a norm with stored statistics", _STORED)
        return
    if parameters.running_input(of.mean, of.var) is not None:
        work.refuse(op, "its running statistics are states, and it is not in training mode", _STORED)
        return
    try:
        stored = _stored(of, parameters.norm_rows(of))
    except ValueError:
        return  # the norm itself was refused
    seed = key(op.seed)
    group = work.open.get(seed)
    fits = group is not None and group.stage is Stage.BACKWARD and group.tail.digest == seed
    if group is not None and fits and group.takes(op.seed, Backward.SCALE):
        readers, norms = work.readers[seed], work.norms[seed]
        if readers == norms == 2:
            work.second[seed] = group
        elif readers > 1:
            # The gradient before the norm has other readers, so it goes to memory beside the result.
            group.writes["dst1"] = Made(seed, Element.FP16, group.tail.shape, Role.FEATURE_GRADIENT)
        work.absorb(group, op, Backward.SCALE, Flag.BN_BACKWARD).reads["bn0"] = stored
        return
    if (group := work.second.pop(seed, None)) is not None:
        group.flags |= Flag.BN_BACKWARD_2
        group.origin.append(op)
        group.reads["bn1"] = stored
        group.writes["dst1"] = Made(op.digest, Element.FP16, op.shape, Role.FEATURE_GRADIENT)
        return
    work.stage(op, op.seed, Backward.SCALE, Flag.BN_BACKWARD).reads["bn0"] = stored
