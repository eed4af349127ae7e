"""Normalisations, as compositions: passes fuse them again for each target."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.graph.op import Op
from dlc.kernel.define import ShapeError, same
from dlc.ops.elementwise import Add, Div, Exp, Log, Mul, Pow, Sqrt, Sub
from dlc.ops.pointwise import normalized, scalar
from dlc.ops.pool import SumPool
from dlc.ops.reduce import ReduceMax, ReduceMean, ReduceSum
from dlc.ops.shape import Reshape
from dlc.ops.standardize import (
    CentredScale,
    CentredSum,
    StandardizedScale,
    inverse_deviation,
    standardized_gradient,
    statistics,
    summed,
)


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


class BatchNorm(Op):
    """y = x·a + b with a = scale / √(var + epsilon), b = bias - mean·a, per channel of x[N, C, D…].

    Inference form of ONNX BatchNormalization 15; Ioffe and Szegedy 2015. `momentum` is no part of y: it is how much of
    mean and var stays in a step when the layer is trained.
    """

    x: Op
    scale: Op
    bias: Op
    mean: Op
    var: Op
    epsilon: float = 1e-5
    momentum: float = 0.9

    def expand(self) -> Op:
        # On channel vectors first: with constant statistics both factors fold to constants.
        a = Div(self.scale, Sqrt(Add(self.var, scalar(self.epsilon, self.var.dtype))))
        b = Sub(self.bias, Mul(self.mean, a))
        return Add(Mul(self.x, _per_channel(a, self.x)), _per_channel(b, self.x))


class BatchNormTraining(Op):
    """y = (x - mean) / √(var + epsilon) · scale + bias by mean and biased variance of each channel of x[N, C, D…].

    Training form of ONNX BatchNormalization 15; Ioffe and Szegedy 2015. The statistics themselves are `batch_mean` and
    `batch_variance`; a graph that needs them too computes them once.
    """

    x: Op
    scale: Op
    bias: Op
    epsilon: float = 1e-5

    def expand(self) -> Op:
        # x is read three times: for each of the statistics, and here.
        mean = batch_mean(self.x)
        for name, given in (("scale", self.scale), ("bias", self.bias)):
            if given.type != mean.type:
                raise ShapeError(f"{name} is {given.type}, not {mean.type} as the channels of {self.x.type}")
        return CentredScale(self.x, mean, Mul(self.scale, self._inverse()), self.bias)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # dx = scale·inv · (g - mean g - (x - mean)·inv²·mean(g·(x - mean))): two sums over x and g, then one map.
        (g,) = seeds
        if g is None:
            return None
        x, mean, inverse = self.x, batch_mean(self.x), self._inverse()
        count = scalar(x.type.size // x.shape[1], x.dtype)
        sum_g = ReduceSum(g, axes=_batch_axes(x))
        scaled = Mul(CentredSum(x, mean, g), inverse)
        through_statistics = CentredScale(x, mean, Div(Mul(scaled, inverse), count), Div(sum_g, count))
        dx = Mul(Sub(g, through_statistics), _per_channel(Mul(self.scale, inverse), x))
        return [dx, scaled, sum_g]

    def _inverse(self) -> Op:
        return inverse_deviation(batch_variance(self.x), self.epsilon)


def batch_mean(x: Op) -> Op:
    """The mean of each channel of x[N, C, D…] over all other axes: [C]."""
    return ReduceMean(x, axes=_batch_axes(x))


def batch_variance(x: Op) -> Op:
    """The biased variance of each channel of x[N, C, D…], Σ (x - mean)² / n over all other axes: [C]."""
    return Div(CentredSum(x, batch_mean(x)), scalar(x.type.size // x.shape[1], x.dtype))


def running_statistic(running: Op, batch: Op, momentum: float = 0.9) -> Op:
    """momentum · running + (1 - momentum) · batch, as ONNX BatchNormalization 15 updates mean and variance.

    ONNX takes the biased variance of the batch. PyTorch normalises by the biased one, but the running variance of
    torch.nn.BatchNorm2d follows the unbiased one, n / (n - 1) times as large, and its momentum is 1 minus this one.
    """
    return Add(Mul(running, scalar(momentum, running.dtype)), Mul(batch, scalar(1.0 - momentum, running.dtype)))


def _batch_axes(x: Op) -> tuple[int, ...]:
    """All axes of x[N, C, D…] but that of the channels."""
    if not _channelled(x) or not x.type.capacity:
        raise ShapeError(f"x has no elements to take statistics of: {x.type}")
    return (0, *range(2, len(x.shape)))


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
        y = StandardizedScale(self.x, *statistics(self.x, self._axes, self.epsilon), self.scale)
        return y if self.bias is None else Add(y, self.bias)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        (g,) = seeds
        given = [self.scale] if self.bias is None else [self.scale, self.bias]
        if g is None or any(v.shape != self.x.shape[self._axes[0] :] for v in given):
            return None
        dx, again = standardized_gradient(self.x, self._axes, self.epsilon, Mul(g, self.scale))
        terms = zip((Mul(g, again), g), given, strict=False)
        return [dx, *(summed(term, self._axes, v) for term, v in terms)]

    @property
    def _axes(self) -> tuple[int, ...]:
        rank = len(self.x.shape)
        return tuple(range(normalized(self.axis, rank), rank))


class RmsNorm(Op):
    """y = x / √(mean(x²) + epsilon) · scale over the dimensions from `axis` on. Zhang and Sennrich 2019."""

    x: Op
    scale: Op
    axis: int = -1
    epsilon: float = 1e-5

    def expand(self) -> Op:
        return Mul(Mul(self.x, self._inverse()), self.scale)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # dx = inverse · g·scale - x · inverse³ · mean(x·g·scale): x / √… is not read again, so it is not kept.
        (g,) = seeds
        if g is None or self.scale.shape != self.x.shape[self._axes[0] :]:
            return None
        inverse, scaled = self._inverse(), Mul(g, self.scale)
        mean = ReduceMean(Mul(scaled, self.x), axes=self._axes, keep=True)
        through_square = Mul(Mul(Mul(inverse, inverse), inverse), mean)
        dx = Sub(Mul(scaled, inverse), Mul(self.x, through_square))
        return [dx, summed(Mul(Mul(g, inverse), self.x), self._axes, self.scale)]

    def _inverse(self) -> Op:
        return inverse_deviation(ReduceMean(Mul(self.x, self.x), axes=self._axes, keep=True), self.epsilon)

    @property
    def _axes(self) -> tuple[int, ...]:
        rank = len(self.x.shape)
        return tuple(range(normalized(self.axis, rank), rank))


class InstanceNorm(Op):
    """y = (x - mean) / √(variance + epsilon) · scale + bias, statistics per item and channel of x[N, C, D…].

    ONNX InstanceNormalization 6; Ulyanov et al. 2016.
    """

    x: Op
    scale: Op
    bias: Op
    epsilon: float = 1e-5

    def expand(self) -> Op:
        mean, inverse = statistics(self.x, range(2, len(self.x.shape)), self.epsilon)
        y = StandardizedScale(self.x, mean, inverse, _per_channel(self.scale, self.x))
        return Add(y, _per_channel(self.bias, self.x))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        (g,) = seeds
        if g is None:
            return None
        scaled = Mul(g, _per_channel(self.scale, self.x))
        dx, again = standardized_gradient(self.x, range(2, len(self.x.shape)), self.epsilon, scaled)
        return [dx, summed(Mul(g, again), (1,), self.scale), summed(g, (1,), self.bias)]


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
        mean, inverse = statistics(self._grouped, (2, 3), self.epsilon)
        y = StandardizedScale(self._grouped, mean, inverse, self._per_group(self.scale))
        return Reshape(Add(y, self._per_group(self.bias)), to=self.x.shape)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        (g,) = seeds
        if g is None:
            return None
        g = Reshape(g, to=self._grouped.shape)
        dx, again = standardized_gradient(self._grouped, (2, 3), self.epsilon, Mul(g, self._per_group(self.scale)))
        dscale, dbias = summed(Mul(g, again), (1, 2), self.scale), summed(g, (1, 2), self.bias)
        return [Reshape(dx, to=self.x.shape), dscale, dbias]

    @property
    def _grouped(self) -> Op:
        """x as [N, groups, channels of a group, elements of a channel]."""
        n, c, *spatial = _channelled(self.x)
        if self.groups < 1 or c % self.groups:
            raise ShapeError(f"{c} channels do not divide into {self.groups} groups")
        return Reshape(self.x, to=(n, self.groups, c // self.groups, math.prod(spatial)))

    def _per_group(self, v: Op) -> Op:
        """A vector over the channels of x, shaped to broadcast with groups."""
        _, groups, channels, _ = self._grouped.shape
        same(v.type.size, groups * channels, "sizes of the vector and of the channel dimension")
        return Reshape(v, to=(groups, channels, 1))


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
        channels = Reshape(Mul(self.x, self.x), to=(n, 1, c, *spatial))
        before, still = (self.size - 1) // 2, len(spatial)
        pads = (before, *(0,) * still, self.size - 1 - before, *(0,) * still)
        total = SumPool(channels, window=(self.size, *(1,) * still), pads=pads)
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
