"""Idioms of sequences [N, T, D] and of rows [N, D]."""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from tests.fuzz.idioms.attention import ATTENTION, attention, linear_attention
from tests.fuzz.idioms.norms import layer_norm, token_norm, unit_length
from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value


def feed_forward(m: Weaver, x: Value) -> Value:
    """Two layers, or gated ones (SwiGLU, GeGLU, GLU)."""
    d = x.shape[-1]
    inner = d * m.one(1, 2)
    match m.random.randrange(4):
        case 0:
            return m.linear(m.node("Mul", m.activation(m.linear(x, inner)), m.linear(x, inner)), d)
        case 1:
            a, b = m.split(m.linear(x, 2 * inner), 2, x.rank - 1)
            return m.linear(m.node("Mul", a, m.node("Sigmoid", b) if m.chance(0.5) else m.activation(b)), d)
        case _:
            return m.linear(m.activation(m.linear(x, inner)), d)


def pre_norm_block(m: Weaver, x: Value) -> Value:
    """GPT's: x + f(norm(x)), twice."""
    mixer = m.one(attention, attention, attention, linear_attention)
    x = m.node("Add", x, mixer(m, token_norm(m, x)))
    return m.node("Add", x, feed_forward(m, token_norm(m, x)))


def post_norm_block(m: Weaver, x: Value) -> Value:
    """BERT's: norm(x + f(x)), twice."""
    x = layer_norm(m, m.node("Add", attention(m, x), x))
    return layer_norm(m, m.node("Add", feed_forward(m, x), x))


def parallel_block(m: Weaver, x: Value) -> Value:
    """PaLM's and ViT-22B's: both branches read one norm; with scales of layers."""
    y = token_norm(m, x)
    a, b = attention(m, y), feed_forward(m, y)
    if m.chance(0.5):
        a, b = (m.node("Mul", v, m.weight_of(x.shape[-1], near=1.0)) for v in (a, b))
    return m.node("Add", m.node("Add", a, b), x)


def mixer(m: Weaver, x: Value) -> Value:
    """MLP-Mixer: a layer over tokens, by transposing."""
    t = x.shape[1]
    y = m.transpose(token_norm(m, x), 0, 2, 1)
    y = m.linear(m.activation(m.linear(y, 2 * t)), t)
    return m.node("Add", x, m.transpose(y, 0, 2, 1))


def fourier(m: Weaver, x: Value) -> Value:
    """A product with constant matrices on both sides."""
    t, d = x.shape[1:]
    if isinstance(t, Size):
        raise Refused("a constant has a known shape")
    a, b = (np.cos(2 * np.pi * np.outer(np.arange(e), np.arange(e)) / e).astype(np.float32) for e in (t, d))
    y = m.node("MatMul", m.node("MatMul", m.constant(a), x), m.constant(b))
    return token_norm(m, m.node("Add", x, y))


def convolution(m: Weaver, x: Value) -> Value:
    """Conformer's: transposed, GLU by a split, by channel, norm, transposed back; or a causal one."""
    d = x.shape[-1]
    y = m.transpose(x, 0, 2, 1)
    if m.chance(0.5):
        a, b = m.split(m.conv(y, 2 * d, 1), 2, 1)
        y = m.node("Mul", a, m.node("Sigmoid", b))
        y = m.activation(m.batch_norm(m.conv(y, d, 3, groups=d)))
        y = m.conv(y, d, 1)
    else:  # padded in front, by Pad or by the operator, and cut
        y = m.node("Pad", y, m.ints_of(0, 0, 2, 0, 0, 0), mode="constant")
        y = m.node("Conv", y, m.weight_of(d, 1, 3, fan=3), m.weight_of(d), group=d)
        y = m.node("Mul", y, m.node("Sigmoid", y))
    return m.node("Add", x, m.transpose(y, 0, 2, 1))


def token_shift(m: Weaver, x: Value) -> Value:
    """RWKV: mixed with the token before."""
    t, d = x.shape[1:]
    front = m.node("Sub", m.cut(x, 1, 0, 1), m.cut(x, 1, 0, 1)) if m.chance(0.5) else None
    if front is None:
        before = m.node("Pad", m.cut(x, 1, 0, t - 1), m.ints_of(0, 1, 0, 0, 0, 0), mode="constant")
    else:
        before = m.node("Concat", front, m.cut(x, 1, 0, t - 1), axis=1)
    share = m.node("Sigmoid", m.weight_of(1, 1, d))
    rest = m.node("Sub", m.number(1), share)
    y = m.node("Add", m.node("Mul", x, share), m.node("Mul", before, rest))
    k = m.node("Relu", m.linear(y, d))
    r = m.node("Sigmoid", m.linear(y, d))
    return m.node("Add", x, m.node("Mul", r, m.linear(m.node("Mul", k, k), d)))


def running(m: Weaver, x: Value) -> Value:
    """A mean of all tokens so far."""
    t = x.shape[1]
    ones = m.node("Expand", m.number(1), m.ints(1, t, 1))
    count = m.node("CumSum", ones, m.constant(np.array(1, np.int64)))
    total = m.node("CumSum", x, m.constant(np.array(1, np.int64)))
    return m.linear(m.node("Div", total, count), x.shape[-1])


def experts(m: Weaver, x: Value) -> Value:
    """A mixture: the best k of a softmax get their weights, scattered or compared; all experts run."""
    count, k = m.one((3, 2), (4, 2), (4, 1))
    scores = m.softmax(m.linear(x, count))
    if m.chance(0.5):
        best, places = m.nodes_of("TopK", 2, scores, m.ints_of(k), axis=-1)
        if m.chance(0.6):
            best = m.node("Div", best, m.total(best, -1))
        zero = m.node("Sub", scores, scores) if m.chance(0.5) else m.node("Mul", scores, m.number(0))
        gates = m.node("ScatterElements", zero, places, best, axis=x.rank - 1)
    else:
        best, _ = m.nodes_of("TopK", 2, scores, m.ints_of(k), axis=-1)
        least = m.axes("ReduceMin", best, -1, keepdims=1)
        gates = m.node("Where", m.node("Less", scores, least), m.number(0), scores)
    y: Value | None = None
    for e in range(count):
        part = m.node("Mul", feed_forward(m, x), m.cut(gates, x.rank - 1, e, e + 1))
        y = part if y is None else m.node("Add", y, part)
    assert y is not None
    return m.node("Add", x, y)


def half_precision(m: Weaver, x: Value) -> Value:
    """A layer in float16 between casts."""
    d = x.shape[-1]
    if isinstance(d, Size):
        raise Refused("a weight has a known shape")
    y = m.node("Cast", x, to=TensorProto.FLOAT16)
    w = m.constant((m.array((d, d)) / np.sqrt(d)).astype(np.float16))
    y = m.node("MatMul", y, w)
    if m.chance(0.5):
        y = m.node(m.one("Relu", "Tanh"), y)
    return m.node("Add", x, m.node("Cast", y, to=TensorProto.FLOAT))


def codebook(m: Weaver, x: Value) -> Value:
    """Vector quantisation: the nearest of some vectors, by squares."""
    d = x.shape[-1]
    book = m.weight_of(d, m.one(4, 8), near=0.0)
    cross = m.node("MatMul", x, book)
    square = m.node("ReduceSumSquare", book, axes=[0], keepdims=1) if m.opset < 18 else None
    square = square or m.axes("ReduceSum", m.node("Mul", book, book), 0, keepdims=1)
    distance = m.node("Sub", square, m.node("Mul", cross, m.number(2)))
    place = m.node("ArgMin", distance, axis=-1, keepdims=0)
    return m.node("Gather", m.transpose(book, 1, 0), place, axis=0)


def class_token(m: Weaver, x: Value) -> Value:
    """A learnt token in front, and positions."""
    n, t, d = x.shape
    first = m.node("Expand", m.weight_of(1, 1, d), m.ints(n, 1, d))
    y = m.node("Concat", first, x, axis=1)
    if isinstance(t, Size):
        return y
    return m.node("Add", y, m.weight_of(1, t + 1, d))


def residual_dropout(m: Weaver, x: Value) -> Value:
    """What exporters leave at inference: Dropout and Identity."""
    y = m.node("Dropout", m.linear(x, x.shape[-1]))
    return m.node("Add", m.node("Identity", x), m.node("Mul", y, m.number(0.5)))


TOKENS: Final = (
    *ATTENTION,
    *((5, pre_norm_block), (4, post_norm_block), (2, parallel_block), (2, feed_forward), (2, mixer), (1, fourier)),
    *((3, convolution), (2, token_shift), (1, running), (2, experts), (1, half_precision), (1, codebook)),
    *((1, class_token), (1, residual_dropout), (2, token_norm)),
)


def dense(m: Weaver, x: Value) -> Value:
    """Dense layer, norm, activation."""
    y = m.linear(x, m.one(4, 5, 8, 12, 16))
    return m.activation(m.batch_norm(y) if m.chance(0.3) else layer_norm(m, y) if m.chance(0.3) else y)


def residual_rows(m: Weaver, x: Value) -> Value:
    return m.node("Add", feed_forward(m, x), x)


def cross_layer(m: Weaver, x: Value) -> Value:
    """Deep & cross: x₀·(w·x + b) + x."""
    return m.node("Add", m.node("Mul", x, m.linear(x, x.shape[-1])), x)


def factorisation(m: Weaver, x: Value) -> Value:
    """Pairs of products: (Σx)² - Σx²."""
    v = m.weight_of(x.shape[-1], 4, fan=x.shape[-1])
    a = m.node("MatMul", x, v)
    b = m.node("MatMul", m.node("Mul", x, x), m.node("Mul", v, v))
    pairs = m.node("Mul", m.node("Sub", m.node("Mul", a, a), b), m.number(0.5))
    return m.node("Concat", x, pairs, axis=1)


def highway(m: Weaver, x: Value) -> Value:
    """A gate between a layer and its operand."""
    d = x.shape[-1]
    gate = m.node("Sigmoid", m.linear(x, d))
    new = m.node("Mul", m.node("Tanh", m.linear(x, d)), gate)
    return m.node("Add", new, m.node("Mul", x, m.node("Sub", m.number(1), gate)))


def maxout(m: Weaver, x: Value) -> Value:
    n, d = x.shape
    return m.axes("ReduceMax", m.reshape(m.linear(x, 3 * d), n, d, 3), 2, keepdims=0)


def contrast(m: Weaver, x: Value) -> Value:
    """Cosines between rows and learnt directions, with a temperature."""
    d = x.shape[-1]
    book = unit_length(m, m.weight_of(6, d))
    return m.node("Mul", m.node("MatMul", unit_length(m, x), m.transpose(book, 1, 0)), m.node("Exp", m.weight_of(1)))


def one_hot(m: Weaver, x: Value) -> Value:
    """The largest element as a row of zeros and a one, embedded."""
    d = x.shape[-1]
    if m.chance(0.5):
        y = m.node("Hardmax", x, axis=-1)
    else:
        place = m.node("ArgMax", x, axis=1, keepdims=0)
        values = m.constant(np.array([0, 1], np.float32))
        y = m.node("OneHot", place, m.constant(np.array(d, np.int64)), values, axis=-1)
    return m.node("Add", m.linear(y, d), x)


def statistics(m: Weaver, x: Value) -> Value:
    """Mean, deviation and extremes beside the row."""
    mean = m.mean(x, 1)
    square = m.node("Pow", m.node("Sub", x, mean), m.number(2))
    deviation = m.node("Sqrt", m.node("Add", m.mean(square, 1), m.number(1e-5)))
    ends = [m.axes(op, x, 1, keepdims=1) for op in ("ReduceMax", "ReduceMin")]
    return m.linear(m.node("Concat", x, mean, deviation, *ends, axis=1), x.shape[-1])


def log_probabilities(m: Weaver, x: Value) -> Value:
    y = m.node("LogSoftmax", x, axis=-1) if m.chance(0.6) else m.node("Log", m.softmax(x))
    return m.node("Max", y, m.number(-20.0))


ROWS: Final = (
    *((4, dense), (3, residual_rows), (1, cross_layer), (1, factorisation), (1, highway), (1, maxout), (1, contrast)),
    *((1, one_hot), (1, statistics), (1, half_precision), (1, experts), (1, codebook), (1, residual_dropout)),
    (1, log_probabilities),
)
