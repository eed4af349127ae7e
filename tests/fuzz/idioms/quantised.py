"""Quantised idioms: pairs of Quantize and Dequantize, products of integers, dynamic quantisation, fake quantisation."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnx import TensorProto

from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value

Figures = tuple[Value, Value]
"""Scale and zero point."""


def figures(m: Weaver, kind: str = "", spread: float = 3.0) -> Figures:
    """Of a tensor whose elements reach about ±`spread`."""
    kind = kind or m.one("uint8", "uint8", "int8")
    scale = np.float32(2 * spread / 255 * m.random.uniform(0.7, 1.4))
    zero = m.one(0, 3, -5) if kind == "int8" else m.one(128, 120, 131)
    return m.constant(np.array(scale, np.float32)), m.constant(np.array(zero, kind))


def quantise(m: Weaver, x: Value, by: Figures) -> Value:
    return m.node("QuantizeLinear", x, *by)


def dequantise(m: Weaver, x: Value, by: Figures) -> Value:
    return m.node("DequantizeLinear", x, *by)


def pair(m: Weaver, x: Value, spread: float = 3.0) -> Value:
    """Rounded to a byte and back."""
    by = figures(m, spread=spread)
    return dequantise(m, quantise(m, x, by), by)


def weight(m: Weaver, axis: int, *shape: int) -> Value:
    """A float weight from int8: with one scale, or one for each slice of an axis."""
    stored = m.constant(m.rng.integers(-127, 128, shape).astype(np.int8))
    fan = int(np.prod(shape)) // shape[axis]
    if m.chance(0.5) and m.opset >= 13:
        scales = m.constant((m.rng.uniform(0.5, 1.5, shape[axis]) / 64 / np.sqrt(fan)).astype(np.float32))
        return m.node("DequantizeLinear", stored, scales, m.constant(np.zeros(shape[axis], np.int8)), axis=axis)
    scale = m.constant(np.array(1 / 64 / np.sqrt(fan), np.float32))
    return m.node("DequantizeLinear", stored, scale, m.constant(np.array(0, np.int8)))


def bias_of(m: Weaver, count: int) -> Value:
    """A bias from int32, or a float one."""
    if m.chance(0.5):
        return m.weight_of(count)
    stored = m.constant(m.rng.integers(-3000, 3000, count).astype(np.int32))
    return m.node("DequantizeLinear", stored, m.constant(np.array(1e-4, np.float32)))


def convolutions(m: Weaver, x: Value) -> Value:
    """Two convolutions between pairs, with a residual, as static quantisers write them."""
    c = x.shape[1]
    x = pair(m, x)
    y = m.node("Conv", x, weight(m, 0, c, c, 3, 3), bias_of(m, c), pads=[1] * 4)
    y = pair(m, m.node("Relu", y) if m.chance(0.7) else y)
    if m.chance(0.4):
        y = pair(m, m.node("Conv", y, weight(m, 0, c, 1, 3, 3), group=c, pads=[1] * 4))
    if m.chance(0.3):
        gate = pair(m, m.node("Sigmoid", m.node("GlobalAveragePool", y)), 1.0)
        y = pair(m, m.node("Mul", y, gate))
    return pair(m, m.node("Add", x, y), 5.0)


def products(m: Weaver, x: Value) -> Value:
    """Dense layers between pairs."""
    d = x.shape[-1]
    if isinstance(d, Size):
        raise Refused("a weight has a known shape")
    y = pair(m, x)
    inner = m.one(4, 8, 16)
    y = m.node("Add", m.node("MatMul", y, weight(m, 1, d, inner)), bias_of(m, inner))
    y = pair(m, m.activation(y))
    y = pair(m, m.node("MatMul", y, weight(m, 1, inner, d)))
    return m.node("Add", x, y)


def integer_convolutions(m: Weaver, x: Value) -> Value:
    """QLinearConv from tensor to tensor; the last one is dequantised."""
    c = x.shape[1]
    by = figures(m, "uint8")
    y = quantise(m, x, by)
    for k in range(m.one(1, 2, 3)):
        w = m.constant(m.rng.integers(-127, 128, (c, c, 3, 3)).astype(np.int8))
        if m.chance(0.5):
            scale = m.constant((m.rng.uniform(0.5, 1.5, c) / 64 / np.sqrt(9 * c)).astype(np.float32))
            zero = m.constant(np.zeros(c, np.int8))
        else:
            scale = m.constant(np.array(1 / 64 / np.sqrt(9 * c), np.float32))
            zero = m.constant(np.array(0, np.int8))
        to = figures(m, "uint8")
        bias = [m.constant(m.rng.integers(-500, 500, c).astype(np.int32))] if m.chance(0.6) else []
        y = m.node("QLinearConv", y, *by, w, scale, zero, *to, *bias, pads=[1] * 4)
        by = to
        if k == 0 and m.chance(0.4) and min(x.shape[2:]) > 3:
            y = m.node("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4) if m.opset >= 12 else y
    return dequantise(m, y, by)


def integer_products(m: Weaver, x: Value) -> Value:
    """QLinearMatMul."""
    d = x.shape[-1]
    by, to = figures(m, "uint8"), figures(m, "uint8")
    kind = m.one("int8", "uint8")
    low, high = (-60, 60) if kind == "int8" else (0, 120)
    w = m.constant(m.rng.integers(low, high, (d, d)).astype(kind))
    zero = m.constant(np.array(0 if kind == "int8" else 60, kind))
    scale = m.constant(np.array(1 / 40 / np.sqrt(d), np.float32))
    return dequantise(m, m.node("QLinearMatMul", quantise(m, x, by), *by, w, scale, zero, *to), to)


def dynamic(m: Weaver, x: Value) -> Value:
    """What the dynamic quantiser makes of a dense layer or convolution."""
    images = x.rank == 4
    c = x.shape[1] if images else x.shape[-1]
    if isinstance(c, Size):
        raise Refused("a weight has a known shape")
    y, scale, zero = m.nodes_of("DynamicQuantizeLinear", 3, x)
    stored = m.constant(m.rng.integers(0, 256, (c, c, 3, 3) if images else (c, c)).astype(np.uint8))
    own = m.constant(np.array(128, np.uint8))
    if images:
        total = m.node("ConvInteger", y, stored, zero, own, pads=[1] * 4)
    else:
        total = m.node("MatMulInteger", y, stored, zero, own)
    by = m.node("Mul", scale, m.constant(np.array(1 / 64 / np.sqrt(c * (9 if images else 1)), np.float32)))
    y = m.node("Mul", m.node("Cast", total, to=TensorProto.FLOAT), by)
    return y if images else m.node("Add", m.weight_of(c), y)


def fake(m: Weaver, x: Value) -> Value:
    """Rounded in floats: divided, rounded, limited, multiplied."""
    scale = m.number(m.random.uniform(0.01, 0.05))
    y = m.node("Round", m.node("Div", x, scale))
    return m.node("Mul", m.node("Clip", y, m.number(-127), m.number(127)), scale)


IMAGES: Final[tuple[Any, ...]] = ((4, convolutions), (3, integer_convolutions), (2, dynamic), (1, fake))
ROWS: Final[tuple[Any, ...]] = ((4, products), (2, integer_products), (3, dynamic), (1, fake))
