"""The post-processing unit: what happens to a sum before it is stored.

Forward   norm → + residual → relu → round → mask → max-pool → dropout
Backward  pool → + residual → dropout → mask → (dst1) → norm, norm 2

The order is that of the published control word (section 1.6); dropout is an addition. Masks select: what they leave
out is 0 even where it is infinite.
"""

from __future__ import annotations

import numpy as np

from dlc_backend_s2train.codes import Flag
from dlc_backend_s2train.numerics import draws, norm
from dlc_backend_s2train.numerics.half import rounded
from dlc_backend_s2train.numerics.operands import Array, OperandError, Operands, Results


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
        bits = draws.kept(y.shape, given.hyper.keep, given.hyper.seed, given.run, given.first)
        results["aux"] = bits
        y = draws.dropped_out(y, bits, given.hyper.keep)
    results["dst0"] = y
    return results


def normalized(y: Array, given: Operands) -> Array:
    """The norm of `bn0`, with running statistics where `bn1` has some."""
    if "bn1" not in given.values:
        return norm.normalized(y, given.get("bn0"))
    statistics = norm.standing(given.get("bn1"), given.hyper.epsilon)
    return norm.batch_normalized(y, statistics, given.get("bn0"))


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
        g = g + norm.undone(given.fit("res", g.shape), given.get("bn1"))
    if Flag.DROPOUT in flags:
        g = draws.dropped_out(g, given.fit("aux", g.shape, "bit"), given.hyper.keep)
    if Flag.MASK_READ in flags:
        g = np.where(given.fit("mask", g.shape, "bit"), g, np.float32(0))
    if Flag.BN_TRAIN in flags:
        x, statistics, bn = given.fit("src1", g.shape), given.get("bn1"), given.get("bn0")
        results["dst0"], results["dst1"] = norm.batch_gradient(g, x, statistics, bn, given.mode)
        return results
    results["dst0"] = norm.gradient(g, given.get("bn0")) if Flag.BN_BACKWARD in flags else g
    if Flag.BN_BACKWARD_2 in flags:
        results["dst1"] = norm.gradient(g, given.get("bn1"))
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
        raise OperandError(f"pointer {int(pointers.max())} names no place of {window} x {window}")
    tiles = np.where(pointers[..., None] == taps, g[..., None], np.float32(0))
    tiles = tiles.reshape(n, c, h, w, window, window).swapaxes(3, 4)
    return tiles.reshape(n, c, h * window, w * window)


def _map(x: Array) -> tuple[int, int, int, int]:
    if x.ndim != 4:
        raise OperandError(f"a pool works on [n, channels, rows, columns], not on {x.shape}")
    n, c, h, w = x.shape
    return n, c, h, w
