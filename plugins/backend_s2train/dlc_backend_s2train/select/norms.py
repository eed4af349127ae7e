"""Norms of channels: with statistics that are stored or those of the batch, affine maps by constants, and biases.

    y = batch_norm(x)                          →   a stage of the unit; its statistics are stored
    y = batch_norm_training(x, scale, shift)   →   y, [mean, 1/std], running statistics moved: ELTWISE with BN_TRAIN
    dy                                         →   dx, [d scale, d shift]
    y = x·s + t                                →   the norm with mean 0, 1/std 1, scale s and shift t; behind a constant
                                                   norm it becomes part of that
    y = x·w + b, db                            →   the unit's norm with 0, 1, 1, b behind the product; db = Σ dy

Statistics of the batch need the whole value before them in memory (Ioffe and Szegedy 2015); scale and shift are rows 2
and 3 of the norm's tensor [4, C], and trained there. A constant, or a weight that is added (exporters write the bias
of a matrix product so), is one number for all, or one per channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dlc.base.types import Array
from dlc.graph import Constant, Cotangent, Input, Op
from dlc.ops.elementwise import Add, Div, Mul, Sub
from dlc.ops.linear import Conv
from dlc.ops.normalize import BatchNorm, BatchNormTraining
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.ops.standardize import CentredSum
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.memory import is_gradient, key, parts, source, statistics
from dlc_backend_s2train.select.selection import Backward, Forward, Given, Group, Made, Rows, Running, Selection, map_of
from dlc_backend_s2train.select.training import linear

_STORED = "keep the norm's parameters as they are: wrt=!norms stored-norms=yes"


def norm_forward(work: Selection, op: BatchNorm) -> None:
    """A norm behind a sum, or by itself."""
    if (running := memory.running_input(op.mean, op.var)) is not None:
        _standing(work, op, running)
        return
    product = work.open.get(key(op.x))
    bias = _fixed_bias(work, product, op) if product is not None else None
    try:
        rows = memory.norm_rows(op, None if bias is None else memory.known_value(bias))
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
    if (held := memory.batch_norm_input(op)) is None:
        work.refuse(op, "its scale or its shift is computed: they must be stored")
        return
    group = work.stage(op, op.x, Forward.NORM, Flag.BN_FORWARD)
    group.reads["bn0"], group.reads["bn1"] = Given(held, held.shape), Given(running, running.shape)
    group.hyper = replace(group.hyper or Hyper(), epsilon=op.epsilon)


def _stored(op: BatchNorm, rows: Array) -> Given:
    return _constant(Rows(rows, (op,)), op.scale.name if isinstance(op.scale, Constant) else "")


def _constant(rows: Rows, name: str = "") -> Given:
    """Parameters of a norm that are constants."""
    held = Constant(memory.Tensor.of(memory.half(rows.values, rows.origin, memory.NORM_ROWS)), name)
    return Given(held, rows.values.shape, exact=rows)


def _fixed_bias(work: Selection, product: Group, op: BatchNorm) -> Op | None:
    """The bias of a convolution that only this norm reads, if it is not trained."""
    last = product.tail
    alone = work.readers[last.digest] == 1 and source(op.x) is last and product.rank == Forward.NORM
    return last.b if alone and isinstance(last, Conv) and isinstance(last.b, Constant) else None


def norm_backward(work: Selection, op: Cotangent, of: BatchNorm) -> None:
    """The gradient of what a norm reads; where two norms read one value, the second's with that of the first."""
    if op.operand:
        work.refuse(op, "the unit does not train the parameters of a norm with stored statistics", _STORED)
        return
    if memory.running_input(of.mean, of.var) is not None:
        work.refuse(op, "its running statistics are states, and it is not in training mode", _STORED)
        return
    try:
        stored = _stored(of, memory.norm_rows(of))
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
            # The gradient before the norm has other consumers, so it is stored in memory beside the result.
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


_CLOSE = 1e-6


def batch_forward(work: Selection, op: BatchNormTraining) -> None:
    """Normalise by the batch. Sum, relu, pool and dropout may follow in the same instruction."""
    held = memory.batch_norm_input(op)
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
        group.writes["bn1"] = Made(moved_key(op.digest), Element.FP32, (2, channels), Role.NORM)


def batch_backward(work: Selection, op: Cotangent, of: BatchNormTraining) -> None:
    """All gradients of a norm, at the first of them."""
    held = memory.batch_norm_input(of)
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


def moved_key(digest: str) -> str:
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
    held = memory.running_input(mean, var)
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


@dataclass(frozen=True)
class Affine:
    """x·scale + shift; both [C] in double precision."""

    x: Op
    scale: Array
    shift: Array


def affine_of(op: Op) -> Affine | None:
    """The affine map of channels that an op is, if one of its operands is constant."""
    match op:
        case Mul(a=a, b=b):
            pairs = ((a, b, 1.0), (b, a, 1.0))
        case Add(a=a, b=b):
            pairs = ((a, b, 1.0), (b, a, 1.0))
        case Sub(a=a, b=b):
            pairs = ((a, b, -1.0), (b, a, 1.0))
        case Div(a=a, b=b):
            pairs = ((a, b, 1.0),)
        case _:
            return None
    for k, (x, other, sign) in enumerate(pairs):
        numbers = _per_channel(other, op.shape) if x.shape == op.shape else None
        if numbers is None:
            continue
        ones = np.ones_like(numbers)
        if isinstance(op, Mul | Div):
            return Affine(x, numbers if isinstance(op, Mul) else 1.0 / numbers, 0.0 * ones)
        turned = -1.0 if isinstance(op, Sub) and k else 1.0
        return Affine(x, turned * ones, sign * numbers)
    return None


def _per_channel(op: Op, shape: tuple[int, ...]) -> Array | None:
    """A constant as a number per channel of a value of this shape; None where it is no constant, or has more."""
    # A weight may move.
    values = None if isinstance(op, Input) else memory.known_value(op)
    if values is None or len(shape) < 2 or (isinstance(op, Constant) and not op.type.dtype.is_float):
        return None
    channels = shape[1]
    grown = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(extent != 1 and axis != 1 for axis, extent in enumerate(grown.shape)):
        return None
    return np.broadcast_to(grown.reshape(-1).astype(np.float64), (channels,))


def affine_forward(work: Selection, op: Op, found: Affine) -> None:
    """Place an affine map: in the constant norm before it, as a norm, or, of a gradient, as a backward norm."""
    if is_gradient(found.x):
        if found.shift.any():
            work.refuse(op, "a constant is added to a gradient")
            return
        group = work.stage(op, found.x, Backward.SCALE, Flag.BN_BACKWARD)
        group.reads["bn0"] = _given(op, found.scale, found.shift)
        return
    before = work.open.get(key(found.x))
    if before is not None and _merges(work, before, found.x):
        exact = before.reads["bn0"].exact
        assert exact is not None
        mean, rstd, scale, shift = exact.values
        values = np.stack([mean, rstd, scale * found.scale, shift * found.scale + found.shift])
        before.reads["bn0"] = _constant(Rows(values, (*exact.origin, op)))
        work.absorb(before, op, Forward.NORM, Flag.BN_FORWARD)
        return
    work.stage(op, found.x, Forward.NORM, Flag.BN_FORWARD).reads["bn0"] = _given(op, found.scale, found.shift)


def _merges(work: Selection, group: Group, x: Op) -> bool:
    """Whether a group ends with a norm of constants that nobody else reads."""
    given = group.reads.get("bn0")
    ends = group.rank == Forward.NORM and Flag.BN_FORWARD in group.flags and work.readers[key(x)] == 1
    alike = group.tail.digest == key(x) and map_of(group.shape) == map_of(x.shape)
    return ends and alike and given is not None and given.exact is not None and isinstance(given.value, Constant)


def _given(op: Op, scale: Array, shift: Array) -> Given:
    rows = np.stack([np.zeros_like(scale), np.ones_like(scale), scale, shift])
    return _constant(Rows(rows, (op,)))


@dataclass(frozen=True)
class Bias:
    """x + b."""

    x: Op
    b: Input
    held: Op
    """[4, C], of which b is the shift."""


def bias_of(op: Op) -> Bias | None:
    """The addition of a weight that an op is, if that has a number for each channel."""
    if not isinstance(op, Add) or len(op.shape) < 2:
        return None
    channels = op.shape[1]
    for x, b in ((op.a, op.b), (op.b, op.a)):
        over = (1,) * (len(op.shape) - len(b.shape)) + b.shape
        each = all(extent == 1 or axis == 1 for axis, extent in enumerate(over)) and b.type.size == channels
        found = source(b)
        if isinstance(found, Input) and found.role == "weight" and x.shape == op.shape and each:
            values = memory.known_value(found)
            if values is not None:
                return Bias(x, found, memory.held_rows(found, memory.bias_rows(values, channels), found))
    return None


def bias_forward(work: Selection, op: Op, found: Bias) -> None:
    """Add the bias behind a product, or by itself."""
    work.stage(op, found.x, Forward.NORM, Flag.BN_FORWARD).reads["bn0"] = Given(found.held, found.held.shape)


def bias_backward(work: Selection, op: Cotangent) -> None:
    """The gradient of the bias: sums of what comes back. That of the sum itself is a view."""
    n, channels, *rest = op.seed.shape
    rows, columns = (*rest, 1, 1)[:2]
    product = Opcode.CONV if rest else Opcode.LINEAR
    shape = Geometry(n, 1, channels, rows, columns, rows, columns)
    group = Group(product, Stage.WEIGHT_GRADIENT, op, geometry=shape, origin=[op])
    group.reads["src0"] = work.given(op.seed)
    group.writes["dst0"] = Made(op.digest, Element.FP16, (channels,), Role.WEIGHT_GRADIENT)
    work.groups.append(group)
