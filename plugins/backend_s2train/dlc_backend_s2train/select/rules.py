"""Which rule places an op."""

from __future__ import annotations

from dlc.graph import Cotangent, Input, Op
from dlc.ops.elementwise import Add, Relu
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNorm, BatchNormTraining, Softmax
from dlc.ops.pool import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from dlc.ops.random import Dropout
from dlc.ops.reduce import ReduceMean
from dlc.ops.shape import Concat, Slice, Transpose
from dlc_backend_s2train.codes import Element, Flag, Role
from dlc_backend_s2train.select import affine, batches, biases, copies, dropout, hosting, losses, norms, pools, products
from dlc_backend_s2train.select.effects import addends, is_row, is_sum, mask, source
from dlc_backend_s2train.select.group import Backward, Forward, Given, Made
from dlc_backend_s2train.select.selection import Selection

Pooling = MaxPool | AveragePool | GlobalAveragePool | GlobalMaxPool | ReduceMean
Array = Conv | Gemm | MatMul


def visit(work: Selection, op: Op) -> None:
    """Place an op: in the group of what it reads, or in a new one. What has no instruction is refused."""
    match op:
        case _ if op.digest in work.hosted:
            hosting.place(work, op)
        case Cotangent():
            _visit_gradient(work, op)
        case Conv() | Gemm() | MatMul():
            products.forward(work, op)
        case BatchNorm():
            norms.forward(work, op)
        case BatchNormTraining():
            batches.forward(work, op)
        case Relu(x=x):
            group = work.stage(op, x, Forward.RELU, Flag.RELU)
            if work.kept(mask(op)):
                group.flags |= Flag.MASK_WRITE
                group.writes["mask"] = Made(mask(op), Element.BIT, op.shape, Role.MASK)
        case Dropout():
            dropout.forward(work, op)
        case MaxPool() | AveragePool() | GlobalAveragePool() | GlobalMaxPool() | ReduceMean():
            pools.forward(work, op)
        case LabelCrossEntropy():
            losses.forward(work, op)
        case Softmax():
            losses.probabilities(work, op)
        case Add() if bias := biases.bias_of(op):
            biases.forward(work, op, bias)
        case _:
            _visit_elements(work, op)


def _visit_elements(work: Selection, op: Op) -> None:
    """What moves or computes each element by itself."""
    match op:
        case Concat() | Slice() | Transpose():
            copies.forward(work, op)
        case _ if found := affine.affine_of(op):
            affine.forward(work, op, found)
        case _ if is_sum(op):
            _sum(work, op)
        case _:
            work.refuse(op, "it has no instruction", losses.TRAINS if _is_of_loss(op) else "")


def _is_of_loss(op: Op) -> bool:
    """Whether an op is a part of another loss than the device's."""
    return any(isinstance(x, LabelCrossEntropy) or (isinstance(x, Input) and x.role == "label") for x in op.operands)


def _visit_gradient(work: Selection, op: Cotangent) -> None:
    match op.of:
        case of if of.digest in work.hosted:
            work.refuse(op, f"{of.text_name} is computed by the host, and so is its gradient")
        case Conv() | Gemm() | MatMul():
            products.backward(work, op)
        case BatchNorm() as of:
            norms.backward(work, op, of)
        case BatchNormTraining() as of:
            batches.backward(work, op, of)
        case Relu() as of:
            work.stage(op, op.seed, Backward.MASK, Flag.MASK_READ).reads["mask"] = Given(mask(of), of.shape)
        case Dropout() as of:
            dropout.backward(work, op, of)
        case MaxPool() | AveragePool() | GlobalAveragePool() | GlobalMaxPool() | ReduceMean():
            pools.backward(work, op)
        case LabelCrossEntropy() as of:
            losses.backward(work, op, of)
        case Add() as of if (bias := biases.bias_of(of)) and op.xs[op.operand] == bias.b:
            biases.backward(work, op)
        case of:
            work.refuse(op, f"the gradient of {of.text_name} has no instruction", "train what comes behind it only")


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
        if isinstance(found, Cotangent):
            return True
        pending += addends(found) if is_sum(found) else ()
    return False
