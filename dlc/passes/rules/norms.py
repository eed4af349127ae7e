"""Layer and RMS normalisation found in their parts: first the division by the deviation, then scale and bias."""

from __future__ import annotations

from dlc.api.rules import RewriteContext, full, rule
from dlc.base.types import Type
from dlc.graph.constants import is_number, number
from dlc.graph.op import Op
from dlc.ops.elementwise import Add, Div, Mul, Pow, Reciprocal, Sqrt, Sub
from dlc.ops.normalize import LayerNorm, RmsNorm
from dlc.ops.reduce import ReduceMean


def _inverted(op: Op) -> Op | None:
    """v of 1 / √v."""
    match op:
        case Reciprocal(x=d):
            return _rooted(d)
        case Div(a=one, b=d) if is_number(one, 1):
            return _rooted(d)
        case Pow(a=v, b=half) if is_number(half, -0.5):
            return v
        case _:
            return None


def _rooted(op: Op) -> Op | None:
    """v of √v."""
    match op:
        case Sqrt(x=v):
            return v
        case Pow(a=v, b=half) if is_number(half, 0.5):
            return v
        case _:
            return None


def _square(op: Op) -> Op | None:
    """x of x²."""
    match op:
        case Mul(a=a, b=b) if a == b:
            return a
        case Pow(a=a, b=two) if is_number(two, 2):
            return a
        case _:
            return None


def _mean_square(v: Op) -> tuple[Op, tuple[int, ...], float] | None:
    """(x, axes, ε) of mean(x²) + ε over the last dimensions."""
    match v:
        case Add(a=ReduceMean(x=squared, axes=axes, keep=True), b=epsilon):
            x, value = _square(squared), number(epsilon)
        case _:
            return None
    if x is None or value is None or not axes:
        return None
    rank = len(x.shape)
    return (x, axes, float(value)) if sorted(axes) == list(range(rank - len(axes), rank)) else None


def _is_centred(x: Op, axes: tuple[int, ...]) -> Op | None:
    """y of y - mean(y) over the axes."""
    match x:
        case Sub(a=y, b=ReduceMean(x=same, axes=found, keep=True)) if same == y and sorted(found) == sorted(axes):
            return y
        case _:
            return None


@rule(Mul, Div, composes=True)
def standardize(op: Mul | Div, context: RewriteContext) -> Op | None:
    """(x - mean x) / √(mean (x - mean x)² + ε) → layer_norm(x, 1); x / √(mean x² + ε) → rms_norm(x, 1)."""
    pairs = ((op.a, op.b),) if isinstance(op, Div) else ((op.a, op.b), (op.b, op.a))
    for x, deviation in pairs:
        v = _rooted(deviation) if isinstance(op, Div) else _inverted(deviation)
        found = None if v is None else _mean_square(v)
        if found is None or found[0] != x or not context.single(deviation):
            continue
        _, axes, epsilon = found
        first = min(axes)
        ones = full(1, Type(x.dtype, x.shape[first:]))
        if (inner := _is_centred(x, axes)) is not None:
            return LayerNorm(inner, ones, axis=first, epsilon=epsilon)
        return RmsNorm(x, ones, axis=first, epsilon=epsilon)
    return None


@rule(Mul, composes=True)
def norm_scale(op: Mul, context: RewriteContext) -> Op | None:
    """layer_norm(x, 1) · s → layer_norm(x, s) for s of the normalised shape; rms_norm likewise."""
    for norm, s in ((op.a, op.b), (op.b, op.a)):
        match norm:
            case LayerNorm(x=x, scale=one, bias=None, axis=axis, epsilon=epsilon):
                made = LayerNorm(x, s, axis=axis, epsilon=epsilon)
            case RmsNorm(x=x, scale=one, axis=axis, epsilon=epsilon):
                made = RmsNorm(x, s, axis=axis, epsilon=epsilon)
            case _:
                continue
        if is_number(one, 1) and s.shape == x.shape[axis:] and context.single(norm):
            return made
    return None


@rule(Add, composes=True)
def norm_bias(op: Add, context: RewriteContext) -> Op | None:
    """layer_norm(x, s) + b → layer_norm(x, s, b) for b of the normalised shape."""
    for norm, b in ((op.a, op.b), (op.b, op.a)):
        match norm:
            case LayerNorm(x=x, scale=s, bias=None, axis=axis, epsilon=epsilon):
                if b.shape == x.shape[axis:] and b.shape != x.shape and context.single(norm):
                    return LayerNorm(x, s, b, axis=axis, epsilon=epsilon)
            case _:
                continue
    return None


RULES = (standardize, norm_scale, norm_bias)
