"""What ops of a training step need in memory: the accelerator keeps masks and places, where a graph keeps tensors.

A gradient that stays named (`Cotangent`) has the op itself as an operand, but an instruction reads less: the backward
of relu its mask, that of a convolution weights or data. `needs` tells which values those are, by key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dlc.graph import Call, Cotangent, Op
from dlc.ops.elementwise import Add, Relu
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNorm
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Reshape
from dlc.passes.views import is_view

Key = str
"""Digest of an op whose value is meant, with `.mask` or `.ptr` behind it for what is kept besides."""
NAMED: Final = ("conv", "gemm", "mat_mul", "batch_norm", "relu", "max_pool", "label_cross_entropy")
"""Ops whose gradients selection wants named."""


def source(op: Op) -> Op:
    """What a view shows: the op whose value lies there in the same order."""
    while isinstance(op, Reshape) or is_view(op):
        op = op.operands[0]
    if isinstance(op, Cotangent) and isinstance(op.of, Reshape):
        return source(op.seed)
    return op


def key(op: Op) -> Key:
    """The key of a value, behind all views. A loss gives its gradient together with its value."""
    found = source(op)
    if isinstance(found, Cotangent) and isinstance(found.of, LabelCrossEntropy):
        return gradient(found.of)
    return found.digest


def mask(op: Op) -> Key:
    """The key of the mask that a relu keeps."""
    return f"{op.digest}.mask"


def pointers(op: Op) -> Key:
    """The key of the places that a max-pool keeps."""
    return f"{op.digest}.ptr"


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


def needs(op: Op) -> Iterator[Key]:
    """Keys of the values that the instruction of an op reads, apart from weights and parameters of norms."""
    match op:
        case Cotangent(of=Relu() as of, seed=seed):
            yield from (key(seed), mask(of))
        case Cotangent(of=MaxPool() as of, seed=seed):
            yield from (key(seed), pointers(of))
        case Cotangent(of=BatchNorm(), seed=seed):
            yield key(seed)
        case Cotangent(of=LabelCrossEntropy() as of):
            yield gradient(of)
        case Cotangent(of=Conv() | Gemm() | MatMul() as of, seed=seed, operand=k):
            yield key(seed)
            if k == 1:
                yield key(of.operands[0])
        case Cotangent(of=of, seed=seed):
            yield from (key(x) for x in (seed, *of.operands))
        case Conv() | Gemm() | MatMul() | BatchNorm():
            yield key(op.operands[0])
        case _:
            yield from (key(x) for x in op.operands)
