"""The post-processing unit: what happens to a sum before it is stored, and the norms that are a part of it.

Forward   norm → + residual → relu → round → mask → max-pool → dropout
Backward  pool → + residual → dropout → mask → (dst1) → norm, norm 2

The order is that of the published control word (section 1.6); dropout is an addition. Masks select: what they leave
out is 0 even where it is infinite. Norms are those with given parameters, and those by the statistics of the batch
(Ioffe and Szegedy 2015). All is fp32, one rounding per operation, from left to right as written.
"""

from __future__ import annotations

import numpy as np

from dlc_backend_s2train.codes import Flag
from dlc_backend_s2train.isa.instruction_set import THREE_NORMS
from dlc_backend_s2train.simulator import reproducible
from dlc_backend_s2train.simulator.operands import Array, Mode, OperandError, Operands, Results, of_channels, rounded


def norm_parameters(bn: Array, x: Array) -> tuple[Array, Array, Array, Array]:
    """Mean, 1/std, scale and shift out of bn[4, C], each ready to broadcast over x[n, C, …]."""
    rows = _rows(bn, 4, x, "mean, 1/std, scale, shift")
    return rows[0], rows[1], rows[2], rows[3]


def norm_forward(x: Array, bn: Array) -> Array:
    """(x - mean)·rstd·scale + shift."""
    mean, rstd, scale, shift = norm_parameters(bn, x)
    return (x - mean) * rstd * scale + shift


def standing_statistics(running: Array, epsilon: float) -> Array:
    """[2, C] of mean and 1/√(var + epsilon), from running statistics [2, C] of mean and var."""
    if running.ndim != 2 or running.shape[0] != 2:
        raise OperandError(f"running statistics are [2, channels] of mean and variance, not {running.shape}")
    mean, variance = running
    return np.stack([mean, np.float32(1) / np.sqrt(variance + np.float32(epsilon))])


def norm_backward(g: Array, bn: Array) -> Array:
    """g·rstd·scale: back through a norm with given parameters."""
    _, rstd, scale, _ = norm_parameters(bn, g)
    return g * rstd * scale


def norm_undone(g: Array, bn: Array) -> Array:
    """g·((1/rstd)/scale): what went back through that norm, before it did."""
    _, rstd, scale, _ = norm_parameters(bn, g)
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
    _, _, scale, shift = norm_parameters(bn, x)
    mean, rstd = _rows(statistics, 2, x, "mean, 1/std")
    return (x - mean) * rstd * scale + shift


def batch_gradient(g: Array, x: Array, statistics: Array, bn: Array, mode: Mode) -> tuple[Array, Array]:
    """dx = scale·rstd·(g - mean(g) - x̂·mean(g·x̂)) and [2, C] of d scale = Σ g·x̂, d shift = Σ g."""
    _, _, scale, _ = norm_parameters(bn, x)
    mean, rstd = _rows(statistics, 2, x, "mean, 1/std")
    standard = (x - mean) * rstd
    shift_gradient = _sum(_by_channel(g), mode)
    scale_gradient = _sum(_by_channel(g * standard), mode)
    count = np.float32(x.size // x.shape[1])
    mean_g, mean_gx = (of_channels(v / count, x.ndim) for v in (shift_gradient, scale_gradient))
    dx = scale * rstd * (g - mean_g - standard * mean_gx)
    return dx, np.stack([scale_gradient, shift_gradient])


def moved_statistics(running: Array, batch_mean: Array, batch_variance: Array, momentum: float) -> Array:
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


def pool_window(flags: Flag) -> int:
    """Side of the unit's max-pool: 4, 2, or 1 where there is none."""
    if Flag.POOL_4 in flags:
        return 4
    return 2 if Flag.POOL_2 in flags else 1


def post_forward(acc: Array, given: Operands) -> Results:
    """acc fp32[n, C, …] → dst0, and mask, ptr and the bits of dropout where flags ask for them."""
    flags = given.flags
    results: Results = {}
    y = acc
    if Flag.BN_FORWARD in flags:
        y = normalized(y, given)
    if Flag.ADD in flags:
        y = y + given.fit("res", y.shape)
    if Flag.RELU in flags:
        y = np.where(y <= 0, np.float32(0), y)  # NaN stays, -0 becomes +0
    y = rounded(y)
    if Flag.MASK_WRITE in flags:
        results["mask"] = y > 0
    if (window := pool_window(flags)) > 1:
        y, pointers = max_pooled(y, window)
        if Flag.POINTER_WRITE in flags:
            results["ptr"] = pointers
    if Flag.DROPOUT in flags:
        bits = reproducible.kept(y.shape, given.hyper.keep, given.hyper.seed, given.run, given.first)
        results["aux"] = bits
        y = reproducible.dropped_out(y, bits, given.hyper.keep)
    results["dst0"] = y
    return results


def normalized(y: Array, given: Operands) -> Array:
    """The norm of `bn0`, with running statistics where `bn1` has some."""
    if "bn1" not in given.values:
        return norm_forward(y, given.get("bn0"))
    statistics = standing_statistics(given.get("bn1"), given.hyper.epsilon)
    return batch_normalized(y, statistics, given.get("bn0"))


def post_backward(acc: Array, given: Operands) -> Results:
    """acc fp32[n, C, …] → dst0 and, where there is one, dst1."""
    flags = given.flags
    results: Results = {}
    g = acc
    if Flag.POINTER_READ in flags:
        g = expanded(g, given, pool_window(flags))
    if Flag.ADD in flags:
        g = g + given.fit("res", g.shape)
    elif Flag.ADD_SINGLE in flags:
        g = g + norm_undone(given.fit("res", g.shape), given.get("aux" if THREE_NORMS in flags else "bn1"))
    if Flag.DROPOUT in flags:
        g = reproducible.dropped_out(g, given.fit("aux", g.shape, "bit"), given.hyper.keep)
    if Flag.MASK_READ in flags:
        g = np.where(given.fit("mask", g.shape, "bit"), g, np.float32(0))
    if Flag.BN_TRAIN in flags:
        x, statistics, bn = given.fit("src1", g.shape), given.get("bn1"), given.get("bn0")
        results["dst0"], results["dst1"] = batch_gradient(g, x, statistics, bn, given.mode)
        return results
    results["dst0"] = norm_backward(g, given.get("bn0")) if Flag.BN_BACKWARD in flags else g
    if Flag.BN_BACKWARD_2 in flags:
        results["dst1"] = norm_backward(g, given.get("bn1"))
    elif "dst1" in given.given:
        results["dst1"] = g
    return results


def max_pooled(y: Array, window: int) -> tuple[Array, Array]:
    """y[n, C, h, w] → the maxima of windows side by side, and the number of the first one in row-major order (u8).

    A NaN counts as greater than all numbers, the first one as the maximum.
    """
    n, c, h, w = _map(y)
    if h % window or w % window:
        raise OperandError(f"windows of {window} x {window} do not tile {h} x {w}")
    tiles = y.reshape(n, c, h // window, window, w // window, window).swapaxes(3, 4)
    tiles = tiles.reshape(n, c, h // window, w // window, window * window)
    pointers = np.argmax(tiles, axis=-1)
    return np.take_along_axis(tiles, pointers[..., None], -1)[..., 0], pointers.astype(np.uint8)


def expanded(g: Array, given: Operands, window: int) -> Array:
    """g[n, C, h, w] at the place in each window that `ptr` names, 0 elsewhere: [n, C, h·window, w·window]."""
    n, c, h, w = _map(g)
    pointers = given.fit("ptr", g.shape, "pointer")
    taps = np.arange(window * window, dtype=np.uint8)
    if pointers.size and int(pointers.max()) >= taps.size:
        raise OperandError(f"pointer {int(pointers.max())} is not a position of {window} x {window}")
    tiles = np.where(pointers[..., None] == taps, g[..., None], np.float32(0))
    tiles = tiles.reshape(n, c, h, w, window, window).swapaxes(3, 4)
    return tiles.reshape(n, c, h * window, w * window)


def _map(x: Array) -> tuple[int, int, int, int]:
    if x.ndim != 4:
        raise OperandError(f"a pool works on [n, channels, rows, columns], not on {x.shape}")
    n, c, h, w = x.shape
    return n, c, h, w
