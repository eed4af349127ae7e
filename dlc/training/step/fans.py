"""How many values a weight's outputs sum over, and how many of them one input reaches: by how the model uses it.

    Gemm(x, w, trans_b=True), w[f, c]            in: c           out: f
    Gemm(x, w), MatMul(x, w), w[c, f]            in: c           out: f          batches of matrices count once
    Conv(x, w), w[f, c, k…]                      in: c·Πk        out: f·Πk       as torch.nn.init, groups or not
    ConvTranspose(x, w), w[c, f, k…]             in: f·Πk        out: c·Πk       as torch.nn.init, which sees no op
    any other use, of rank 2 or more             as for Conv: torch.nn.init of such a tensor

So a layer begins alike however its exporter laid out its weights: w is followed through Transpose, Cast, Slice and
through Reshape that moves dimensions of extent 1. Of several products the first in order of computation counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.graph import Op, toposort
from dlc.ops.elementwise import Cast
from dlc.ops.linear import Conv, ConvTranspose, Einsum, Gemm, MatMul
from dlc.ops.shape import Reshape, Slice, Transpose

Axes = tuple[int, ...]
"""For every dimension of a view the dimension of the weight that it is; -1 for one of extent 1 that is none."""


@dataclass(frozen=True)
class Fans:
    """What one weight connects."""

    fan_in: int
    """Values that one output sums over."""
    fan_out: int
    """Values that one input reaches."""
    product: bool
    """Whether a product, convolution or einsum uses it."""


def fans(weights: Mapping[str, Op], outputs: Sequence[Op]) -> dict[str, Fans]:
    """The fans of weights of rank 2 or more, by name, in the graph of these outputs."""
    names = {op.digest: name for name, op in weights.items() if len(op.shape) >= 2}
    views: dict[str, tuple[str, Axes]] = {
        digest: (name, tuple(range(len(weights[name].shape)))) for digest, name in names.items()
    }
    found: dict[str, Fans] = {}
    for op in toposort(outputs):
        if op.operands and (seen := views.get(op.operands[0].digest)) and (moved := _view(op, seen[1])) is not None:
            views[op.digest] = seen[0], moved
        for operand, ins, outs in _uses(op):
            if operand.digest in views:
                name, axes = views[operand.digest]
                shape = weights[name].shape
                found.setdefault(name, Fans(_extent(shape, axes, ins), _extent(shape, axes, outs), True))
    plain = ((name, weights[name].shape) for name in names.values() if name not in found)
    return found | {name: _as_torch(shape, False) for name, shape in plain}


def _as_torch(shape: Sequence[int], product: bool) -> Fans:
    """Those of torch.nn.init: outputs first, then inputs, then places of a window."""
    window = math.prod(shape[2:])
    return Fans(shape[1] * window, shape[0] * window, product)


def _extent(shape: Sequence[int], axes: Axes, of: Sequence[int]) -> int:
    return math.prod(shape[axes[k]] for k in of if axes[k] >= 0)


def _view(op: Op, axes: Axes) -> Axes | None:
    """What the dimensions of an op that only moves its operand's elements are; None for any other op."""
    match op:
        case Cast() | Slice():
            return axes
        case Transpose(perm=perm):
            order = perm or range(len(axes))[::-1]
            return tuple(axes[k] for k in order)
        case Reshape(x=x):
            held = [a for a, extent in zip(axes, x.shape, strict=True) if extent != 1]
            if [d for d in x.shape if d != 1] != [d for d in op.shape if d != 1]:
                return None
            left = iter(held)
            return tuple(-1 if d == 1 else next(left) for d in op.shape)
        case _:
            return None


def _uses(op: Op) -> Iterator[tuple[Op, Sequence[int], Sequence[int]]]:
    """(operand, its dimensions that are summed over, those that each input reaches) of a product."""
    match op:
        case Conv(w=w) | ConvTranspose(w=w):
            window = tuple(range(2, len(w.shape)))
            yield w, (1, *window), (0, *window)
        case Gemm(a=a, b=b, trans_a=trans_a, trans_b=trans_b):
            yield b, (1,) if trans_b else (0,), (0,) if trans_b else (1,)
            yield a, (0,) if trans_a else (1,), (1,) if trans_a else (0,)
        case MatMul(a=a, b=b):
            yield from ((b, (-2,), (-1,)) for _ in range(len(b.shape) > 1))
            yield from ((a, (-1,), (-2,)) for _ in range(len(a.shape) > 1))
        case Einsum(xs=xs):
            yield from _of_einsum(op, xs)
        case _:
            pass


def _of_einsum(op: Einsum, xs: tuple[Op, ...]) -> Iterator[tuple[Op, Sequence[int], Sequence[int]]]:
    inputs, _, output = op.explicit().partition("->")
    terms = inputs.split(",")
    for k, (term, x) in enumerate(zip(terms, xs, strict=True)):
        others = "".join(t for j, t in enumerate(terms) if j != k)
        summed = tuple(d for d, letter in enumerate(term) if letter not in output)
        reached = tuple(d for d, letter in enumerate(term) if letter in output and letter not in others)
        yield x, summed, reached
