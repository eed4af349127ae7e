"""What lies in the device's memory: what training needs there, and weights and norms as the device stores them.

The accelerator keeps masks and places, where a graph keeps tensors. A gradient that stays named (`Cotangent`) has the
op itself as an operand, but an instruction reads less: the backward of relu its mask, that of a convolution weights or
data. `needs` tells which values those are, by key.

A weight becomes fp16. Parameters of a norm, and a bias, become a tensor [4, C] of mean, 1/std, scale and shift: that is
what the unit behind the array takes, y = (x - mean)·(1/std)·scale + shift. A bias alone is the shift of 0, 1, 1, b.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final, cast

import numpy as np

from dlc.base.narrowing import narrowed
from dlc.base.types import Array, Type, f16, f32
from dlc.graph import Call, Constant, Cotangent, Input, Op, Splat, Tensor, evaluate_ops
from dlc.graph.evaluate import is_constant
from dlc.ops.elementwise import Add, Mul, Relu
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNorm, BatchNormTraining
from dlc.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from dlc.ops.random import Dropout
from dlc.ops.reduce import ReduceMean
from dlc.ops.shape import Reshape
from dlc.passes.views import is_view

Key = str
"""Digest of an op whose value is meant, with `.mask` or `.ptr` behind it for what is kept besides."""
_WORD: Final = 4
"""Bytes of an fp32."""


def source(op: Op) -> Op:
    """What a view shows: the op whose value lies there in the same order."""
    while True:
        match op:
            case Reshape(x=x) | Dropout(x=x, ratio=0):
                op = x
            # What goes back through a sum is what came.
            case Cotangent(of=Add(), seed=seed) if op.shape == seed.shape:
                op = seed
            case Cotangent(of=Reshape() | Dropout(ratio=0), seed=seed):
                op = seed
            case _ if is_view(op):
                op = op.operands[0]
            case _:
                return op


def key(op: Op) -> Key:
    """The key of a value, behind all views. A loss gives its gradient together with its value."""
    match source(op):
        case Cotangent(of=LabelCrossEntropy() as of):
            return gradient(of)
        case Cotangent(of=BatchNormTraining() as of, operand=1 | 2):
            return parts(of)
        case found:
            return found.digest


def offset(op: Op) -> int:
    """Bytes before a value in what its key names."""
    match source(op):
        case Cotangent(of=BatchNormTraining() as of, operand=2):
            return _WORD * of.x.shape[1]
        case _:
            return 0


def mask(op: Op) -> Key:
    """The key of the mask that a relu keeps."""
    return f"{op.digest}.mask"


def kept(op: Op) -> Key:
    """The key of the bits that dropout keeps."""
    return f"{op.digest}.kept"


def pointers(op: Op) -> Key:
    """The key of the places that a max-pool keeps."""
    return f"{op.digest}.ptr"


def statistics(op: Op) -> Key:
    """The key of mean and 1/std of the batch, [2, C]."""
    return f"{op.digest}.statistics"


def parts(op: Op) -> Key:
    """The key of the gradients of scale and shift of a norm in training mode, [2, C]."""
    return f"{op.digest}.parts"


def gradient(op: Op) -> Key:
    """The key of the gradient that a loss computes together with its value."""
    return f"{op.digest}.gradient"


def owner(value: Key) -> str:
    """The digest of the op that a key belongs to."""
    return value.partition(".")[0]


def is_sum(op: Op) -> bool:
    """Whether an op adds two values of its own shape: a residual, or the gradients of two ways."""
    if isinstance(op, Add):
        return op.a.shape == op.b.shape == op.shape
    if not isinstance(op, Call) or len(op.args) != 2:
        return False
    from dlc.graph.gradient import sum_kernel

    return op.body.digest == sum_kernel(op.type).digest


def addends(op: Op) -> tuple[Op, Op]:
    """The two values of a sum."""
    a, b = op.operands
    return a, b


def is_row(op: Op) -> bool:
    """Whether a value is one of the two gradients that a norm in training mode stores together, in fp32."""
    found = source(op)
    return isinstance(found, Cotangent) and isinstance(found.of, BatchNormTraining) and found.operand > 0


def is_gradient(op: Op) -> bool:
    """Whether a value is a named gradient, or a sum of some."""
    pending = [op]
    while pending:
        found = source(pending.pop())
        if is_sum(found):
            pending += addends(found)
        elif not isinstance(found, Cotangent) or is_adjoint(found):
            return False
    return True


def is_adjoint(op: Op) -> bool:
    """Whether a value is a transposed convolution of a model: the gradient of a convolution whose data is nothing."""
    return isinstance(op, Cotangent) and isinstance(op.of, Conv) and isinstance(op.of.x, Splat)


def needs(op: Op, hosted: Set[str] = frozenset()) -> Iterator[Key]:
    """Keys of the values that the instruction of an op reads, apart from weights and parameters of norms.

    Of `hosted`, digests of what the host computes, all operands.
    """
    match op:
        case _ if op.digest in hosted:
            yield from (key(x) for x in op.operands)
        case Cotangent(of=Relu() as of, seed=seed):
            yield from (key(seed), mask(of))
        case Cotangent(of=Dropout() as of, seed=seed):
            yield from (key(seed), kept(of))
        case Cotangent(of=MaxPool() | GlobalMaxPool() as of, seed=seed):
            yield from (key(seed), pointers(of))
        case Cotangent(of=Add() | BatchNorm() | AveragePool() | GlobalAveragePool() | ReduceMean(), seed=seed):
            yield key(seed)
        case Cotangent(of=BatchNormTraining() as of, seed=seed):
            yield from (key(seed), key(of.x), statistics(of))
        case Cotangent(of=LabelCrossEntropy() as of):
            yield gradient(of)
        case Cotangent(of=(Gemm(b=b) | MatMul(b=b) | Mul(b=b)) as of, seed=seed, operand=k) if (
            isinstance(of, Mul) or known_value(b) is None
        ):
            yield key(seed)
            yield from (key(x) for j, x in enumerate(of.operands) if j != k)
        case Cotangent(of=Conv() | Gemm() | MatMul() as of, seed=seed, operand=k):
            yield key(seed)
            if k == 1:
                yield key(of.operands[0])
        case Cotangent(of=of, seed=seed):
            yield from (key(x) for x in (seed, *of.operands))
        case Gemm(b=b) | MatMul(b=b) if known_value(b) is None:
            yield from (key(x) for x in op.operands)
        case Conv() | Gemm() | MatMul() | BatchNorm() | BatchNormTraining() | Dropout():
            yield key(op.operands[0])
        case _:
            yield from (key(x) for x in op.operands)


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


NORM_ROWS: Final = ("mean", "1/std", "scale", "shift")
"""What the rows of a norm's tensor are."""


def half(values: Array, of: Op | tuple[Op, ...], parts: tuple[str, ...] = ()) -> Array:
    """Rounded to fp16, to nearest even; what is too large becomes infinite, which the build warns of.

    Args:
        values: The numbers.
        of: The parameter that they are, or the ops whose parameters they come from.
        parts: What each item of the first dimension is.
    """
    return narrowed(values, f16, of, parts)


def held(op: Op, values: Array, name: str = "") -> Op:
    """The new graph's op for a parameter: an input that begins with these values where `op` is one, else a constant."""
    dtype = f16 if values.dtype == np.float16 else f32
    tensor = Tensor.of(values)
    if isinstance(op, Input):
        return Input(name or op.name, Type(dtype, values.shape), "weight", tensor)
    return Constant(tensor, name or (op.name if isinstance(op, Constant) else ""))


def held_rows(op: Op, rows: Array, of: Op | tuple[Op, ...], name: str = "") -> Op:
    """The new graph's op for parameters of a norm, as `held`."""
    return held(op, half(rows, of, ("",) * len(rows) if of is op else NORM_ROWS), name)


def stored_weight(op: Input) -> Input:
    """A weight in fp16 in the shape that the model has it in, as the host reads it."""
    values = known_value(op)
    assert values is not None, "weights of a graph begin with something"
    return Input(op.name, Type(f16, op.shape), "weight", Tensor.of(half(values, op)))


def norm_rows(norm: BatchNorm, shift: Array | None = None) -> Array:
    """[4, C] of a norm whose parameters are known, in double precision; `shift` is added to what it normalises.

    Raises:
        ValueError: a parameter is no constant.
    """
    found = [known_value(x) for x in (norm.mean, norm.var, norm.scale, norm.bias)]
    if any(v is None for v in found):
        raise ValueError("its parameters are computed")
    mean, var, scale, bias = (cast("Array", v).astype(np.float64) for v in found)
    if shift is not None:
        mean = mean - shift.reshape(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([mean, 1.0 / np.sqrt(var + norm.epsilon), scale, bias])


def running_input(mean: Op, var: Op) -> Input | None:
    """The state [2, C] of running statistics that are states of the graph; None for others."""
    found = [known_value(x) for x in (mean, var)]
    if any(v is None for v in found) or not isinstance(mean, Input) or not isinstance(var, Input):
        return None
    start = narrowed(np.stack([np.asarray(v) for v in found]), f32, mean, ("mean", "variance"))
    return Input(mean.name, Type(f32, start.shape), "state", Tensor.of(start))


def batch_norm_input(norm: BatchNorm | BatchNormTraining) -> Op | None:
    """The tensor [4, C] of a norm whose statistics lie elsewhere; None where its parameters are computed."""
    found = [known_value(x) for x in (norm.scale, norm.bias)]
    if any(v is None for v in found):
        return None
    rows = np.zeros((4, norm.x.shape[1]))
    rows[1] = 1
    rows[SCALE], rows[SHIFT] = (cast("Array", v) for v in found)
    trained = [x for x in (norm.scale, norm.bias) if isinstance(x, Input)]
    return held(trained[0] if trained else norm.scale, half(rows, norm, NORM_ROWS))


def bias_rows(bias: Array, channels: int) -> Array:
    """[4, C] of a bias of one or C elements, in double precision."""
    rows: Array = np.zeros((4, channels))
    rows[1:3] = 1
    rows[SHIFT] = np.broadcast_to(bias.reshape(-1), (channels,))
    return rows


def weight(op: Op, transposed: bool) -> Op | None:
    """A weight in fp16, [out, in] for matrices, `TURNED` behind its name if need be; None where it is computed."""
    values = known_value(op)
    if values is None:
        return None
    name = f"{op.name}{TURNED}" if isinstance(op, Input) and transposed else ""
    return held(op, half(values.T if transposed else values, op), name)
