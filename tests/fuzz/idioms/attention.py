"""Attention as exporters write it: values [N, T, D]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import TensorProto

from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value


@dataclass
class Heads:
    """Queries, keys and values of heads [N, H, T, d]."""

    q: Value
    k: Value
    v: Value

    @property
    def width(self) -> int:
        """Of a head."""
        return self.q.shape[-1]


def _width_of_heads(m: Weaver, x: Value) -> int:
    width = x.shape[-1]
    if isinstance(width, Size) or width % 4:
        raise Refused("no heads")
    return m.one(*(h for h in (1, 2, 2, 4) if width % h == 0))


def _heads(m: Weaver, x: Value, count: int) -> Value:
    """[N, T, D] → [N, H, T, d]."""
    n, t, d = x.shape
    return m.transpose(m.reshape(x, n, t, count, d // count), 0, 2, 1, 3)


def separate(m: Weaver, x: Value, other: Value) -> Heads:
    """Three dense layers, as of BERT; keys and values may be those of another sequence."""
    count, d = _width_of_heads(m, x), x.shape[-1]
    q, k, v = m.linear(x, d), m.linear(other, d), m.linear(other, d)
    return Heads(*(_heads(m, y, count) for y in (q, k, v)))


def _own(m: Weaver, x: Value) -> Heads:
    return separate(m, x, x)


def packed(m: Weaver, x: Value) -> Heads:
    """One layer for all three, as of GPT-2 (split) and timm (reshaped and gathered)."""
    n, t, d = x.shape
    count = _width_of_heads(m, x)
    y = m.linear(x, 3 * d)
    if m.chance(0.5):
        return Heads(*(_heads(m, part, count) for part in m.split(y, 3, 2)))
    y = m.transpose(m.reshape(y, n, t, 3, count, d // count), 2, 0, 3, 1, 4)
    if m.chance(0.5):
        return Heads(*(m.node("Gather", y, m.constant(np.array(k, np.int64)), axis=0) for k in range(3)))
    return Heads(*(m.squeeze(part, 0) for part in m.split(y, 3, 0)))


def grouped(m: Weaver, x: Value) -> Heads:
    """Llama's: fewer keys and values than queries, repeated by Unsqueeze, Expand, Reshape."""
    n, t, d = x.shape
    if _width_of_heads(m, x) == 0 or d % 4:
        raise Refused("no groups")
    count, few = m.one((4, 2), (4, 1), (2, 1))
    inner = d // count
    q = _heads(m, m.linear(x, d, bias=False), count)
    k, v = (_heads(m, m.linear(x, few * inner, bias=False), few) for _ in range(2))
    if m.chance(0.6):
        q, k = rotary(m, q, k)
    repeated: list[Value] = []
    for y in (k, v):
        wide = m.node("Expand", m.unsqueeze(y, 2), m.ints(n, few, count // few, t, inner))
        repeated.append(m.reshape(wide, n, count, t, inner))
    return Heads(q, *repeated)


def _rotated(m: Weaver, x: Value, cos: Value, sin: Value) -> Value:
    """x·cos + rotate(x)·sin, with halves or neighbours exchanged."""
    d = x.shape[-1]
    if m.chance(0.6):
        a, b = m.cut(x, x.rank - 1, 0, d // 2), m.cut(x, x.rank - 1, d // 2, m.one(d, (1 << 63) - 1))
        turned = m.node("Concat", m.node("Neg", b), a, axis=-1)
    else:
        even, odd = m.cut(x, 3, 0, d, 2), m.cut(x, 3, 1, d, 2)
        pair = m.node("Concat", m.unsqueeze(m.node("Neg", odd), 4), m.unsqueeze(even, 4), axis=-1)
        turned = m.reshape(pair, *x.shape)
    return m.node("Add", m.node("Mul", x, cos), m.node("Mul", turned, sin))


def rotary(m: Weaver, q: Value, k: Value) -> tuple[Value, Value]:
    """Rotary embeddings, from a table that is cut or from positions that are computed."""
    t, d = q.shape[2:]
    if d % 2:
        raise Refused("an odd head")
    inverse = (100.0 ** (-np.arange(0, d, 2) / d)).astype(np.float32)
    if m.chance(0.4):
        angles = np.outer(np.arange(24), np.concatenate([inverse, inverse])).astype(np.float32)
        tables = [m.cut(m.constant(f(angles)), 0, 0, t) for f in (np.cos, np.sin)]
        cos, sin = (m.unsqueeze(v, 0, 1) for v in tables)
    else:
        zero, one = (m.constant(np.array(v, np.int64)) for v in (0, 1))
        (places,) = m.known("Range", [Value("", "int64", (t,))], zero, m.scalar(t), one)
        places = m.unsqueeze(m.node("Cast", places, to=TensorProto.FLOAT), 1)
        angles = m.node("MatMul", places, m.constant(inverse[None]))
        angles = m.node("Concat", angles, angles, axis=-1)
        cos, sin = (m.unsqueeze(m.node(op, angles), 0, 1) for op in ("Cos", "Sin"))
    return _rotated(m, q, cos, sin), _rotated(m, k, cos, sin)


def cached(m: Weaver, heads: Heads) -> Heads:
    """Keys and values of the past in front; both are outputs."""
    n, count, _, d = heads.k.shape
    past = m.one(1, 2, 3)
    k, v = (m.node("Concat", m.given(n, count, past, d), y, axis=2) for y in (heads.k, heads.v))
    m.also += [k, v]
    return Heads(heads.q, k, v)


def masked(m: Weaver, scores: Value) -> Value:
    """Scores [N, H, T, S] with a mask, in one of the ways of exporters."""
    n, _, t, s = scores.shape
    low = m.number(m.one(-1e4, -3.4e38, -np.inf))
    match m.random.randrange(6):
        case 0:
            return scores
        case 1 if t == s and not isinstance(t, Size):  # a constant of the largest size, cut
            triangle = m.constant(np.tril(np.ones((1, 1, 16, 16), bool)))
            return m.node("Where", m.cut(m.cut(triangle, 2, 0, t), 3, 0, s), scores, low)
        case 2 if t == s and m.opset >= 14:
            ones = m.node("Expand", m.number(1), m.ints(t, s))
            upper = m.node("Trilu", ones, m.constant(np.array(1, np.int64)), upper=1)
            if m.chance(0.5):
                return m.node("Where", m.node("Cast", upper, to=TensorProto.BOOL), low, scores)
            return m.node("Add", scores, m.node("Mul", upper, m.number(-1e4)))
        case 3:  # of the positions, compared
            zero, one = (m.constant(np.array(v, np.int64)) for v in (0, 1))
            (rows,) = m.known("Range", [Value("", "int64", (t,))], zero, m.scalar(t), one)
            (columns,) = m.known("Range", [Value("", "int64", (s,))], zero, m.scalar(s), one)
            if m.opset < 12:
                raise Refused("no comparison of integers")
            past = m.node("Sub", m.scalar(s), m.scalar(t))
            seen = m.node("LessOrEqual", m.unsqueeze(columns, 0), m.node("Add", m.unsqueeze(rows, 1), past))
            return m.node("Where", seen, scores, low)
        case _:  # an input that says which tokens there are
            kept = m.rng.random((*map(int, (m.most(n), m.most(s))),)) < 0.8
            kept[:, 0] = True
            mask = m.input("int64", (n, s), kept.astype(np.int64))
            wide = m.unsqueeze(mask, 1, 2)
            if m.chance(0.5):
                off = m.node("Sub", m.number(1), m.node("Cast", wide, to=TensorProto.FLOAT))
                return m.node("Add", scores, m.node("Mul", off, m.number(-1e4)))
            gone = m.node("Equal", wide, m.constant(np.array(0, np.int64)))
            return m.node("Where", gone, m.number(-1e4), scores)


def biased(m: Weaver, scores: Value) -> Value:
    """Relative positions: a table gathered at constant places, or slopes (ALiBi)."""
    _, count, t, s = scores.shape
    if isinstance(t, Size) or isinstance(s, Size):
        return scores
    if m.chance(0.5):
        places = (np.arange(t)[:, None] - np.arange(s)[None] + s - 1).reshape(-1)
        table = m.weight_of(t + s - 1, count)
        bias = m.node("Gather", table, m.constant(places), axis=0)
        bias = m.unsqueeze(m.transpose(m.reshape(bias, t, s, count), 2, 0, 1), 0)
    else:
        slopes = (2.0 ** -np.arange(1, count + 1)).astype(np.float32).reshape(1, count, 1, 1)
        distance = np.arange(s, dtype=np.float32).reshape(1, 1, 1, s)
        bias = m.node("Mul", m.constant(slopes), m.constant(distance))
    return m.node("Add", scores, bias)


def attended(m: Weaver, heads: Heads, *, mask: bool = True) -> Value:
    """softmax(q·kᵀ/√d)·v, heads joined: [N, T, D]."""
    scale = 1 / math.sqrt(heads.width)
    q, k = heads.q, heads.k
    way = m.random.randrange(3)
    if way == 0:  # PyTorch's scaled_dot_product_attention: half of the scale on each side
        q, k = (m.node("Mul", y, m.number(math.sqrt(scale))) for y in (q, k))
    scores = m.node("MatMul", q, m.transpose(k, 0, 1, 3, 2))
    if way == 1:
        scores = m.node("Div", scores, m.number(1 / scale))
    elif way == 2:
        scores = m.node("Mul", scores, m.number(scale))
    if m.chance(0.3):
        scores = biased(m, scores)
    weights = m.softmax(masked(m, scores) if mask else scores)
    y = m.node("MatMul", weights, heads.v)
    n, count, t, d = y.shape
    return m.reshape(m.transpose(y, 0, 2, 1, 3), n, t, count * d)


def attention(m: Weaver, x: Value) -> Value:
    """Self-attention with its output layer."""
    if x.rank != 3:
        raise Refused("no tokens")
    heads = (packed, grouped, _own)[m.random.randrange(3)](m, x)
    if m.chance(0.2):
        heads = cached(m, heads)
    return m.linear(attended(m, heads), x.shape[-1])


def cross_attention(m: Weaver, x: Value) -> Value:
    """Queries of one sequence, keys and values of another."""
    others = [v for v in m.values.values() if v.rank == 3 and v.of("f") and v.shape[0] == x.shape[0] and v != x]
    others = [v for v in others if not isinstance(v.shape[-1], Size) and v.shape[-1] > 1]
    other = m.random.choice(others[-8:]) if others else m.given(x.shape[0], m.one(2, 3, 5), x.shape[-1])
    return m.node("Add", x, m.linear(attended(m, separate(m, x, other), mask=False), x.shape[-1]))


def einsum_attention(m: Weaver, x: Value) -> Value:
    """As TensorFlow's layers: dense layers to heads and back by Einsum."""
    if m.opset < 12:
        raise Refused("no such operator")
    d = x.shape[-1]
    count = _width_of_heads(m, x)
    inner = d // count
    q, k, v = (m.node("Einsum", x, m.weight_of(d, count, inner, fan=d), equation="btd,dhe->bthe") for _ in range(3))
    q = m.node("Mul", q, m.number(1 / math.sqrt(inner)))
    weights = m.softmax(m.node("Einsum", k, q, equation="aecd,abcd->acbe"))
    y = m.node("Einsum", weights, v, equation="acbe,aecd->abcd")
    return m.node("Einsum", y, m.weight_of(count, inner, d, fan=d), equation="abcd,cde->abe")


def linear_attention(m: Weaver, x: Value) -> Value:
    """Without softmax: (elu(q) + 1)·((elu(k) + 1)ᵀ·v), divided by its sums."""
    heads = separate(m, x, x)
    q, k = (m.node("Add", m.node("Elu", y), m.number(1)) for y in (heads.q, heads.k))
    turned = m.transpose(k, 0, 1, 3, 2)
    total = m.node("MatMul", q, m.axes("ReduceSum", turned, 3, keepdims=1))
    y = m.node("Div", m.node("MatMul", q, m.node("MatMul", turned, heads.v)), m.node("Add", total, m.number(1e-6)))
    n, count, t, d = y.shape
    return m.reshape(m.transpose(y, 0, 2, 1, 3), n, t, count * d)


def windows(m: Weaver, x: Value) -> Value:
    """Swin: an image in windows that are shifted by a roll (slices joined), attention within, and back."""
    n, c, h, w = x.shape
    side = m.one(2, 3, 4)
    if any(isinstance(e, Size) for e in (h, w)) or h % side or w % side or c % 4:
        raise Refused("no windows")
    shift = m.one(0, 1)
    y = m.transpose(x, 0, 2, 3, 1)
    for axis, extent in ((1, h), (2, w)) if shift else ():
        y = m.node("Concat", m.cut(y, axis, shift, extent), m.cut(y, axis, 0, shift), axis=axis)
    y = m.transpose(m.reshape(y, n, h // side, side, w // side, side, c), 0, 1, 3, 2, 4, 5)
    number = n * (h // side) * (w // side)
    tokens = m.reshape(y, number, side * side, c)
    y = m.linear(attended(m, packed(m, tokens), mask=False), c)
    y = m.transpose(m.reshape(y, n, h // side, w // side, side, side, c), 0, 1, 3, 2, 4, 5)
    y = m.reshape(y, n, h, w, c)
    for axis, extent in ((1, h), (2, w)) if shift else ():
        y = m.node("Concat", m.cut(y, axis, extent - shift, extent), m.cut(y, axis, 0, extent - shift), axis=axis)
    return m.node("Add", x, m.transpose(y, 0, 3, 1, 2))


ATTENTION: Final = ((5, attention), (2, cross_attention), (1, einsum_attention), (1, linear_attention))
