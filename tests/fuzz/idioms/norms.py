"""Norms, as operators and written out in single nodes."""

from __future__ import annotations

from typing import Final

import numpy as np
from onnx import TensorProto

from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.sizes import Refused
from tests.fuzz.values import Value


def layer_norm(m: Weaver, x: Value) -> Value:
    """The operator of version 17, or nine nodes as of older exporters."""
    size = x.shape[-1]
    if m.opset >= 17 and m.chance(0.5):
        return m.node("LayerNormalization", x, m.weight_of(size, near=1.0), m.weight_of(size), axis=-1, epsilon=1e-5)
    d = m.node("Sub", x, m.mean(x, -1))
    square = m.node("Mul", d, d) if m.chance(0.4) else m.node("Pow", d, m.number(2))
    deviation = m.node("Sqrt", m.node("Add", m.mean(square, -1), m.number(m.one(1e-5, 1e-12, 1e-6))))
    if m.chance(0.3):  # as TensorFlow's exporter: x·r + (b - mean·r)
        r = m.node("Mul", m.node("Reciprocal", deviation), m.weight_of(size, near=1.0))
        shift = m.node("Sub", m.weight_of(size), m.node("Mul", m.mean(x, -1), r))
        return m.node("Add", m.node("Mul", x, r), shift)
    y = m.node("Mul", m.node("Div", d, deviation), m.weight_of(size, near=1.0))
    return m.node("Add", y, m.weight_of(size))


def rms_norm(m: Weaver, x: Value) -> Value:
    """The norm of Llama; its exporters cast to float32 and back."""
    if m.chance(0.3):
        x = m.node("Cast", x, to=TensorProto.FLOAT)
    square = m.node("Pow", x, m.number(2)) if m.chance(0.6) else m.node("Mul", x, x)
    r = m.node("Sqrt", m.node("Add", m.mean(square, -1), m.number(1e-6)))
    y = m.node("Mul", x, m.node("Reciprocal", r)) if m.chance(0.5) else m.node("Div", x, r)
    return m.node("Mul", m.weight_of(x.shape[-1], near=1.0), y)


def group_norm(m: Weaver, x: Value) -> Value:
    """As exporters before version 21 write it: an instance norm of the groups; or the operator."""
    n, c = x.shape[:2]
    groups = m.one(*(g for g in range(1, c + 1) if c % g == 0))
    if m.opset >= 21 and m.chance(0.5):
        (y,) = m.known("GroupNormalization", [x], x, m.weight_of(c, near=1.0), m.weight_of(c), num_groups=groups)
        return y
    flat = m.node("Reshape", x, m.ints(0, groups, -1))
    ones, zeros = (m.constant(np.full(groups, v, np.float32)) for v in (1, 0))
    if m.chance(0.6):
        y = m.node("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
    else:
        d = m.node("Sub", flat, m.mean(flat, -1))
        y = m.node("Div", d, m.node("Sqrt", m.node("Add", m.mean(m.node("Mul", d, d), -1), m.number(1e-5))))
    y = m.node("Reshape", y, m.node("Shape", x)) if m.chance(0.5) else m.reshape(y, n, *x.shape[1:])
    by = (c, *[1] * (x.rank - 2))
    return m.node("Add", m.node("Mul", y, m.weight_of(*by, near=1.0)), m.weight_of(*by))


def instance_norm(m: Weaver, x: Value) -> Value:
    c = x.shape[1]
    return m.node("InstanceNormalization", x, m.weight_of(c, near=1.0), m.weight_of(c))


def channels_last_norm(m: Weaver, x: Value) -> Value:
    """The layer norm of ConvNeXt: of the channels of an image."""
    return m.transpose(layer_norm(m, m.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)


def channels_first_norm(m: Weaver, x: Value) -> Value:
    """The same, written out for the dimension where they are."""
    d = m.node("Sub", x, m.mean(x, 1))
    y = m.node("Div", d, m.node("Sqrt", m.node("Add", m.mean(m.node("Pow", d, m.number(2)), 1), m.number(1e-6))))
    c = x.shape[1]
    scale = m.unsqueeze(m.weight_of(c, near=1.0), 1, 2)
    return m.node("Add", m.node("Mul", scale, y), m.unsqueeze(m.weight_of(c), 1, 2))


def response_norm(m: Weaver, x: Value) -> Value:
    """The global response norm of ConvNeXt V2, or the local one of AlexNet."""
    if m.chance(0.4):
        return m.node("LRN", x, size=m.one(3, 5), alpha=1e-3, beta=0.75, bias=1.0)
    g = m.axes("ReduceL2", x, 2, 3, keepdims=1)
    n = m.node("Div", g, m.node("Add", m.mean(g, 1), m.number(1e-6)))
    c = x.shape[1]
    y = m.node("Mul", m.node("Mul", x, n), m.weight_of(c, 1, 1, near=1.0))
    return m.node("Add", m.node("Add", y, m.weight_of(c, 1, 1)), x)


def unit_length(m: Weaver, x: Value) -> Value:
    """`torch.nn.functional.normalize`: by the norm, which is limited and expanded; or the operator."""
    if m.chance(0.3):
        return m.node("LpNormalization", x, axis=-1, p=2)
    norm = m.axes("ReduceL2", x, -1, keepdims=1)
    norm = m.node("Clip", norm, m.number(1e-12))
    return m.node("Div", x, m.node("Expand", norm, m.node("Shape", x)) if m.chance(0.6) else norm)


IMAGE_NORMS: Final = (group_norm, group_norm, instance_norm, channels_last_norm, channels_first_norm, response_norm)
TOKEN_NORMS: Final = (layer_norm, layer_norm, layer_norm, rms_norm, rms_norm)


def image_norm(m: Weaver, x: Value) -> Value:
    """Any norm of images; batch norm half of the time."""
    if m.chance(0.5):
        return m.batch_norm(x)
    if x.shape[-1] == 1 and x.shape[-2] == 1:
        raise Refused("the norm of one number")
    return m.random.choice(IMAGE_NORMS)(m, x)


def token_norm(m: Weaver, x: Value) -> Value:
    """Any norm of the last dimension."""
    return m.random.choice(TOKEN_NORMS)(m, x)
