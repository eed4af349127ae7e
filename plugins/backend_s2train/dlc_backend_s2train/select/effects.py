"""What ops of a training step need in memory: the accelerator keeps masks and places, where a graph keeps tensors.

A gradient that stays named (`Cotangent`) has the op itself as an operand, but an instruction reads less: the backward
of relu its mask, that of a convolution weights or data. `needs` tells which values those are, by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from dlc.graph import Call, Cotangent, Op
from dlc.ops.elementwise import Add, Relu
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
        elif not isinstance(found, Cotangent):
            return False
    return True


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
        case Cotangent(of=Conv() | Gemm() | MatMul() as of, seed=seed, operand=k):
            yield key(seed)
            if k == 1:
                yield key(of.operands[0])
        case Cotangent(of=of, seed=seed):
            yield from (key(x) for x in (seed, *of.operands))
        case Conv() | Gemm() | MatMul() | BatchNorm() | BatchNormTraining() | Dropout():
            yield key(op.operands[0])
        case _:
            yield from (key(x) for x in op.operands)
