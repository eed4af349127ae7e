"""What operators of attention share: heads, masks, rotary positions, and softmax(Q · Kᵀ) · V itself.

Tensors by head are [B, N, S, H]: items, heads, positions, elements of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlc.base.extents import is_open
from dlc.base.types import i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops import normalize
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.shape import Concat, Expand, Slice, Transpose
from dlc.ops.sizes import Count
from dlc_frontend_onnx.node import cast, constant, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.tensors import check_count


def part(x: Op, axis: int, start: int, size: int) -> Op:
    """`size` elements of a dimension from `start` on."""
    axis %= len(x.shape)
    if size == x.shape[axis]:
        return x
    starts = tuple(start if d == axis else 0 for d in range(len(x.shape)))
    sizes = tuple(size if d == axis else n for d, n in enumerate(x.shape))
    return Slice(x, starts=starts, sizes=sizes, steps=(1,) * len(sizes))


def split_last(x: Op, sizes: Sequence[int]) -> list[Op]:
    """The last dimension in parts of these sizes."""
    if sum(sizes) != x.shape[-1]:
        raise ShapeError(f"{x.type} has no parts of {', '.join(map(str, sizes))} elements in its last dimension")
    starts = np.cumsum([0, *sizes])
    return [part(x, -1, int(start), size) for start, size in zip(starts, sizes, strict=False)]


def by_head(x: Op, heads: int) -> Op:
    """[B, S, N·H] → [B, N, S, H]."""
    if len(x.shape) != 3 or heads < 1 or x.shape[2] % heads:
        raise ShapeError(f"{x.type} is not divided into {heads} heads")
    batch, length, width = x.shape
    return Transpose(reshaped(x, (batch, length, heads, width // heads)), perm=(0, 2, 1, 3))


def merged(x: Op) -> Op:
    """[B, N, S, H] → [B, S, N·H]."""
    batch, heads, length, width = x.shape
    return reshaped(Transpose(x, perm=(0, 2, 1, 3)), (batch, length, heads * width))


def joined(past: Op | None, new: Op) -> Op:
    """Keys or values of earlier positions, then the new ones."""
    return new if past is None or past.shape[2] == 0 else Concat((past, new), axis=2)


# ---- masks: what is added to the scores [B, N, S, T]


def columns(extent: int) -> Op:
    """0, 1, … as positions of keys."""
    return _counted(extent, 0)


def rows(extent: int, first: int) -> Op:
    """Positions of queries [S, 1], counted as those of keys."""
    return reshaped(_counted(extent, first), (extent, 1))


def _counted(extent: int, first: int) -> Op:
    if is_open((extent, first)):
        return Count(extent, start=first)
    check_count(extent, "the positions")
    return constant(np.arange(first, first + extent), i64)


def added(mask: Op, value: float, like: Op) -> Op:
    """0 where a mask of integers is above 0, else a value."""
    return e.Where(e.Greater(mask, number(0, mask)), number(0, like), number(value, like))


def padding(mask: Op, keys: int, value: float, like: Op) -> Op:
    """What a mask of keys adds: [T] flags by item, by item and query, or the end (and start) of each item's keys."""
    batch = like.shape[0]
    match mask.shape:
        case (b, t) if (b, t) == (batch, keys):
            return added(reshaped(mask, (batch, 1, 1, keys)), value, like)
        case (b, s, t) if (b, t) == (batch, keys):
            return added(reshaped(mask, (batch, 1, s, keys)), value, like)
        case (n,) if n in (batch, 2 * batch):
            ends = reshaped(cast(part(mask, 0, 0, batch), i64), (batch, 1, 1, 1))
            valid: Op = e.Less(columns(keys), ends)
            if n == 2 * batch:
                starts = reshaped(cast(part(mask, 0, batch, batch), i64), (batch, 1, 1, 1))
                valid = e.And(valid, e.GreaterOrEqual(columns(keys), starts))
            return e.Where(valid, number(0, like), number(value, like))
        case _:
            raise ShapeError(f"a mask of type {mask.type} for {batch} items with {keys} keys")


# ---- attention


@dataclass(frozen=True)
class Scores:
    """How queries and keys are compared."""

    scale: float = 0.0
    """0: one over the root of the head's size."""
    softcap: float = 0.0
    """Scores are kept between -softcap and softcap by tanh; 0: they are not."""
    added: tuple[Op, ...] = ()
    """What is added to the scores; broadcasts with [B, N, S, T]."""
    visible: Op | None = None
    """Whether a query sees a key; broadcasts in the same way."""
    sink: Op | None = None
    """One more score [N], or a scalar, that takes a share of the softmax and has no value."""


def attended(q: Op, k: Op, v: Op, how: Scores) -> tuple[Op, Op, Op]:
    """softmax(Q · Kᵀ) · V [B, N, S, H], the scores and the softmax [B, N, S, T]; several heads of Q may share one of K.

    Vaswani et al. 2017, "Attention is all you need"; Ainslie et al. 2023, "GQA".
    """
    batch, heads, length, width = q.shape
    shared, keys = k.shape[1], k.shape[2]
    if heads % shared or k.shape[:3] != v.shape[:3] or k.shape != (batch, shared, keys, width):
        raise ShapeError(f"queries {q.type}, keys {k.type} and values {v.type}")
    grouped = reshaped(q, (batch, shared, heads // shared * length, width))
    scale = how.scale or 1.0 / math.sqrt(width)
    product = MatMul(grouped, Transpose(k, perm=(0, 1, 3, 2)))
    scores: Op = e.Mul(reshaped(product, (batch, heads, length, keys)), number(scale, q))
    if how.softcap:
        scores = e.Mul(e.Tanh(e.Div(scores, number(how.softcap, q))), number(how.softcap, q))
    for mask in how.added:
        scores = e.Add(scores, mask)
    if scores.shape != (batch, heads, length, keys):
        raise ShapeError(f"a mask or bias that broadcasts {batch}×{heads}×{length}×{keys} scores to {scores.type}")
    if how.visible is not None:
        scores = e.Where(how.visible, scores, number(float("-inf"), q))
    weights = _softmax(scores, how.sink)
    mixed = MatMul(reshaped(weights, (batch, shared, heads // shared * length, keys)), v)
    return reshaped(mixed, (batch, heads, length, v.shape[3])), scores, weights


def _softmax(scores: Op, sink: Op | None) -> Op:
    if sink is None:
        return normalize.Softmax(scores, axis=3)
    batch, heads, length, keys = scores.shape
    one = sink if not sink.shape else reshaped(sink, (heads, 1, 1))
    more = Concat((scores, Expand(one, to=(batch, heads, length, 1))), axis=3)
    return part(normalize.Softmax(more, axis=3), 3, 0, keys)


# ---- rotary positions


def rotated(x: Op, cos: Op, sin: Op, positions: Op, interleaved: bool) -> Op:
    """x [B, N, S, H] with pairs of elements turned by the angle of their position; further elements stay.

    `cos` and `sin` are [positions, pairs], `positions` [B or 1, S]. A pair is an element of the first half and one of
    the second, or, `interleaved`, two neighbours. Su et al. 2021, "RoFormer".
    """
    pairs = cos.shape[1]
    if cos.shape != sin.shape or 2 * pairs > x.shape[3]:
        raise ShapeError(f"cosines {cos.type} and sines {sin.type} for heads of {x.shape[3]} elements")
    angle = (positions.shape[0], 1, positions.shape[1], pairs)
    c, s = (cast(reshaped(Gather(table, positions, axis=0), angle), x.dtype) for table in (cos, sin))
    turned, rest = part(x, 3, 0, 2 * pairs), part(x, 3, 2 * pairs, x.shape[3] - 2 * pairs)
    if interleaved:
        by_pair = reshaped(turned, (*x.shape[:3], pairs, 2))
        a, b = (reshaped(part(by_pair, 4, k, 1), (*x.shape[:3], pairs)) for k in (0, 1))
    else:
        a, b = part(turned, 3, 0, pairs), part(turned, 3, pairs, pairs)
    new = e.Sub(e.Mul(a, c), e.Mul(b, s)), e.Add(e.Mul(a, s), e.Mul(b, c))
    if interleaved:
        flat = Concat(tuple(reshaped(n, (*x.shape[:3], pairs, 1)) for n in new), axis=4)
        result: Op = reshaped(flat, turned.shape)
    else:
        result = Concat(new, axis=3)
    return result if 2 * pairs == x.shape[3] else Concat((result, rest), axis=3)
