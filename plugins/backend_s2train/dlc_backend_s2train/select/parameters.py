"""Weights and norms as the device stores them.

A weight becomes fp16. Parameters of a norm, and a bias, become a tensor [4, C] of mean, 1/std, scale and shift: that is
what the unit behind the array takes, y = (x - mean)·(1/std)·scale + shift. A bias alone is the shift of 0, 1, 1, b.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from dlc.base.types import Array, Type, f16, f32
from dlc.graph import Constant, Input, Op, Tensor, evaluate_ops
from dlc.graph.evaluate import is_constant
from dlc.ops.normalize import BatchNorm, BatchNormTraining

TURNED = "[T]"
"""Behind the name of a weight that is stored with its two dimensions exchanged."""
SCALE, SHIFT = 2, 3
"""Rows of a norm's tensor; a bias is its shift."""


def known_value(op: Op) -> Array | None:
    """What a constant holds, or a weight begins with; None for anything else, and where nobody knows."""
    if isinstance(op, Input):
        match op.initial:
            case Tensor() as tensor:
                return tensor.array()
            case None:
                return None
            case value:
                return np.full(op.shape, value, op.dtype.numpy)
    return np.asarray(evaluate_ops((op,), {})[0]) if is_constant(op) else None


def half(values: Array) -> Array:
    """Rounded to fp16, to nearest even; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def held(op: Op, values: Array, name: str = "") -> Op:
    """The new graph's op for a parameter: an input that begins with these values where `op` is one, else a constant."""
    dtype = f16 if values.dtype == np.float16 else f32
    tensor = Tensor.of(values)
    if isinstance(op, Input):
        return Input(name or op.name, Type(dtype, values.shape), "weight", tensor)
    return Constant(tensor, name or (op.name if isinstance(op, Constant) else ""))


def norm_rows(norm: BatchNorm, shift: Array | None = None) -> Array:
    """[4, C] of a norm whose parameters are known, in fp16; `shift` is added to what it normalises.

    Raises:
        ValueError: a parameter is no constant.
    """
    found = [known_value(x) for x in (norm.mean, norm.var, norm.scale, norm.bias)]
    if any(v is None for v in found):
        raise ValueError("its parameters are computed")
    mean, var, scale, bias = (cast("Array", v).astype(np.float64) for v in found)
    if shift is not None:
        mean = mean - shift.reshape(-1)
    return half(np.stack([mean, 1.0 / np.sqrt(var + norm.epsilon), scale, bias]))


def running_input(mean: Op, var: Op) -> Input | None:
    """The state [2, C] of running statistics that are states of the graph; None for others."""
    found = [known_value(x) for x in (mean, var)]
    if any(v is None for v in found) or not isinstance(mean, Input) or not isinstance(var, Input):
        return None
    start = np.stack([np.asarray(v, np.float32) for v in found])
    return Input(mean.name, Type(f32, start.shape), "state", Tensor.of(start))


def batch_norm_input(norm: BatchNorm | BatchNormTraining) -> Op | None:
    """The tensor [4, C] of a norm whose statistics lie elsewhere; None where its parameters are computed."""
    found = [known_value(x) for x in (norm.scale, norm.bias)]
    if any(v is None for v in found):
        return None
    rows = np.zeros((4, norm.x.shape[1]), np.float16)
    rows[1] = 1
    rows[SCALE], rows[SHIFT] = (half(cast("Array", v)) for v in found)
    trained = [x for x in (norm.scale, norm.bias) if isinstance(x, Input)]
    return held(trained[0] if trained else norm.scale, rows)


def bias_rows(bias: Array, channels: int) -> Array:
    """[4, C] of a bias of one or C elements."""
    rows: Array = np.zeros((4, channels), np.float16)
    rows[1:3] = 1
    rows[SHIFT] = half(np.broadcast_to(bias.reshape(-1), (channels,)))
    return rows


def weight(op: Op, transposed: bool) -> Op | None:
    """A weight in fp16, [out, in] for matrices, `TURNED` behind its name if need be; None where it is computed."""
    values = known_value(op)
    if values is None:
        return None
    name = f"{op.name}{TURNED}" if isinstance(op, Input) and transposed else ""
    return held(op, half(values.T if transposed else values), name)
