"""Which rule places an op; and the rules of copies and dropout.

Concatenations, slices and shuffles are copies of the runs of elements that lie side by side on both sides:

    y = concat(a, b) along the channels of one sample   →   copy a to the begin of y, copy b behind it
    y = x with channels in another order                →   a copy of each channel

Behind more than one index in front of the axis there is a run for each of them. All are one op of the graph of
instructions, so that its memory is planned as a whole; the program has an instruction for each run.

Dropout is a stage of the unit, which draws its own bits and keeps them for the backward stage:

    y = dropout(x, seed, step)   →   y = x·bit/keep, with one bit of every element in memory

The bits are those of `dlc.ops.random` for the same seed, with the number of the run for that of the step, and stream 0.
Instructions have no streams, so what another stream draws comes from a seed of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Final

from dlc.graph import Cotangent, Input, Op
from dlc.ops.elementwise import Add, Relu
from dlc.ops.linear import Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNorm, BatchNormTraining, Softmax
from dlc.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from dlc.ops.random import Dropout
from dlc.ops.reduce import ReduceMean
from dlc.ops.shape import Concat, Slice, Transpose
from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.instruction import SEEDS, mixed
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import batches, host_fallback, memory, norms, pools, products, training
from dlc_backend_s2train.select.memory import addends, is_row, is_sum, kept, mask, offset, source
from dlc_backend_s2train.select.selection import Backward, Forward, Given, Group, Made, Selection

Pooling = MaxPool | AveragePool | GlobalAveragePool | GlobalMaxPool | ReduceMean


def visit(work: Selection, op: Op) -> None:
    """Place an op: in the group of what it reads, or in a new one. What has no instruction is refused."""
    match op:
        case _ if op.digest in work.hosted:
            host_fallback.place(work, op)
        case _ if not op.types[0].dtype.is_float:
            work.refuse(op, f"it computes {op.types[0].dtype.name}, and the device has arithmetic of fp16 only")
        case Cotangent():
            _visit_gradient(work, op)
        case Gemm() | MatMul() if batches.is_computed(op):
            batches.batch_forward(work, op)
        case _ if products.is_product(op):
            products.product_forward(work, op)
        case BatchNorm():
            norms.norm_forward(work, op)
        case BatchNormTraining():
            norms.batch_forward(work, op)
        case Relu(x=x):
            group = work.stage(op, x, Forward.RELU, Flag.RELU)
            if work.kept(mask(op)):
                group.flags |= Flag.MASK_WRITE
                group.writes["mask"] = Made(mask(op), Element.BIT, op.shape, Role.MASK)
        case Dropout():
            dropout_forward(work, op)
        case MaxPool() | AveragePool() | GlobalAveragePool() | GlobalMaxPool() | ReduceMean():
            pools.pool_forward(work, op)
        case LabelCrossEntropy():
            training.loss_forward(work, op)
        case Softmax():
            training.probabilities(work, op)
        case _:
            _visit_elements(work, op)


def _visit_elements(work: Selection, op: Op) -> None:
    """What moves or computes each element by itself."""
    match op:
        case Add() if bias := norms.bias_of(op):
            norms.bias_forward(work, op, bias)
        case Concat() | Slice() | Transpose():
            copy_forward(work, op)
        case _ if found := norms.affine_of(op):
            norms.affine_forward(work, op, found)
        case _ if is_sum(op):
            _sum(work, op)
        case _:
            work.refuse(op, "it has no instruction", training.TRAINS if _is_of_loss(op) else "")


def _is_of_loss(op: Op) -> bool:
    """Whether an op is a part of another loss than the device's."""
    return any(isinstance(x, LabelCrossEntropy) or (isinstance(x, Input) and x.role == "label") for x in op.operands)


def _visit_gradient(work: Selection, op: Cotangent) -> None:
    match op.of:
        case of if of.digest in work.hosted:
            work.refuse(op, f"{of.text_name} is computed by the host, and so is its gradient")
        case Gemm() | MatMul() as of if batches.is_computed(of):
            batches.batch_backward(work, op)
        case of if products.is_product(of):
            products.product_backward(work, op)
        case BatchNorm() as of:
            norms.norm_backward(work, op, of)
        case BatchNormTraining() as of:
            norms.batch_backward(work, op, of)
        case Relu() as of:
            work.stage(op, op.seed, Backward.MASK, Flag.MASK_READ).reads["mask"] = Given(mask(of), of.shape)
        case Dropout() as of:
            dropout_backward(work, op, of)
        case MaxPool() | AveragePool() | GlobalAveragePool() | GlobalMaxPool() | ReduceMean():
            pools.pool_backward(work, op)
        case LabelCrossEntropy() as of:
            training.loss_backward(work, op, of)
        case Add() as of if (bias := norms.bias_of(of)) and source(op.xs[op.operand]) == bias.b:
            norms.bias_backward(work, op)
        case of:
            work.refuse(op, f"the gradient of {of.text_name} has no instruction", "train only what comes after it")


def _sum(work: Selection, op: Op) -> None:
    a, b = addends(op)
    if any(is_row(x) for x in (a, b)):
        work.refuse(op, "the gradients of one norm's parameters come from several places: it stands in the model twice")
        return
    rank = Backward.SUM if _goes_back(a) or _goes_back(b) else Forward.ADD
    # The later product absorbs the sum: the other one is known by then.
    both = [(work.follows(x, rank, Flag.ADD), x, y) for x, y in ((b, a), (a, b))]
    found = [(work.groups.index(g), x, y) for g, x, y in both if g is not None]
    _, x, y = max(found, key=lambda f: f[0]) if found else (0, a, b)
    work.stage(op, x, rank, Flag.ADD).reads["res"] = work.given(y)


def _goes_back(op: Op) -> bool:
    """Whether a value is a sum in which there is a gradient."""
    pending = [op]
    while pending:
        found = source(pending.pop())
        if isinstance(found, Cotangent) and not memory.is_adjoint(found):
            return True
        pending += addends(found) if is_sum(found) else ()
    return False


MOST: Final = 1024
"""Runs of one op: each is an instruction with two tensors of its own."""
LEAST: Final = 16
"""Elements of a run that a transposition moves: the host is better at moving fewer."""
_HALF: Final = 2
"""Bytes of an fp16."""
Run = tuple[Op, int, tuple[int, ...]]
"""A value, its element at which the run begins, the run's shape."""


def runs_of(op: Op) -> list[Run] | str:
    """The runs that an op puts behind each other; or why it is no such op."""
    if not op.dtype.is_float:
        return f"it moves {op.dtype}: copies move floats"
    match op:
        case Concat(xs=xs, axis=axis):
            outer = math.prod(op.shape[:axis])
            parts = [(x, axis, 0, x.shape[axis:]) for x in xs if x.type.size]
        case Slice(x=x, starts=starts, sizes=sizes):
            cut = [d for d, (size, extent) in enumerate(zip(sizes, x.shape, strict=True)) if size != extent]
            if any(step != 1 for step in op.steps) or len(cut) != 1:
                return f"it takes {list(sizes)} of {x.type}: copies move whole rows of all but one dimension"
            (axis,) = cut
            outer = math.prod(op.shape[:axis])
            parts = [(x, axis, starts[axis] * math.prod(x.shape[axis + 1 :]), (sizes[axis], *x.shape[axis + 1 :]))]
        case Transpose(x=x, perm=perm):
            return _turned(x, perm)
        case _:
            return f"{op.text_name} is no copy"
    if outer * len(parts) > MOST or not op.type.size:
        return f"it would take {outer * len(parts):,} copies of runs of elements; {MOST} are the most"
    # All of one outer index first: that is the order of the result.
    return [
        (x, k * math.prod(x.shape[axis:]) + first, (*x.shape[:axis], *shape) if outer == 1 else shape)
        for k in range(outer)
        for x, axis, first, shape in parts
    ]


def _turned(x: Op, perm: tuple[int, ...]) -> list[Run] | str:
    """The runs of a transposition: what lies behind the last dimension that moves stays together."""
    moved = next((d + 1 for d in reversed(range(len(perm))) if perm[d] != d), 0)
    outer, run = [x.shape[p] for p in perm[:moved]], x.shape[moved:]
    size = math.prod(run)
    if size < LEAST or math.prod(outer) > MOST:
        message = f"{math.prod(outer):,} runs of {size} elements"
        return f"it moves {message}: copies move at most {MOST}, of at least {LEAST}"
    steps = [size * math.prod(x.shape[p + 1 : moved]) for p in perm[:moved]]
    places = (sum(i * step for i, step in zip(index, steps, strict=True)) for index in product(*map(range, outer)))
    return [(x, place, run) for place in places]


def copy_forward(work: Selection, op: Concat | Slice | Transpose) -> None:
    """Copy the runs, in the order of the result."""
    found = runs_of(op)
    if isinstance(found, str):
        work.refuse(op, found)
        return
    if any(is_row(x) for x, _, _ in found):
        work.refuse(op, "gradients of a norm's parameters are fp32: copies of runs move fp16")
        return
    group = Group(Opcode.COPY, Stage.FORWARD, op, origin=[op])
    for x, first, shape in found:
        given = work.given(x)
        group.sources.append(Given(given.value, shape, offset(x) + _HALF * first))
    group.writes["dst0"] = Made(op.digest, Element.FP16, op.shape, Role.ACTIVATION)
    work.groups.append(group)


def dropout_forward(work: Selection, op: Dropout) -> None:
    """Drop elements of what the group before gives."""
    if (seed := dropout_seed(op)) is None:
        work.refuse(op, "its seed is computed: it must be a constant")
        return
    group = work.stage(op, op.x, Forward.DROP, Flag.DROPOUT)
    group.hyper = replace(group.hyper or Hyper(), keep=1.0 - op.ratio, seed=seed)
    group.writes["aux"] = Made(kept(op), Element.BIT, op.shape, Role.MASK)


def dropout_backward(work: Selection, op: Cotangent, of: Dropout) -> None:
    """The gradient of what was kept."""
    if dropout_seed(of) is None:
        return  # the op itself was refused
    group = work.stage(op, op.seed, Backward.DROP, Flag.DROPOUT)
    group.hyper = replace(group.hyper or Hyper(), keep=1.0 - of.ratio)
    group.reads["aux"] = Given(kept(of), of.shape)


def dropout_seed(op: Dropout) -> int | None:
    """The seed of the device's bits."""
    found = memory.known_value(op.seed)
    if found is None:
        return None
    seed = int(found.reshape(-1)[0])
    return seed if op.stream == 0 and 0 <= seed < SEEDS else mixed(seed, op.stream)
