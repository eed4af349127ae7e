"""Composite ops found in their parts: exporters take normalisations and activations apart, targets want them whole."""

from __future__ import annotations

import math

from dlc.api.rules import RewriteContext, equation, rule
from dlc.graph.constants import is_near, is_number, number
from dlc.graph.op import Op
from dlc.ops.elementwise import (
    Abs,
    Add,
    Clip,
    Div,
    Erf,
    Exp,
    Gelu,
    HardSigmoid,
    HardSwish,
    Log,
    Mish,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Sigmoid,
    Softplus,
    Softsign,
    Sub,
    Tanh,
)
from dlc.ops.normalize import LogSoftmax, Softmax
from dlc.ops.reduce import ReduceMax, ReduceSum, ReduceSumSquare
from dlc.passes.rules import norms


@rule(Div, composes=True)
def softmax(op: Div, context: RewriteContext) -> Op | None:
    """e / Σ e → softmax(x) with e = exp(x - max x); with `fast` also e = exp(x), which overflows sooner."""
    match op:
        case Div(a=Exp(x=shifted) as e, b=ReduceSum(x=Exp() as summed, axes=(axis,), keep=True)) if e == summed:
            pass
        case _:
            return None
    match shifted:
        case Sub(a=x, b=ReduceMax(x=same, axes=(other,), keep=True)) if same == x and other == axis:
            return Softmax(x, axis=axis)
        case _:
            return Softmax(shifted, axis=axis) if context.fast else None


@equation(Sub, composes=True)
def log_softmax(op: Sub) -> Op | None:
    """s - log Σ exp(s) → log_softmax(x) with s = x - max x."""
    match op:
        case Sub(
            a=Sub(a=x, b=ReduceMax(x=same, axes=(axis,), keep=True)) as s, b=Log(x=ReduceSum(x=Exp(x=again)) as r)
        ):
            whole = same == x and again == s and r.axes == (axis,) and r.keep
            return LogSoftmax(x, axis=axis) if whole else None
        case _:
            return None


@equation(Log, composes=True, fast=True)
def log_of_softmax(op: Log) -> Op | None:
    """log(softmax(x)) → log_softmax(x), which does not underflow."""
    return LogSoftmax(op.x.x, axis=op.x.axis) if isinstance(op.x, Softmax) else None


def factors(op: Op, depth: int = 4) -> list[Op]:
    """The factors of nested products; a division by a number counts as a product with its reciprocal elsewhere."""
    if depth and isinstance(op, Mul):
        return [*factors(op.a, depth - 1), *factors(op.b, depth - 1)]
    return [op]


def _take_number(found: list[Op], value: float) -> bool:
    """Remove one factor that is about `value`."""
    for k, x in enumerate(found):
        if is_near(x, value):
            del found[k]
            return True
    return False


@rule(Mul, composes=True)
def gelu(op: Mul, context: RewriteContext) -> Op | None:
    """x · ½ · (1 + erf(x / √2)) → gelu(x), and the form with tanh, factors in any order."""
    found = factors(op)
    for k, x in enumerate(found):
        match x:
            case Add(a=Erf() | Tanh() as curve, b=one) if is_number(one, 1):
                rest = [*found[:k], *found[k + 1 :]]
            case _:
                continue
        if not _take_number(rest, 0.5) or len(rest) != 1 or rest[0].shape != op.shape or not context.single(curve):
            return None
        (value,) = rest
        if isinstance(curve, Erf):
            return Gelu(value) if _is_scaled(curve.x, value, math.sqrt(0.5)) else None
        return Gelu(value, approximate="tanh") if _is_tanh_argument(curve.x, value) else None
    return None


def _is_scaled(op: Op, x: Op, factor: float) -> bool:
    """Whether op is x · factor, however written."""
    match op:
        case Mul(a=a, b=b):
            return a == x and is_near(b, factor)
        case Div(a=a, b=b):
            return a == x and is_near(b, 1 / factor)
        case _:
            return False


def _is_tanh_argument(op: Op, x: Op) -> bool:
    """Whether op is √(2/π) · (x + 0.044715 x³), or with x taken out of the sum."""
    found = factors(op)
    if not _take_number(found, math.sqrt(2 / math.pi)):
        return False
    sums = [f for f in found if isinstance(f, Add)]
    others = [f for f in found if not isinstance(f, Add)]
    if len(sums) != 1 or others not in ([], [x]):
        return False
    power, parts = (2, (sums[0].a, sums[0].b)) if others else (3, (sums[0].a, sums[0].b))
    return any(
        (is_number(first, 1) if others else first == x) and _is_power(second, x, power)
        for first, second in (parts, parts[::-1])
    )


def _is_power(op: Op, x: Op, exponent: int) -> bool:
    """Whether op is 0.044715 · x ** exponent."""
    found = factors(op)
    if not _take_number(found, 0.044715):
        return False
    left = exponent
    for f in found:
        match f:
            case Pow(a=a, b=b) if a == x and number(b) in (2, 3):
                left -= int(number(b) or 0)
            case _ if f == x:
                left -= 1
            case _:
                return False
    return left == 0


@equation(Reciprocal, Div, composes=True)
def sigmoid(op: Reciprocal | Div) -> Op | None:
    """1 / (1 + exp(-x)) → sigmoid(x)."""
    if isinstance(op, Div) and not is_number(op.a, 1):
        return None
    match op.b if isinstance(op, Div) else op.x:
        case Add(a=Exp(x=Neg(x=x)), b=one) if is_number(one, 1) and x.shape == op.shape:
            return Sigmoid(x)
        case _:
            return None


@equation(Log, composes=True, fast=True)
def softplus(op: Log) -> Op | None:
    """log(1 + exp(x)) → softplus(x), which does not overflow."""
    match op.x:
        case Add(a=Exp(x=x), b=one) if is_number(one, 1) and x.shape == op.shape:
            return Softplus(x)
        case _:
            return None


@equation(Div, composes=True)
def softsign(op: Div) -> Op | None:
    """x / (1 + |x|) → softsign(x)."""
    match op:
        case Div(a=x, b=Add(a=Abs(x=same), b=one)) if same == x and is_number(one, 1):
            return Softsign(x)
        case _:
            return None


@equation(Mul, Div, composes=True)
def hard_sigmoid(op: Mul | Div) -> Op | None:
    """clip(x + 3, 0, 6) / 6 → hard_sigmoid(x, 1/6, 1/2)."""
    sixth = is_near(op.b, 6.0) if isinstance(op, Div) else is_near(op.b, 1 / 6)
    match op.a:
        case Clip(x=Add(a=x, b=three), low=0, high=6) if sixth and is_number(three, 3) and x.shape == op.shape:
            return HardSigmoid(x, alpha=1 / 6, beta=0.5) if op.dtype.is_float else None
        case _:
            return None


@equation(Mul, Div, composes=True)
def hard_swish(op: Mul | Div) -> Op | None:
    """x · hard_sigmoid(x, 1/6, 1/2) → hard_swish(x); x · clip(x + 3, 0, 6) / 6 → hard_swish(x)."""
    match op:
        case Div(a=Mul(a=a, b=b), b=six) if is_near(six, 6.0):
            pass
        case Mul(a=Mul(a=a, b=b), b=sixth) if is_near(sixth, 1 / 6):
            pass
        case Mul(a=a, b=b):
            for x, gate in ((a, b), (b, a)):
                match gate:
                    case HardSigmoid(x=same, beta=0.5) if same == x and abs(gate.alpha - 1 / 6) < 1e-6:
                        return HardSwish(x)
                    case _:
                        continue
            return None
        case _:
            return None
    for x, gate in ((a, b), (b, a)):
        match gate:
            case Clip(x=Add(a=same, b=three), low=0, high=6) if same == x and is_number(three, 3):
                return HardSwish(x) if op.dtype.is_float and x.shape == op.shape else None
            case _:
                continue
    return None


@equation(Mul, composes=True)
def mish(op: Mul) -> Op | None:
    """x · tanh(softplus(x)) → mish(x)."""
    for x, gate in ((op.a, op.b), (op.b, op.a)):
        match gate:
            case Tanh(x=Softplus(x=same)) if same == x:
                return Mish(x)
            case _:
                continue
    return None


@rule(ReduceSum, composes=True)
def sum_of_squares(op: ReduceSum, context: RewriteContext) -> Op | None:
    """Σ x · x → reduce_sum_square(x)."""
    match op.x:
        case Mul(a=a, b=b) if a == b and context.single(op.x):
            return ReduceSumSquare(a, axes=op.axes, keep=op.keep)
        case _:
            return None


RULES = (
    softmax,
    log_softmax,
    log_of_softmax,
    gelu,
    sigmoid,
    softplus,
    softsign,
    hard_sigmoid,
    hard_swish,
    mish,
    sum_of_squares,
    *norms.RULES,
)
