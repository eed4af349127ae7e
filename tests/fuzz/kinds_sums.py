"""Kinds of nodes that reduce, normalise and multiply: products, convolutions, pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.drawing import Maker
from tests.fuzz.kinds_movement import reshaped, transposed, with_axes
from tests.fuzz.sizes import Refused, largest, least
from tests.fuzz.values import Value

FLOAT_REDUCTIONS = ("ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceL1", "ReduceSumSquare")
ANY_REDUCTIONS = ("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")


def reduction(m: Maker) -> None:
    op = m.one(*FLOAT_REDUCTIONS, *ANY_REDUCTIONS)
    x = m.any("f" if op in FLOAT_REDUCTIONS or m.chance(0.8) else "n")
    axes = tuple(m.random.sample(range(x.rank), m.random.randint(1, x.rank))) if x.rank else ()
    if not axes or m.chance(0.1):
        m.node(op, x, keepdims=m.one(0, 1))
    else:
        with_axes(m, op, x, tuple(a - x.rank if m.chance(0.3) else a for a in axes), keepdims=m.one(0, 1))


def along(m: Maker) -> None:
    x = m.any("f", 1)
    match m.random.randrange(5):
        case 0 | 1:
            m.node("Softmax", x, axis=m.axis(x))
        case 2:
            m.node("LogSoftmax", x, axis=m.axis(x))
        case 3:
            x = m.any("n", 1)
            m.node("CumSum", x, m.constant(np.array(m.axis(x))), reverse=m.one(0, 1), exclusive=m.one(0, 0, 1))
        case _:
            m.node("LpNormalization", x, axis=m.axis(x), p=m.one(1, 2))


def norm(m: Maker) -> None:
    x = m.any("f", 2)
    kind = m.random.randrange(5)
    channels = x.shape[1]
    if kind == 0 and m.opset >= 17:
        axis = m.axis(x)
        shape = x.shape[axis:]
        m.node(
            "LayerNormalization",
            x,
            m.weight(x.dtype, *shape),
            *([m.weight(x.dtype, *shape)] if m.chance(0.6) else []),
            axis=axis,
        )
    elif kind == 1 and x.rank > 2:
        m.node("InstanceNormalization", x, m.weight(x.dtype, channels), m.weight(x.dtype, channels))
    elif kind == 3 and x.rank == 4:
        m.node("LRN", x, size=m.one(1, 3, 5))
    else:
        batch_norm(m, x)


def batch_norm(m: Maker, x: Value) -> Value:
    scale, bias, mean = (m.constant(m.numbers(x.dtype, x.shape[1:2], plain=True)) for _ in range(3))
    var = m.constant(np.abs(m.numbers(x.dtype, x.shape[1:2], plain=True)) + np.array(0.25, x.dtype))
    return m.node("BatchNormalization", x, scale, bias, mean, var)


def spelled_norm(m: Maker) -> None:
    """A layer normalisation or softmax in its parts."""
    x = m.any("f", 1)
    if m.chance(0.5):
        e = m.node("Exp", m.node("Sub", x, with_axes(m, "ReduceMax", x, (-1,), keepdims=1)))
        m.node("Div", e, with_axes(m, "ReduceSum", e, (-1,), keepdims=1))
        return
    d = m.node("Sub", x, with_axes(m, "ReduceMean", x, (-1,), keepdims=1))
    two = m.constant(np.array(2, x.dtype))
    var = with_axes(m, "ReduceMean", m.node("Pow", d, two), (-1,), keepdims=1)
    deviation = m.node("Sqrt", m.node("Add", var, m.constant(np.array(1e-3, x.dtype))))
    m.node("Mul", m.node("Div", d, deviation), m.weight(x.dtype, x.shape[-1]))


def product(m: Maker) -> None:
    x = m.any("f" if m.chance(0.93) else "n", 1, 4)
    n = m.one(1, 2, 3, 5, 7, 8, 16, 17, 33)
    k = x.shape[-1]
    others = [v for v in m.values.values() if v.dtype == x.dtype and v.rank >= 1 and v.shape[-2:][0] == k]
    if x.rank == 2 and m.chance(0.4):
        turned = m.one(0, 1)
        w = m.weight(x.dtype, n, k) if turned else m.weight(x.dtype, k, n)
        bias = m.one(None, (n,), (1, n), (1,), (x.shape[0], 1))
        more = [] if bias is None else [m.weight(x.dtype, *bias)]
        m.node("Gemm", x, w, *more, alpha=m.one(1.0, 0.5), beta=m.one(1.0, 2.0), transB=turned)
    elif others and m.chance(0.5):
        m.node("MatMul", x, m.random.choice(others))
    else:
        y = m.node("MatMul", x, m.weight(x.dtype, k, n))
        if m.chance(0.5):
            m.node("Add", y, m.weight(x.dtype, n))


def attention(m: Maker) -> None:
    """Products of a value with itself, turned."""
    x = m.any("f", 2, 4)
    turned = m.node("Transpose", x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
    scores = m.node("MatMul", x, turned)
    y = m.node("MatMul", m.node("Softmax", scores, axis=-1), x)
    if m.chance(0.5):
        m.node("Add", x, y)


def einsum(m: Maker) -> None:
    x = m.any("f", 2, 3)
    letters = "abc"[: x.rank]
    equation = f"{letters},{letters[-1]}d->{m.one(letters[:-1] + 'd', 'd' + letters[:-1])}"
    m.node("Einsum", x, m.weight(x.dtype, x.shape[-1], m.one(1, 3, 5)), equation=equation)


def image(m: Maker) -> Value:
    """A value with a batch, channels and one to three spatial dimensions."""
    found = [v for v in m.values.values() if v.of("f") and 3 <= v.rank <= 5]
    if found and m.chance(0.85):
        return m.random.choice(found[-3:])
    dtype = (
        m.one(*(t for t in m.types if t.startswith("float")))
        if any(t.startswith("float") for t in m.types)
        else "float32"
    )
    return m.input(dtype, m.shape(m.one(3, 4, 4, 4, 4, 5)))


def convolved(m: Maker, x: Value) -> Value:
    spatial, channels = x.shape[2:], x.shape[1]
    if 0 in map(least, x.shape[1:]):
        raise Refused("empty")
    group = channels if m.chance(0.25) else 2 if channels % 2 == 0 and m.chance(0.2) else 1
    out = group * m.one(1, 2, 3, 5, 16)
    window = [min(m.one(1, 2, 3, 3, 5), e) for e in spatial]
    attributes: dict[str, Any] = {"strides": [m.one(1, 1, 2, 3) for _ in spatial]}
    if m.chance(0.15):
        attributes["auto_pad"] = m.one("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        attributes["pads"] = [m.random.randint(0, k - 1) for k in (*window, *window)]
        attributes["dilations"] = [
            2 if m.chance(0.15) and 2 * k - 1 <= e else 1 for k, e in zip(window, spatial, strict=True)
        ]
    bias = [m.weight(x.dtype, out)] if m.chance(0.5) else []
    return m.node(
        "Conv", x, m.weight(x.dtype, out, channels // max(group, 1), *window), *bias, group=group, **attributes
    )


def convolution(m: Maker) -> None:
    y = convolved(m, image(m))
    if m.chance(0.3):
        y = batch_norm(m, y)
    if m.chance(0.5):
        y = m.node("Relu", y)
    if m.chance(0.2):
        convolved(m, y)


def turned_convolution(m: Maker) -> None:
    """A convolution between transposes, as converters between layouts leave it."""
    x = image(m)
    last, first = [0, *range(2, x.rank), 1], [0, x.rank - 1, *range(1, x.rank - 1)]
    y = m.node("Transpose", convolved(m, m.node("Transpose", x, perm=first)), perm=last)
    if m.chance(0.5):
        y = m.node(m.one("Relu", "Sigmoid"), y)
    if m.chance(0.5):
        m.one(reshaped, transposed)(m, y)


def transposed_convolution(m: Maker) -> None:
    x = image(m)
    spatial = x.shape[2:]
    if 0 in x.shape[1:]:
        raise Refused("empty")
    window = [m.one(1, 2, 3) for _ in spatial]
    w = m.weight(x.dtype, x.shape[1], m.one(1, 2, 3), *window)
    pads = [m.random.randint(0, max(0, min(1, k - 1))) for k in (*window, *window)]
    m.node("ConvTranspose", x, w, strides=[m.one(1, 2) for _ in spatial], pads=pads)


def pool(m: Maker) -> None:
    x = image(m)
    spatial = x.shape[2:]
    if 0 in x.shape[1:]:
        raise Refused("empty")
    if m.chance(0.2):
        m.node(m.one("GlobalAveragePool", "GlobalMaxPool"), x)
        return
    window = [min(m.one(1, 2, 2, 3), e) for e in spatial]
    attributes: dict[str, Any] = {"kernel_shape": window, "strides": [m.one(1, 1, 2, 3) for _ in spatial]}
    attributes["pads"] = [m.random.randint(0, k // 2) if m.chance(0.3) else 0 for k in (*window, *window)]
    op = m.one("MaxPool", "MaxPool", "AveragePool", "LpPool")
    if op == "AveragePool" and m.chance(0.5):
        attributes["count_include_pad"] = 1
    if op in ("MaxPool", "AveragePool") and m.chance(0.15):
        attributes["ceil_mode"] = 1
    m.node(op, x, **attributes)


def recurrent(m: Maker) -> None:
    x = m.any("f", 3, 3)
    op, hidden = m.one("LSTM", "GRU", "RNN"), m.one(1, 2, 3, 5)
    ways = m.one("forward", "reverse", "bidirectional")
    d, gates = 1 + (ways == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    w, r = m.weight(x.dtype, d, gates * hidden, x.shape[2]), m.weight(x.dtype, d, gates * hidden, hidden)
    bias = [m.weight(x.dtype, d, 2 * gates * hidden)] if m.chance(0.5) else []
    more = {"linear_before_reset": m.one(0, 1)} if op == "GRU" else {}
    if largest(x.shape)[0] > 9:
        raise Refused("long")
    m.nodes_of(op, 2, x, w, r, *bias, hidden_size=hidden, direction=ways, **more)


def quantized(m: Maker) -> None:
    x = m.any("f", where=lambda v: v.dtype == "float32")
    dtype = m.one("uint8", "int8")
    scale = m.constant(np.array(m.one(0.05, 0.1, 0.02), np.float32))
    zero = m.constant(np.array(m.one(0, 3, 7), dtype))
    y = m.node("QuantizeLinear", x, scale, zero)
    if y.rank >= 2 and m.chance(0.4):
        w = m.constant(m.rng.integers(0, 9, (y.shape[-1], m.one(1, 3, 5))), dtype)
        y = m.node("MatMulInteger", y, w, zero)
    else:
        m.node("DequantizeLinear", y, scale, zero)


def loss(m: Maker) -> None:
    x = m.any("f", 2, 4)
    classes = x.shape[1]
    shape = (x.shape[0], *x.shape[2:])
    labels = m.rng.integers(0, max(least(classes), 1), largest(shape))
    y = m.input(shape=shape, array=labels) if m.chance(0.7) else m.constant(labels)
    if m.chance(0.5):
        m.nodes_of("SoftmaxCrossEntropyLoss", m.one(1, 2), x, y, reduction=m.one("mean", "sum", "none"))
    else:
        m.node("NegativeLogLikelihoodLoss", m.node("LogSoftmax", x, axis=1), y, reduction=m.one("mean", "sum", "none"))


KINDS = (
    *((7, reduction), (5, along), (4, norm), (2, spelled_norm), (7, product), (2, attention), (1, einsum)),
    *((5, convolution), (3, turned_convolution), (2, transposed_convolution), (4, pool), (1, recurrent)),
    *((1, quantized), (1, loss)),
)
