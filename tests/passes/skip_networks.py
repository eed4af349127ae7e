"""Small networks with values that wait for late readers, as kernels in order."""

from __future__ import annotations

import numpy as np

from dlc import Report
from dlc.api.plan import Plan
from dlc.base.types import Type, f32
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor, make_graph
from dlc.ops.elementwise import Add, Mul, Relu, Tanh
from dlc.ops.linear import Conv, MatMul
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Concat, Reshape
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.order import Order


def _weights(*shape: int, seed: int) -> Constant:
    numbers = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return Constant(Tensor.of(numbers.astype(np.float32)))


def _conv(x: Op, channels: int, seed: int) -> Op:
    w = _weights(channels, x.type.shape[1], 3, 3, seed=seed)
    return Relu(Conv(x, w, None, (1, 1), (1, 1, 1, 1), (1, 1), 1))


def _wider(x: Op) -> Op:
    """Every pixel as four."""
    n, c, h, w = x.type.shape
    pixels = Splat(1.0, Type(f32, (n, c, h, 2, w, 2)))
    return Reshape(Mul(Reshape(x, (n, c, h, 1, w, 1)), pixels), (n, c, 2 * h, 2 * w))


def unet(channels: int = 2, size: int = 16, depth: int = 2) -> Graph:
    """Down and up again, with what was computed on the way down beside."""
    x = Input("x", Type(f32, (1, 3, size, size)))
    y, skips = _conv(x, channels, 0), list[Op]()
    for k in range(depth):
        y = _conv(y, channels << k, 10 + k)
        skips.append(y)
        y = MaxPool(y, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False)
    y = _conv(_conv(y, channels << depth, 20), channels << depth, 21)
    for k in reversed(range(depth)):
        y = _conv(Concat((_wider(y), skips[k]), 1), channels << k, 30 + k)
    return make_graph((x,), {"y": _conv(y, 2, 40)})


def residual(channels: int = 4, size: int = 8, blocks: int = 3) -> Graph:
    """Blocks of convolutions that are added to what they began with; the first value is read by the last block too."""
    x = Input("x", Type(f32, (1, 3, size, size)))
    first = y = _conv(x, channels, 0)
    for k in range(blocks):
        wide = _conv(_conv(y, 3 * channels, 10 * k + 1), 3 * channels, 10 * k + 2)
        y = Relu(Add(_conv(wide, channels, 10 * k + 3), y))
    return make_graph((x,), {"y": Add(y, first), "z": Tanh(first)})


def perceptron(width: int = 32, layers: int = 5) -> Graph:
    """Products, all of whose results are added in the end."""
    x = Input("x", Type(f32, (4, width)))
    y: Op = x
    values: list[Op] = []
    for k in range(layers):
        y = Relu(MatMul(y, _weights(width, width, seed=k)))
        values.append(y)
    whole = values[0]
    for value in values[1:]:
        whole = Add(Tanh(whole), value)
    return make_graph((x,), {"y": whole})


NETWORKS = {"unet": unet, "residual": residual, "perceptron": perceptron}


def ordered(graph: Graph, fused: bool = True) -> Plan:
    """The kernels of a graph in order, with nothing placed."""
    kernels = Lower().run(graph, Report())
    return Order().run(Fuse().run(kernels, Report()) if fused else kernels, Report())
