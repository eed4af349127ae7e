"""From one kind of value to another: images [N, C, H, W], tokens [N, T, D], rows [N, D], ids [N, T]."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.sizes import Refused, Size, least
from tests.fuzz.values import Value


def _known(*sizes: int) -> None:
    if any(isinstance(e, Size) for e in sizes):
        raise Refused("a size that a call tells")


def patches(m: Weaver, x: Value) -> Value:
    """ViT: a convolution of patches, flattened and transposed, with positions."""
    n, c = x.shape[:2]
    side, d = m.one(1, 2, 3), m.one(8, 12, 16)
    if min(map(least, x.shape[2:])) < side:
        raise Refused("too small an image")
    w = m.weight_of(d, c, side, side, fan=c * side * side)
    y = m.node("Conv", x, w, m.weight_of(d), strides=[side] * 2, kernel_shape=[side] * 2)
    h, w = y.shape[2:]
    _known(h, w)
    if h * w > 36:
        raise Refused("too many tokens")
    y = m.transpose(m.reshape(y, n, d, h * w), 0, 2, 1)
    return m.node("Add", y, m.weight_of(1, h * w, d)) if m.chance(0.6) else y


def flattened(m: Weaver, x: Value) -> Value:
    """Pixels as tokens."""
    n, c, h, w = x.shape
    if m.most(h) * m.most(w) > 36 or isinstance(c, Size):
        raise Refused("too many tokens")
    if m.chance(0.5):
        return m.transpose(m.node("Reshape", x, m.ints(n, c, -1)), 0, 2, 1)
    return m.reshape(m.transpose(x, 0, 2, 3, 1), n, h * w, c)


def pooled_image(m: Weaver, x: Value) -> Value:
    """A classifier's head: the mean of pixels, flat."""
    match m.random.randrange(3):
        case 0:
            return m.node("Flatten", m.node("GlobalAveragePool", x), axis=1)
        case 1:
            return m.mean(x, 2, 3, keep=0)
        case _:
            return m.squeeze(m.node("GlobalMaxPool", x), 2, 3)


def flat_image(m: Weaver, x: Value) -> Value:
    """All pixels in a row, and a dense layer."""
    n, c, h, w = x.shape
    _known(c, h, w)
    if c * h * w > 400:
        raise Refused("too wide")
    y = m.node("Flatten", x, axis=1) if m.chance(0.6) else m.reshape(x, n, c * h * w)
    return m.linear(y, m.one(8, 12, 16))


def image_of_tokens(m: Weaver, x: Value) -> Value:
    """Tokens in rows and columns."""
    n, t, d = x.shape
    _known(t)
    high = m.one(*(k for k in range(1, t + 1) if t % k == 0))
    return m.reshape(m.transpose(x, 0, 2, 1), n, d, high, t // high)


def pooled_tokens(m: Weaver, x: Value) -> Value:
    """The first token, the mean, the largest, or a weighted mean."""
    match m.random.randrange(5):
        case 0:
            return m.node("Gather", x, m.constant(np.array(0, np.int64)), axis=1)
        case 1:
            return m.squeeze(m.cut(x, 1, -1, (1 << 63) - 1), 1)
        case 2:
            return m.axes("ReduceMax", x, 1, keepdims=0)
        case 3:
            weights = m.softmax(m.linear(x, 1), 1)
            return m.axes("ReduceSum", m.node("Mul", x, weights), 1, keepdims=0)
        case _:
            return m.mean(x, 1, keep=0)


def tokens_of_rows(m: Weaver, x: Value) -> Value:
    """A row cut into tokens, or repeated beside positions."""
    n, d = x.shape
    if d % 4 == 0 and d > 4 and m.chance(0.5):
        return m.reshape(x, n, d // 4, 4)
    t = m.one(2, 3, 5)
    return m.node("Add", m.unsqueeze(x, 1), m.weight_of(1, t, d))


def image_of_rows(m: Weaver, x: Value) -> Value:
    """A generator's start: a dense layer as an image."""
    c, h, w = m.one(4, 8), m.one(2, 3, 4), m.one(2, 3, 4)
    return m.reshape(m.linear(x, c * h * w), x.shape[0], c, h, w)


def embedded(m: Weaver, x: Value) -> Value:
    """Ids: a table gathered, positions and types added; at times one table for both."""
    n, t = x.shape
    d = m.one(8, 12, 16)
    y = m.node("Gather", m.weight_of(11, d), x, axis=0)
    if m.chance(0.5):
        y = m.node("Mul", y, m.number(math.sqrt(d)))
    if isinstance(t, Size) or m.chance(0.5):
        table = m.constant(np.arange(24, dtype=np.int64)[None])
        places = m.cut(table, 1, 0, t)
        y = m.node("Add", y, m.node("Gather", m.weight_of(24, d), places, axis=0))
    else:
        y = m.node("Add", y, m.weight_of(1, t, d))
    if m.chance(0.3):
        kinds = m.node("Expand", m.constant(np.array(0, np.int64)), m.ints(n, t))
        y = m.node("Add", y, m.node("Gather", m.weight_of(2, d), kinds, axis=0))
    return y


BETWEEN: Final = {
    4: ((3, patches), (2, flattened), (3, pooled_image), (1, flat_image)),
    3: ((1, image_of_tokens), (3, pooled_tokens)),
    2: ((2, tokens_of_rows), (1, image_of_rows)),
}
