"""Multiplication by constants, and addition of constants, one for all or one per channel: what a norm does.

y = x·s + t   →   the norm with mean 0, 1/std 1, scale s and shift t; behind a constant norm it becomes part of that
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.base.types import Array
from dlc.graph import Constant, Input, Op
from dlc.ops.elementwise import Add, Div, Mul, Sub
from dlc_backend_s2train.codes import Flag
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import is_gradient, key
from dlc_backend_s2train.select.group import Backward, Forward, Given, Group, map_of
from dlc_backend_s2train.select.selection import Selection


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
    values = None if isinstance(op, Input) else parameters.known_value(op)
    if values is None or len(shape) < 2 or (isinstance(op, Constant) and not op.type.dtype.is_float):
        return None
    channels = shape[1]
    grown = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(extent != 1 and axis != 1 for axis, extent in enumerate(grown.shape)):
        return None
    return np.broadcast_to(grown.reshape(-1).astype(np.float64), (channels,))


def forward(work: Selection, op: Op, found: Affine) -> None:
    """Place an affine map: in the constant norm before it, as a norm, or, of a gradient, as a backward norm."""
    if is_gradient(found.x):
        if found.shift.any():
            work.refuse(op, "a constant is added to a gradient")
            return
        group = work.stage(op, found.x, Backward.SCALE, Flag.BN_BACKWARD)
        group.reads["bn0"] = _given(found.scale, found.shift)
        return
    before = work.open.get(key(found.x))
    if before is not None and _merges(work, before, found.x):
        rows = parameters.known_value(before.reads["bn0"].value)  # type: ignore[arg-type]
        assert rows is not None
        mean, rstd, scale, shift = rows.astype(np.float64)
        told = np.stack([mean, rstd, scale * found.scale, shift * found.scale + found.shift])
        held = Constant(parameters.Tensor.of(parameters.half(told)))
        before.reads["bn0"] = Given(held, told.shape)
        work.absorb(before, op, Forward.NORM, Flag.BN_FORWARD)
        return
    work.stage(op, found.x, Forward.NORM, Flag.BN_FORWARD).reads["bn0"] = _given(found.scale, found.shift)


def _merges(work: Selection, group: Group, x: Op) -> bool:
    """Whether a group ends with a norm of constants that nobody else reads."""
    given = group.reads.get("bn0")
    ends = group.rank == Forward.NORM and Flag.BN_FORWARD in group.flags and work.readers[key(x)] == 1
    alike = group.tail.digest == key(x) and map_of(group.shape) == map_of(x.shape)
    return ends and alike and given is not None and isinstance(given.value, Constant)


def _given(scale: Array, shift: Array) -> Given:
    rows = np.stack([np.zeros_like(scale), np.ones_like(scale), scale, shift])
    return Given(Constant(parameters.Tensor.of(parameters.half(rows))), rows.shape)
