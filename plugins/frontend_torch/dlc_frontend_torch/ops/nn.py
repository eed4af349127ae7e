"""Normalisations, softmax, losses, resizing."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.base.types import i64
from dlc.graph import Op, Splat
from dlc.ops import elementwise as e
from dlc.ops import normalize as n
from dlc.ops import reduce as r
from dlc.ops.index import Pick
from dlc.ops.loss.classes import CrossEntropy, NegativeLogLikelihood
from dlc.ops.loss.differences import BinaryCrossEntropyWithLogits, Huber, MeanAbsoluteError, MeanSquaredError
from dlc_frontend_torch.ops.shape import repeated
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import axis, cast, constant, dtype_of, expanded, number, pair, reshaped

REDUCTIONS = ("none", "mean", "sum")
"""By the numbers that ATen has for them."""


def _filled(x: Op | None, value: float, like: Op, channels: Any) -> Op:
    return Splat(value, like.type.with_shape((channels,))) if x is None else x


@aten("batch_norm")
def batch_norm(
    x: Op,
    weight: Op | None,
    bias: Op | None,
    mean: Op | None,
    var: Op | None,
    training: bool,
    momentum: float,
    eps: float,
    *ignored: Any,
) -> Op:
    """Normalisation per channel; in training mode by the statistics of the batch."""
    del ignored
    if training or mean is None or var is None:
        return trained_norm(x, weight, bias, mean, var, momentum, eps)[0]
    return stored_norm(x, weight, bias, mean, var, momentum, eps)


def stored_norm(x: Op, weight: Op | None, bias: Op | None, mean: Op, var: Op, momentum: float, eps: float) -> Op:
    """Normalisation by stored statistics."""
    c = x.shape[1]
    scale, offset = _filled(weight, 1.0, x, c), _filled(bias, 0.0, x, c)
    return n.BatchNorm(x, scale, offset, mean, var, epsilon=float(eps), momentum=1 - float(momentum or 0.0))


def trained_norm(
    x: Op, weight: Op | None, bias: Op | None, mean: Op | None, var: Op | None, momentum: float, eps: float
) -> tuple[Op, Op, Op, Op | None, Op | None]:
    """Normalisation by the batch: y, mean, 1 / deviation, and the new running statistics."""
    c = x.shape[1]
    y = n.BatchNormTraining(x, _filled(weight, 1.0, x, c), _filled(bias, 0.0, x, c), epsilon=float(eps))
    own, spread = n.batch_mean(x), n.batch_variance(x)
    inverse = e.Reciprocal(e.Sqrt(e.Add(spread, number(float(eps), x.dtype))))
    if mean is None or var is None:
        return y, own, inverse, None, None
    count: Any = x.type.size // c if isinstance(x.type.size, int) else None
    if count is None:
        raise Unsupported("running statistics of a batch whose size is open", "give it one size: --dim NAME=SIZE")
    unbiased = e.Mul(spread, number(count / max(count - 1, 1), x.dtype))
    keep = 1 - float(momentum)
    return y, own, inverse, n.running_statistic(mean, own, keep), n.running_statistic(var, unbiased, keep)


@aten("_native_batch_norm_legit_functional", "_native_batch_norm_legit", "native_batch_norm")
def native_batch_norm(
    x: Op,
    weight: Op | None,
    bias: Op | None,
    mean: Any,
    var: Any = None,
    training: Any = None,
    momentum: Any = None,
    eps: Any = None,
) -> Sequence[Op | None]:
    """Normalisation with what its gradient reads, and the new running statistics."""
    if isinstance(mean, bool):  # no_stats: (x, weight, bias, training, momentum, eps)
        mean, var, training, momentum, eps = None, None, mean, var, training
    if training:
        return trained_norm(x, weight, bias, mean, var, momentum, eps)
    empty = Splat(0.0, x.type.with_shape((0,)))
    return stored_norm(x, weight, bias, mean, var, momentum, eps), empty, empty, mean, var


@aten("_native_batch_norm_legit_no_training")
def native_stored_norm(
    x: Op, weight: Op | None, bias: Op | None, mean: Op, var: Op, momentum: float, eps: float
) -> Sequence[Op]:
    """Normalisation by stored statistics."""
    empty = Splat(0.0, x.type.with_shape((0,)))
    return stored_norm(x, weight, bias, mean, var, momentum, eps), empty, empty


@aten("layer_norm")
def layer_norm(
    x: Op, shape: Sequence[int], weight: Op | None = None, bias: Op | None = None, eps: float = 1e-5, *ignored: Any
) -> Op:
    """Normalisation over the last dimensions."""
    del ignored
    at = len(x.shape) - len(shape)
    scale = Splat(1.0, x.type.with_shape(tuple(shape))) if weight is None else weight
    return n.LayerNorm(x, scale, bias, axis=at, epsilon=float(eps))


@aten("native_layer_norm")
def native_layer_norm(x: Op, shape: Sequence[int], weight: Op | None, bias: Op | None, eps: float) -> tuple[Op, Op, Op]:
    """Normalisation with its mean and 1 / deviation."""
    over = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    mean = r.ReduceMean(x, axes=over, keep=True)
    off = e.Sub(x, mean)
    spread = r.ReduceMean(e.Mul(off, off), axes=over, keep=True)
    inverse = e.Reciprocal(e.Sqrt(e.Add(spread, number(float(eps), x.dtype))))
    return layer_norm(x, shape, weight, bias, eps), mean, inverse


@aten("rms_norm")
def rms_norm(x: Op, shape: Sequence[int], weight: Op | None = None, eps: float | None = None) -> Op:
    """Division by the root of the mean square."""
    scale = Splat(1.0, x.type.with_shape(tuple(shape))) if weight is None else weight
    eps = 1.1920928955078125e-07 if eps is None else eps
    return n.RmsNorm(x, scale, axis=len(x.shape) - len(shape), epsilon=float(eps))


@aten("group_norm")
def group_norm(
    x: Op, groups: int, weight: Op | None = None, bias: Op | None = None, eps: float = 1e-5, *ignored: Any
) -> Op:
    """Normalisation per item and group of channels."""
    del ignored
    c = x.shape[1]
    return n.GroupNorm(x, _filled(weight, 1.0, x, c), _filled(bias, 0.0, x, c), groups=groups, epsilon=float(eps))


@aten("native_group_norm")
def native_group_norm(
    x: Op, weight: Op | None, bias: Op | None, batch: Any, channels: Any, area: Any, groups: int, eps: float
) -> tuple[Op, Op, Op]:
    """Normalisation per group, with its mean and 1 / deviation."""
    del channels, area
    rows = reshaped(x, (batch, groups, x.type.size // (batch * groups)))
    mean = r.ReduceMean(rows, axes=(2,), keep=False)
    off = e.Sub(rows, reshaped(mean, (batch, groups, 1)))
    spread = r.ReduceMean(e.Mul(off, off), axes=(2,), keep=False)
    inverse = e.Reciprocal(e.Sqrt(e.Add(spread, number(float(eps), x.dtype))))
    return group_norm(x, groups, weight, bias, eps), mean, inverse


@aten("instance_norm")
def instance_norm(
    x: Op,
    weight: Op | None,
    bias: Op | None,
    mean: Any,
    var: Any,
    use_input: bool,
    momentum: float,
    eps: float,
    *ignored: Any,
) -> Op:
    """Normalisation per item and channel."""
    del ignored, momentum
    if not use_input and mean is not None and var is not None:
        return stored_norm(x, weight, bias, mean, var, 0.0, eps)
    c = x.shape[1]
    return n.InstanceNorm(x, _filled(weight, 1.0, x, c), _filled(bias, 0.0, x, c), epsilon=float(eps))


@aten("softmax.int", "_softmax", "softmax")
def softmax(x: Op, dim: int, *ignored: Any, dtype: Any = None) -> Op:
    """Softmax along an axis."""
    x = cast(x, dtype_of(next((v for v in ignored if isinstance(v, str)), dtype), x.dtype))
    return n.Softmax(x, axis=axis(dim, len(x.shape))) if x.shape else Splat(1.0, x.type)


@aten("log_softmax.int", "_log_softmax", "log_softmax")
def log_softmax(x: Op, dim: int, *ignored: Any, dtype: Any = None) -> Op:
    """The logarithm of a softmax."""
    x = cast(x, dtype_of(next((v for v in ignored if isinstance(v, str)), dtype), x.dtype))
    return n.LogSoftmax(x, axis=axis(dim, len(x.shape))) if x.shape else Splat(0.0, x.type)


def _classes(x: Op) -> int:
    return 1 if len(x.shape) > 1 else 0


@aten("cross_entropy_loss")
def cross_entropy(
    x: Op, target: Op, weight: Op | None = None, reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0
) -> Op:
    """-ln of the probability of the labels."""
    return CrossEntropy(
        x,
        target if target.dtype.is_float else cast(target, i64),
        weight,
        axis=_classes(x),
        ignore_index=None if target.dtype.is_float else ignore_index,
        label_smoothing=float(smoothing),
        reduction=REDUCTIONS[reduction],
    )


@aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def nll_loss(x: Op, target: Op, weight: Op | None = None, reduction: int = 1, ignore_index: int = -100) -> Op:
    """- the element at the label."""
    labels = cast(target, i64)
    kind = REDUCTIONS[reduction]
    return NegativeLogLikelihood(x, labels, weight, axis=_classes(x), ignore_index=ignore_index, reduction=kind)


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(x: Op, target: Op, weight: Op | None, reduction: int, ignore_index: int) -> tuple[Op, Op]:
    """The loss, and the sum of the weights of its rows."""
    y = nll_loss(x, target, weight, reduction, ignore_index)
    if weight is not None:
        raise Unsupported("weights of classes in a training graph")
    counted = cast(e.Not(e.Equal(target, number(ignore_index, target.dtype))), x.dtype)
    return y, r.ReduceSum(counted, axes=tuple(range(len(target.shape))), keep=False)


def _loss(make: Any, x: Op, target: Op, reduction: int, **options: Any) -> Op:
    from dlc.ops.pointwise import broadcast

    shape = broadcast(x.shape, target.shape)
    return make(expanded(x, shape), expanded(cast(target, x.dtype), shape), reduction=REDUCTIONS[reduction], **options)


@aten("mse_loss")
def mse_loss(x: Op, target: Op, reduction: int = 1) -> Op:
    """(x - target)²."""
    return _loss(MeanSquaredError, x, target, reduction)


@aten("l1_loss")
def l1_loss(x: Op, target: Op, reduction: int = 1) -> Op:
    """|x - target|."""
    return _loss(MeanAbsoluteError, x, target, reduction)


@aten("huber_loss")
def huber_loss(x: Op, target: Op, reduction: int = 1, delta: float = 1.0) -> Op:
    """Squares near 0, absolute values farther away."""
    return _loss(Huber, x, target, reduction, delta=float(delta))


@aten("smooth_l1_loss")
def smooth_l1_loss(x: Op, target: Op, reduction: int = 1, beta: float = 1.0) -> Op:
    """Huber loss / beta."""
    y = _loss(Huber, x, target, reduction, delta=float(beta))
    return y if beta == 1 else e.Div(y, number(float(beta), y.dtype))


@aten("binary_cross_entropy_with_logits")
def bce_with_logits(
    x: Op, target: Op, weight: Op | None = None, pos_weight: Op | None = None, reduction: int = 1
) -> Op:
    """Binary cross-entropy of scores."""
    if weight is not None:
        raise Unsupported("weights of elements")
    return BinaryCrossEntropyWithLogits(x, cast(target, x.dtype), pos_weight, reduction=REDUCTIONS[reduction])


@aten("binary_cross_entropy")
def bce(x: Op, target: Op, weight: Op | None = None, reduction: int = 1) -> Op:
    """Binary cross-entropy of probabilities; logarithms are at least -100, as PyTorch has them."""

    def log(p: Op) -> Op:
        return e.Clip(e.Log(p), low=-100.0)

    one = number(1.0, x.dtype)
    rows = e.Neg(e.Add(e.Mul(target, log(x)), e.Mul(e.Sub(one, target), log(e.Sub(one, x)))))
    rows = rows if weight is None else e.Mul(rows, weight)
    if reduction == 0:
        return rows
    make = r.ReduceMean if reduction == 1 else r.ReduceSum
    return make(rows, axes=tuple(range(len(rows.shape))), keep=False)


# ---- resizing


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(x: Op, size: Any = None, *scales: Any, **named: Any) -> Op:
    """Each element repeated."""
    sizes, given = _sizes(x, size, scales or tuple(named.values()))
    for d, (total, scale) in enumerate(zip(sizes, given, strict=True), 2):
        own = x.shape[d]
        if total == own:
            continue
        if total % own == 0 and (scale is None or scale == total / own):
            x = repeated(x, d, total // own)
        else:
            step = 1 / scale if scale else own / total
            x = Pick(x, constant([min(int(k * step), own - 1) for k in range(total)], i64), axis=d)
    return x


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(x: Op, size: Any, aligned: bool, *scales: Any, **named: Any) -> Op:
    """Linear interpolation along each dimension."""
    sizes, given = _sizes(x, size, scales or tuple(named.values()))
    for d, (total, scale) in enumerate(zip(sizes, given, strict=True), 2):
        if total != x.shape[d]:
            x = _interpolated(x, d, total, scale, aligned=aligned)
    return x


def _interpolated(x: Op, d: int, total: int, scale: float | None, *, aligned: bool) -> Op:
    own = x.shape[d]
    if aligned:
        places = [k * (own - 1) / (total - 1) if total > 1 else 0.0 for k in range(total)]
    else:
        step = 1 / scale if scale else own / total
        places = [max((k + 0.5) * step - 0.5, 0.0) for k in range(total)]
    first = [min(int(p), own - 1) for p in places]
    second = [min(f + 1, own - 1) for f in first]
    part = constant([p - f for p, f in zip(places, first, strict=True)], x.dtype)
    part = reshaped(part, (total, *(1,) * (len(x.shape) - d - 1)))
    a, b = (Pick(x, constant(places, i64), axis=d) for places in (first, second))
    return e.Add(a, e.Mul(part, e.Sub(b, a)))


def _sizes(x: Op, size: Any, scales: Sequence[Any]) -> tuple[list[int], list[float | None]]:
    """Sizes of the result, and scales where they count."""
    rank = len(x.shape) - 2
    if any(not isinstance(v, int) for v in x.shape[2:]):
        raise Unsupported("resizing of a dimension that has no size yet")
    flat: list[float | None] = []
    for scale in scales:
        flat += list(scale) if isinstance(scale, (list, tuple)) else [scale]
    flat = (flat or [None] * rank)[:rank]
    if size is not None:
        return list(pair(size, rank)), flat
    return [math.floor(v * (f or 1.0)) for v, f in zip(x.shape[2:], flat, strict=True)], flat
