"""Batch normalisation: with given parameters, and by the statistics of the batch (Ioffe and Szegedy 2015).

All in fp32, one rounding per operation, from left to right as written.
"""

from __future__ import annotations

import numpy as np

from dlc_backend_s2train.numerics.operands import Array, Mode, OperandError, of_channels


def parameters(bn: Array, x: Array) -> tuple[Array, Array, Array, Array]:
    """Mean, 1/std, scale and shift out of bn[4, C], each ready to broadcast over x[n, C, …]."""
    rows = _rows(bn, 4, x, "mean, 1/std, scale, shift")
    return rows[0], rows[1], rows[2], rows[3]


def normalized(x: Array, bn: Array) -> Array:
    """(x - mean)·rstd·scale + shift."""
    mean, rstd, scale, shift = parameters(bn, x)
    return (x - mean) * rstd * scale + shift


def standing(running: Array, epsilon: float) -> Array:
    """[2, C] of mean and 1/√(var + epsilon), from running statistics [2, C] of mean and var."""
    if running.ndim != 2 or running.shape[0] != 2:
        raise OperandError(f"running statistics are [2, channels] of mean and variance, not {running.shape}")
    mean, variance = running
    return np.stack([mean, np.float32(1) / np.sqrt(variance + np.float32(epsilon))])


def gradient(g: Array, bn: Array) -> Array:
    """g·rstd·scale: back through a norm with given parameters."""
    _, rstd, scale, _ = parameters(bn, g)
    return g * rstd * scale


def undone(g: Array, bn: Array) -> Array:
    """g·((1/rstd)/scale): what went back through that norm, before it did."""
    _, rstd, scale, _ = parameters(bn, g)
    return g * (np.float32(1) / rstd / scale)


def batch_statistics(x: Array, epsilon: float, mode: Mode) -> tuple[Array, Array]:
    """Per channel of x[n, C, …]: [2, C] of mean and 1/√(var + epsilon), and the biased variance [C].

    Two passes: first the mean, then the mean of (x - mean)². Sums in the order of sample, row and column.
    """
    rows = _by_channel(x)
    count = np.float32(rows.shape[0])
    mean = _sum(rows, mode) / count
    centred = rows - mean
    variance = _sum(centred * centred, mode) / count
    rstd = np.float32(1) / np.sqrt(variance + np.float32(epsilon))
    return np.stack([mean, rstd]), variance


def batch_normalized(x: Array, statistics: Array, bn: Array) -> Array:
    """(x - mean)·rstd·scale + shift with the batch's mean and rstd, scale and shift of bn[4, C]."""
    _, _, scale, shift = parameters(bn, x)
    mean, rstd = _rows(statistics, 2, x, "mean, 1/std")
    return (x - mean) * rstd * scale + shift


def batch_gradient(g: Array, x: Array, statistics: Array, bn: Array, mode: Mode) -> tuple[Array, Array]:
    """dx = scale·rstd·(g - mean(g) - x̂·mean(g·x̂)) and [2, C] of d scale = Σ g·x̂, d shift = Σ g."""
    _, _, scale, _ = parameters(bn, x)
    mean, rstd = _rows(statistics, 2, x, "mean, 1/std")
    standard = (x - mean) * rstd
    shift_gradient = _sum(_by_channel(g), mode)
    scale_gradient = _sum(_by_channel(g * standard), mode)
    count = np.float32(x.size // x.shape[1])
    mean_g, mean_gx = (of_channels(v / count, x.ndim) for v in (shift_gradient, scale_gradient))
    dx = scale * rstd * (g - mean_g - standard * mean_gx)
    return dx, np.stack([scale_gradient, shift_gradient])


def moved(running: Array, batch_mean: Array, batch_variance: Array, momentum: float) -> Array:
    """momentum·running + (1 - momentum)·batch of [2, C] mean and biased variance, as ONNX BatchNormalization 15."""
    batch = np.stack([batch_mean, batch_variance])
    if running.shape != batch.shape:
        raise OperandError(f"running statistics are {running.shape}, those of the batch {batch.shape}")
    return running * np.float32(momentum) + batch * np.float32(1.0 - momentum)


def _rows(bn: Array, count: int, x: Array, names: str) -> list[Array]:
    if x.ndim < 2 or bn.shape != (count, x.shape[1]):
        raise OperandError(f"a norm of {x.shape} has [{count}, channels] of {names}, not {bn.shape}")
    return [of_channels(row, x.ndim) for row in bn]


def _by_channel(x: Array) -> Array:
    """x[n, C, …] as [everything else, C], rows in the order in which they are added."""
    if x.ndim < 2 or not x.size:
        raise OperandError(f"a batch of {x.shape} has no statistics")
    return np.moveaxis(x, 1, -1).reshape(-1, x.shape[1])


def _sum(rows: Array, mode: Mode) -> Array:
    if mode == "fast":
        return rows.sum(axis=0, dtype=np.float32)
    # accumulate, other than a sum, promises its order.
    return np.add.accumulate(rows, axis=0, dtype=np.float32)[-1]
