"""Normalisations, as compositions: passes fuse them again for each target."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.graph.op import Op
from dlc.kernel.define import ShapeError, same
from dlc.ops.elementwise import Add, Div, Exp, Log, Mul, Pow, Reciprocal, Sqrt, Sub
from dlc.ops.pointwise import normalized, scalar
from dlc.ops.pool import SumPool
from dlc.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from dlc.ops.shape import Reshape


def _per_channel(v: Op, x: Op) -> Op:
    """A vector over the channels of x[N, C, D…], shaped to broadcast."""
    _, channels, *spatial = _channelled(x)
    same(v.type.size, channels, "sizes of the vector and of the channel dimension")
    return Reshape(v, to=(channels, *(1,) * len(spatial)))


def _channelled(x: Op) -> tuple[int, ...]:
    """The shape [N, C, D…] of a tensor with channels."""
    if len(x.shape) < 2:
        raise ShapeError(f"x must have channels: {x.type}")
    return x.shape


def _inverse_deviation(variance: Op, epsilon: float) -> Op:
    return Reciprocal(Sqrt(Add(variance, scalar(epsilon, variance.dtype))))


def _standardized(x: Op, axes: Sequence[int], epsilon: float) -> Op:
    """(x - mean) / √(variance + epsilon) over `axes`."""
    centred = Sub(x, ReduceMean(x, axes=tuple(axes), keep=True))
    variance = ReduceMean(Mul(centred, centred), axes=tuple(axes), keep=True)
    return Mul(centred, _inverse_deviation(variance, epsilon))


class BatchNorm(Op):
    """y = x·a + b with a = scale / √(var + epsilon), b = bias - mean·a, per channel of x[N, C, D…].

    Inference form of ONNX BatchNormalization 15; Ioffe and Szegedy 2015.
    """

    x: Op
    scale: Op
    bias: Op
    mean: Op
    var: Op
    epsilon: float = 1e-5

    def expand(self) -> Op:
        # On channel vectors first: with constant statistics both factors fold to constants.
        a = Div(self.scale, Sqrt(Add(self.var, scalar(self.epsilon, self.var.dtype))))
        b = Sub(self.bias, Mul(self.mean, a))
        return Add(Mul(self.x, _per_channel(a, self.x)), _per_channel(b, self.x))


class LayerNorm(Op):
    """y = (x - mean) / √(variance + epsilon) · scale + bias, statistics over the dimensions from `axis` on.

    ONNX LayerNormalization 17; Ba, Kiros, Hinton 2016.
    """

    x: Op
    scale: Op
    bias: Op | None = None
    axis: int = -1
    epsilon: float = 1e-5

    def expand(self) -> Op:
        rank = len(self.x.shape)
        y = Mul(_standardized(self.x, range(normalized(self.axis, rank), rank), self.epsilon), self.scale)
        return y if self.bias is None else Add(y, self.bias)


class RmsNorm(Op):
    """y = x / √(mean(x²) + epsilon) · scale over the dimensions from `axis` on. Zhang and Sennrich 2019."""

    x: Op
    scale: Op
    axis: int = -1
    epsilon: float = 1e-5

    def expand(self) -> Op:
        rank = len(self.x.shape)
        axes = tuple(range(normalized(self.axis, rank), rank))
        square = ReduceMean(Mul(self.x, self.x), axes=axes, keep=True)
        return Mul(Mul(self.x, _inverse_deviation(square, self.epsilon)), self.scale)


class InstanceNorm(Op):
    """y = (x - mean) / √(variance + epsilon) · scale + bias, statistics per item and channel of x[N, C, D…].

    ONNX InstanceNormalization 6; Ulyanov et al. 2016.
    """

    x: Op
    scale: Op
    bias: Op
    epsilon: float = 1e-5

    def expand(self) -> Op:
        y = _standardized(self.x, range(2, len(self.x.shape)), self.epsilon)
        return Add(Mul(y, _per_channel(self.scale, self.x)), _per_channel(self.bias, self.x))


class GroupNorm(Op):
    """y = (x - mean) / √(variance + epsilon) · scale + bias, statistics per item and group of channels of x[N, C, D…].

    ONNX GroupNormalization 21 (scale and bias per channel); Wu and He 2018.
    """

    x: Op
    scale: Op
    bias: Op
    groups: int = 1
    epsilon: float = 1e-5

    def expand(self) -> Op:
        n, c, *spatial = _channelled(self.x)
        if self.groups < 1 or c % self.groups:
            raise ShapeError(f"{c} channels do not divide into {self.groups} groups")
        grouped = Reshape(self.x, to=(n, self.groups, c // self.groups * math.prod(spatial)))
        y = Reshape(_standardized(grouped, (2,), self.epsilon), to=self.x.shape)
        return Add(Mul(y, _per_channel(self.scale, self.x)), _per_channel(self.bias, self.x))


class Lrn(Op):
    """y = x / (bias + alpha/size · Σ x²)^beta, the sum over `size` channels around each of x[N, C, D…].

    ONNX LRN 13: (size-1)/2 channels before, rounded down, the others after. Krizhevsky et al. 2012.
    """

    x: Op
    size: int = 1
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def expand(self) -> Op:
        n, c, *spatial = _channelled(self.x)
        rows = Reshape(Mul(self.x, self.x), to=(n, 1, c, math.prod(spatial)))
        before = (self.size - 1) // 2
        total = SumPool(rows, window=(self.size, 1), pads=(before, 0, self.size - 1 - before, 0))
        power = Mul(Reshape(total, to=self.x.shape), scalar(self.alpha / self.size, self.x.dtype))
        return Div(self.x, Pow(Add(power, scalar(self.bias, self.x.dtype)), scalar(self.beta, self.x.dtype)))


class Softmax(Op):
    """y = e^(x - max x) / Σ e^(x - max x) along `axis`."""

    x: Op
    axis: int = -1

    def expand(self) -> Op:
        axes = (normalized(self.axis, len(self.x.shape)),)
        e = Exp(Sub(self.x, ReduceMax(self.x, axes=axes, keep=True)))
        return Div(e, ReduceSum(e, axes=axes, keep=True))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # y · (g - Σ g·y): the largest x cancels, so that it need not be found again.
        axes = (normalized(self.axis, len(self.x.shape)),)
        return [None if g is None else Mul(self, Sub(g, ReduceSum(Mul(g, self), axes=axes, keep=True))) for g in seeds]


class LogSoftmax(Op):
    """y = (x - max x) - ln Σ e^(x - max x) along `axis`."""

    x: Op
    axis: int = -1

    def expand(self) -> Op:
        axes = (normalized(self.axis, len(self.x.shape)),)
        shifted = Sub(self.x, ReduceMax(self.x, axes=axes, keep=True))
        return Sub(shifted, Log(ReduceSum(Exp(shifted), axes=axes, keep=True)))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # g - e^y · Σ g
        axes = (normalized(self.axis, len(self.x.shape)),)
        return [None if g is None else Sub(g, Mul(Exp(self), ReduceSum(g, axes=axes, keep=True))) for g in seeds]
