"""Random models whose ops read one value several times: residuals, gates, squares, tied weights, views of one value.

Each kind gives a value of the shape that it took, so that a result could be written over what was read, and each reads
that more than once: as operands of one op, through other ops, or as views. Where a target fuses such ops, one
step reads one memory at several places: what `in-place` may overwrite then depends on all of its reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dlc.base.types import Type
from dlc.graph import Constant, Op, Splat, Tensor
from dlc.ops.elementwise import Add, Maximum, Mul, Neg, Relu, Sigmoid, Sub, Tanh
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from dlc.verify.kit.random_graphs import KINDS, Maker


def _newest(m: Maker) -> Op:
    """What was made last, most of the time: nothing but the next op reads it, so it may be overwritten there."""
    return m.values[-1] if m.random.random() < 0.8 else m.any()


def _drawn(m: Maker, *shape: int) -> Constant:
    """Weights whose sums over the last dimensions of a value stay near 1: products do not need to be scaled."""
    rng = np.random.default_rng(m.random.randrange(1000))
    return Constant(Tensor.of(rng.normal(0, 1 / max(1, math.prod(shape[1:])) ** 0.5, shape), m.dtype))


def _weight(m: Maker, rows: int, columns: int) -> Op:
    """A matrix, at times one that is there already."""
    tied = [v for v in m.tied if v.shape == (rows, columns)]
    if tied and m.random.random() < 0.5:
        return m.random.choice(tied)
    m.tied.append(_drawn(m, rows, columns))
    return m.tied[-1]


def _matrix(x: Op) -> Op:
    """A value as rows of its first dimension: itself, or a view."""
    return x if len(x.shape) == 2 else Reshape(x, to=(x.shape[0], x.type.size // x.shape[0]))


def _linear(m: Maker, x: Op) -> Op:
    """A product with a square matrix, which may be used in both layouts."""
    rows = _matrix(x)
    n = rows.shape[1]
    w = _weight(m, n, n)
    turned = m.random.random() < 0.5
    matmul = m.random.random() < 0.4
    y = MatMul(rows, Transpose(w, (1, 0)) if turned else w) if matmul else Gemm(rows, w, None, trans_b=turned)
    return y if y.shape == x.shape else Reshape(y, to=x.shape)


def _conv(m: Maker, x: Op) -> Op:
    """A convolution that keeps the shape of an image."""
    spatial, channels = len(x.shape) - 2, x.shape[1]
    k = m.random.choice((1, 3))
    group = channels if m.random.random() < 0.2 else 1
    bias = m.weights(channels) if m.random.random() < 0.4 else None
    w = _drawn(m, channels, channels // group, *(k,) * spatial)
    return Conv(x, w, bias, pads=(k // 2,) * (2 * spatial), group=group)


def _inner(m: Maker, x: Op) -> Op:
    """A function of a value that keeps its shape and reads each element for many results."""
    image = len(x.shape) in (3, 4) and m.random.random() < 0.7
    return _conv(m, x) if image else _linear(m, x)


def _after(m: Maker, x: Op) -> Op:
    """A function of each element, or nothing."""
    return m.random.choice((Relu(x), Tanh(x), Sigmoid(x), x, x))


def _combined(m: Maker, a: Op, b: Op) -> Op:
    if m.random.random() < 0.3:
        a, b = b, a
    return _after(m, m.random.choice((Add, Add, Add, Sub, Mul, Maximum))(a, b))


def residual(m: Maker) -> Op:
    """h + f(h), h + f(g(h)), h + f(relu(h))."""
    h = _newest(m)
    inside = _inner(m, _after(m, h))
    if m.random.random() < 0.3:
        inside = _inner(m, _after(m, inside))
    return _combined(m, h, inside)


def square(m: Maker) -> Op:
    """One op that has one value twice: h + h, h · h, max(h, h), or h with a function of itself."""
    h = _newest(m)
    other = m.random.choice((h, h, Neg(h), Relu(h), Sigmoid(h)))
    return _combined(m, h, other)


def two_ways(m: Maker) -> Op:
    """f(h) and g(h) of one value, in one op."""
    h = _newest(m)
    return _combined(m, _inner(m, h), _inner(m, h))


def bias_of_itself(m: Maker) -> Op:
    """h as the first operand of a product and as what is added to it."""
    h = _newest(m)
    rows = _matrix(h)
    n = rows.shape[1]
    y = Gemm(rows, _weight(m, n, n), rows, trans_b=m.random.random() < 0.5)
    return y if y.shape == h.shape else Reshape(y, to=h.shape)


def gram(m: Maker) -> Op:
    """h · hᵀ · h: one value as both operands of a product."""
    h = _newest(m)
    rows = _matrix(h)
    scores = Mul(MatMul(rows, Transpose(rows, (1, 0))), Splat(1 / rows.shape[1], Type(m.dtype, ())))
    y = MatMul(_after(m, scores), rows)
    return y if y.shape == h.shape else Reshape(y, to=h.shape)


def viewed(m: Maker) -> Op:
    """h and a view of h that was computed with under another shape."""
    h = _newest(m)
    flat = Reshape(h, to=(1, h.type.size))
    back = Reshape(_after(m, flat) if m.random.random() < 0.5 else flat, to=h.shape)
    other = _inner(m, back) if m.random.random() < 0.6 else back
    return _combined(m, h, other)


def turned(m: Maker) -> Op:
    """h and its own transpose, in equal shapes."""
    h = _newest(m)
    equal = [d for d in range(1, len(h.shape)) if h.shape[d] == h.shape[d - 1]]
    if not equal:
        return square(m)
    perm = [*range(len(h.shape))]
    d = m.random.choice(equal)
    perm[d - 1], perm[d] = perm[d], perm[d - 1]
    return _combined(m, h, Transpose(h, tuple(perm)))


def doubled(m: Maker) -> Op:
    """A concatenation of one value with itself or what was computed of it, and both halves of that."""
    h = _newest(m)
    axis, rank = m.axis(h), len(h.shape)
    whole = _after(m, Concat((h, m.random.choice((h, _inner(m, h)))), axis=axis))
    starts = [tuple(h.shape[axis] * k if d == axis else 0 for d in range(rank)) for k in range(2)]
    a, b = (Slice(whole, starts=at, sizes=h.shape, steps=(1,) * rank) for at in starts)
    return _combined(m, a, b)


def pooled(m: Maker) -> Op:
    """An image and its own pooling, in equal shapes."""
    h = _newest(m) if len(m.values[-1].shape) in (3, 4) else m.image()
    if len(h.shape) not in (3, 4):
        return square(m)
    spatial = len(h.shape) - 2
    pool = MaxPool(h, window=(3,) * spatial, stride=(1,) * spatial, pads=(1,) * (2 * spatial))
    return _combined(m, h, pool)


SHARED: tuple[Callable[[Maker], Op], ...] = (
    *(residual, residual, residual, residual, square, two_ways, bias_of_itself, gram, viewed, turned, doubled, pooled),
)
"""Kinds that read one value several times."""
MIXED: tuple[Callable[[Maker], Op], ...] = (*SHARED, *SHARED, *KINDS)
"""These and all others: as many of both."""
