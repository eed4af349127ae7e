"""Random numbers and dropout in training mode.

The standard names no generator, so no two implementations agree in values: here they are those of `dlc.ops.random`,
functions of the node's seed. Nodes with equal seeds draw equal numbers; one without a seed draws its own, which depend
on its name. Every run of a model draws the same; a training step draws others each time.
"""

from __future__ import annotations

import zlib

import numpy as np

from dlc.base.types import Array, Type, bool_, f32, i64
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.random import Dropout, DropoutMask, RandomNormal, RandomUniform
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_rank, dtype_of
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


@onnx("Dropout")
def dropout(node: Node) -> tuple[Op, Op]:
    """y = x: before version 12 dropout does nothing at inference."""
    node.ignore("ratio", "seed", "is_test")
    return _kept(node.x())


@onnx("Dropout", since=12)
def dropout_by_mode(node: Node) -> tuple[Op, Op]:
    """y = x at inference; in training mode some elements are zero, and the others larger."""
    x = node.x()
    if any(node.optional(k) is not None and node.maybe_constant(k) is None for k in (1, 2)):
        return _dropout_at_run_time(node, x)
    training = node.optional(2) is not None and bool(node.constant(2, "the training mode"))
    seed, stream = _source(node, node.int("seed") if node.has("seed") else None)
    if not training:
        return _kept(x)
    ratio = 0.5 if node.optional(1) is None else _checked(node.constant(1, "the ratio"))
    if not ratio:
        return _kept(x)
    y = Dropout(x, seed, ratio=ratio, stream=stream)
    return y, DropoutMask(seed, x.shape, ratio=ratio, stream=stream)


def _checked(ratio: Array) -> float:
    found = float(ratio.reshape(()))
    if not 0.0 <= found < 1.0:
        raise Unsupported(f"a ratio of {found:g}", "ratios are at least 0 and less than 1")
    return found


def _dropout_at_run_time(node: Node, x: Op) -> tuple[Op, Op]:
    """The same with a ratio or a mode that is computed: y = x·mask / (1 - ratio) in training mode."""
    seed, stream = _source(node, node.int("seed") if node.has("seed") else None)
    if (known := node.maybe_constant(1)) is not None:
        _checked(known)
    training = reshaped(cast(node.x(2), bool_), ()) if node.optional(2) is not None else Splat(False, Type(bool_, ()))
    ratio: Op = reshaped(cast(node.x(1), f32), ()) if node.optional(1) is not None else Splat(0.5, Type(f32, ()))
    u = RandomUniform(seed, Type(f32, x.shape), stream=stream)
    mask = e.Or(e.Not(training), e.GreaterOrEqual(u, ratio))
    factor = e.Where(training, e.Div(number(1, ratio), e.Sub(number(1, ratio), ratio)), number(1, ratio))
    y = e.Where(mask, e.Mul(x, cast(factor, x.dtype)), number(0, x))
    return y, mask


def _kept(x: Op) -> tuple[Op, Op]:
    return x, Splat(True, Type(bool_, x.shape))


@onnx("RandomUniform", "RandomUniformLike")
def random_uniform(node: Node) -> Op:
    """Numbers from `low` to `high`."""
    of, (seed, stream) = _drawn(node), _float_source(node)
    low, high = node.float("low", 0.0), node.float("high", 1.0)
    u = RandomUniform(seed, of, stream=stream)
    return e.Add(e.Mul(u, number(high - low, u)), number(low, u))


@onnx("RandomNormal", "RandomNormalLike")
def random_normal(node: Node) -> Op:
    """Normal numbers with mean `mean` and standard deviation `scale`."""
    of, (seed, stream) = _drawn(node), _float_source(node)
    z = RandomNormal(seed, of, stream=stream)
    return e.Add(e.Mul(z, number(node.float("scale", 1.0), z)), number(node.float("mean", 0.0), z))


@onnx("Bernoulli")
def bernoulli(node: Node) -> Op:
    """1 with probability x, else 0."""
    x, (seed, stream) = node.x(), _float_source(node)
    to = node.dtype("dtype") if node.has("dtype") else x.dtype
    return cast(e.Less(RandomUniform(seed, x.type, stream=stream), x), to)


def _drawn(node: Node) -> Type:
    """The type of what is drawn: by attributes, or that of operand 0."""
    like = node.optional(0)
    shape = node.ints("shape") if like is None else like.shape
    if shape is None:
        raise Unsupported("attribute shape is missing", MALFORMED)
    check_rank(len(shape))
    if any(d < 0 for d in shape):
        raise ShapeError(f"the shape {list(shape)} has a negative dimension")
    dtype = like.dtype if like is not None and not node.has("dtype") else dtype_of(node.int("dtype", 1))
    if not dtype.is_float:
        raise Unsupported(f"random numbers of type {dtype}", "supported: floats")
    return Type(dtype, shape)


def _float_source(node: Node) -> tuple[Op, int]:
    """Seed and stream of a node whose seed is a float: its bits."""
    bits = int(np.float32(node.float("seed")).view(np.uint32))
    return _source(node, bits if node.has("seed") else None)


def _source(node: Node, seed: int | None) -> tuple[Op, int]:
    """Seed and stream: those of the name where there is no seed."""
    return Splat(seed or 0, Type(i64, ())), zlib.crc32(node.name.encode()) if seed is None else 0
