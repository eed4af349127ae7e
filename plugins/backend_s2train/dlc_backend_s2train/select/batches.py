"""Products of two computed matrices, one of each item of a batch: an instruction for every item.

    y[k] = a[k]·b[k]          →   linear backward, dy = a[k], w = b[k]
    da[k] = dy[k]·b[k]ᵀ       →   linear forward, x = dy[k], w = b[k]
    db[k] = a[k]ᵀ·dy[k]       →   linear weight_gradient, dy = a[k], x = dy[k]
    y = a·bᵀ                  →   linear forward, x = a, w = b; and its gradients the other two

The array does not mind where its weights come from, so the three stages of a linear layer are the three ways to
multiply matrices. All items are one op of the graph of instructions (`S2Instruction.times`): their memory is one value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlc.graph import Cotangent, Op
from dlc.ops.linear import Gemm, MatMul
from dlc_backend_s2train.codes import Element, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.selection import Group, Made, Selection

MOST = 4096
"""Items of one op: each is an instruction with three tensors of its own."""


@dataclass(frozen=True)
class Batch:
    """A product of two computed matrices, or of as many as there are items."""

    a: Op
    b: Op
    items: int
    turned: bool = False
    """Whether it is a·bᵀ."""


def batch_of(op: Op) -> Batch | str:
    """The batch of products that an op is; or why it is none."""
    match op:
        case Gemm(a=a, b=b, c=None) if not op.trans_a and op.alpha == 1.0:
            return Batch(a, b, 1, op.trans_b)
        case MatMul(a=a, b=b):
            pass
        case _:
            return f"{op.text_name} is no product of two matrices"
    if len(a.shape) < 2 or len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        return f"a product of {a.type} and {b.type}: both need the same items"
    items = math.prod(a.shape[:-2])
    if items > MOST:
        return f"a product of {items:,} pairs of matrices: {MOST:,} are the most"
    return Batch(a, b, items)


def is_computed(op: Op) -> bool:
    """Whether the second factor of a product is no stored weight."""
    return isinstance(op, Gemm | MatMul) and memory.known_value(op.b) is None


def batch_forward(work: Selection, op: Op) -> None:
    """All products of a batch."""
    found = batch_of(op)
    if isinstance(found, str):
        work.refuse(op, found)
    elif found.turned:
        _place(work, op, Stage.FORWARD, found.items, found.a, found.b)
    else:
        _place(work, op, Stage.BACKWARD, found.items, found.a, found.b)


def batch_backward(work: Selection, op: Cotangent) -> None:
    """The gradients of all factors on one side."""
    found, dy = batch_of(op.of), op.seed
    if isinstance(found, str):
        return  # the product itself was refused
    if op.operand == 0:
        _place(work, op, Stage.BACKWARD if found.turned else Stage.FORWARD, found.items, dy, found.b)
    elif found.turned:
        _place(work, op, Stage.WEIGHT_GRADIENT, found.items, dy, found.a)
    else:
        _place(work, op, Stage.WEIGHT_GRADIENT, found.items, found.a, dy)


def _place(work: Selection, op: Op, stage: Stage, items: int, first: Op, second: Op) -> None:
    """A product of matrices, `items` times, by the stage of a linear layer that multiplies them so."""
    one, other, result = first.shape[-2:], second.shape[-2:], op.shape[-2:]
    match stage:
        case Stage.FORWARD:  # x[n, ci]·w[co, ci]ᵀ
            n, ci, co = *one, other[0]
        case _:  # dy[n, co]·w[co, ci], or dy[n, co]ᵀ·x[n, ci]
            n, co, ci = *one, other[1]
    group = Group(Opcode.LINEAR, stage, op, geometry=Geometry(n, ci, co), origin=[op], times=items)
    group.reads["src0"], group.reads["src1"] = work.given(first, one), work.given(second, other)
    role = Role.FEATURE_GRADIENT if isinstance(op, Cotangent) else Role.ACTIVATION
    group.writes["dst0"] = Made(op.digest, Element.FP16, result, role, whole=op.shape)
    work.groups.append(group)
