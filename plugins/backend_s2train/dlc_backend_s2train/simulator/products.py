"""Products and their sums: convolutions in all three stages of training; linear layers are those of 1 x 1 maps. Pools.

One sum of products per element, in fp32. The order, which `bit-true` keeps (every partial sum rounded):

    forward          kernel row, input channel, kernel column
    backward         the same over output channels, with the kernel rotated by 180 degrees and dy's rows and columns
                     spread by the stride
    weight gradient  sample, row of dy, column of dy

Zeros of padding and spreading are factors like others. Products of two fp16 are exact in fp32. A sum begins with the
partial sum that comes in, else with +0. The published dataflow of S2Train, section 4.1: dX is a stride-1 convolution.

|y - exact| ≤ 2⁻¹¹·|y| + n·2⁻²⁴·Σ|x·w| for n products when y is stored as fp16 (`bound`), in either mode.

Pools are those that the post-processing unit cannot do: overlapping or padded windows, and averages. Their sums are in
the order of taps, row-major, in both directions; a window's average is over its elements inside the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from dlc_backend_s2train.program import Geometry
from dlc_backend_s2train.simulator.operands import Array, Mode, OperandError, room

_CHUNK: Final = 1 << 23
"""Elements of windows that are laid out at once for a matrix product."""
_BLOCK: Final = 1 << 15
"""Sums that `bit-true` works on at once, so that they stay in a processor's cache."""


def bound(y: Array, magnitude: Array, products: int) -> Array:
    """By how much a stored fp16 sum of `products` products may differ from the exact sum.

    2⁻¹¹·|y| + n·2⁻²⁴·Σ|x·w| + 2⁻²⁵: the rounding to fp16, the rounding of n fp32 partial sums of at most Σ|x·w|
    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 4.2, to first order), half an fp16
    subnormal.
    """
    return 2.0**-11 * np.abs(y) + (products * 2.0**-24 * 1.0625) * magnitude + 2.0**-25


def forward(x: Array, w: Array, g: Geometry, start: Array | None, mode: Mode) -> Array:
    """x fp32[n, ci, hi, wi], w fp32[co, ci / groups, kh, kw] → fp32[n, co, ho, wo], on top of `start`."""
    pads, extent = (g.pads[0], g.pads[1]), _reach(g)
    return _correlated(_framed(x, pads, extent), w, g.groups, g.stride, g.dilation, (g.ho, g.wo), start, mode)


def backward(dy: Array, w: Array, g: Geometry, start: Array | None, mode: Mode) -> Array:
    """dy fp32[n, co, ho, wo], w as forward → dx fp32[n, ci, hi, wi]."""
    (kh, kw), (dh, dw) = w.shape[2:], g.dilation
    each = w.reshape(g.groups, -1, *w.shape[1:])
    rotated = np.ascontiguousarray(each.swapaxes(1, 2)[..., ::-1, ::-1]).reshape(-1, each.shape[1], kh, kw)
    spread = _spread(dy, g.stride)
    pads = (kh - 1) * dh - g.pads[0], (kw - 1) * dw - g.pads[1]
    frame = _framed(spread, pads, (g.hi + (kh - 1) * dh, g.wi + (kw - 1) * dw))
    return _correlated(frame, rotated, g.groups, (1, 1), g.dilation, (g.hi, g.wi), start, mode)


def weight_gradient(dy: Array, x: Array, g: Geometry, start: Array | None, mode: Mode) -> Array:
    """dy fp32[n, co, ho, wo], x fp32[n, ci, hi, wi] → dw fp32[co, ci / groups, kh, kw]."""
    windows = _windows(_framed(x, (g.pads[0], g.pads[1]), _reach(g)), g.groups, (g.kh, g.kw), g.stride, g.dilation)
    n, groups, ci, ho, wo, kh, kw = windows.shape
    d = dy.reshape(n, groups, -1, ho, wo)
    total = _begun(start, (groups, d.shape[2], ci * kh * kw))
    for part in _parts(n, windows[0].size):
        # Laid out by places first: rows of a map are long, those of a kernel are not.
        rows = windows[part].transpose(1, 2, 5, 6, 0, 3, 4).reshape(groups, ci * kh * kw, -1).swapaxes(1, 2)
        _add_products(total, d[part].transpose(1, 0, 3, 4, 2).reshape(groups, rows.shape[1], -1), rows, mode)
    return total.reshape(-1, ci, kh, kw)


def channel_sums(dy: Array, start: Array | None, mode: Mode) -> Array:
    """dy fp32[n, co, …] → fp32[co], the gradient of a bias, in the order of weight gradients."""
    rows = np.moveaxis(dy, 1, -1).reshape(-1, dy.shape[1])
    if mode == "fast":
        total = rows.sum(axis=0, dtype=np.float32)
        return total if start is None else start.reshape(-1) + total
    first = np.zeros(dy.shape[1], np.float32) if start is None else start.reshape(-1)
    # accumulate, other than a sum, promises its order.
    return np.add.accumulate(np.concatenate([first[None], rows]), axis=0, dtype=np.float32)[-1]


def _correlated(
    frame: Array,
    w: Array,
    groups: int,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    out: tuple[int, int],
    start: Array | None,
    mode: Mode,
) -> Array:
    """The sums of a convolution without padding: frame[n, ci, h, w] by w[co, ci / groups, kh, kw]."""
    kh, kw = w.shape[2:]
    windows = _windows(frame, groups, (kh, kw), stride, dilation)
    n, _, ci, *_ = windows.shape
    weights = w.reshape(groups, -1, ci, kh, kw)
    co = weights.shape[1]
    total = _begun(start, (n, groups, co, *out))
    matrix = weights.transpose(0, 3, 2, 4, 1).reshape(groups, -1, co)
    for part in _parts(n, windows[0].size):
        columns = windows[part].transpose(1, 5, 2, 6, 0, 3, 4).reshape(groups, matrix.shape[1], -1)
        sums = total[part].transpose(1, 2, 0, 3, 4)
        flat = np.ascontiguousarray(sums).reshape(groups, co, -1)
        _add_products(flat, matrix, columns, mode)
        sums[...] = flat.reshape(sums.shape)
    return total.reshape(n, groups * co, *out)


def _add_products(total: Array, a: Array, b: Array, mode: Mode) -> None:
    """total[g, i, j] += Σ a[g, t, i]·b[g, t, j], in place; `bit-true` adds in the order of t."""
    if mode == "fast":
        total += a.swapaxes(1, 2) @ b
        return
    step = max(1, _BLOCK // b.shape[2])
    product = np.empty((min(step, a.shape[2]), b.shape[2]), np.float32)
    for g in range(a.shape[0]):
        rows = np.ascontiguousarray(b[g])
        for first in range(0, a.shape[2], step):
            sums = total[g, first : first + step]
            scratch = product[: len(sums)]
            for factors, row in zip(np.ascontiguousarray(a[g, :, first : first + step, None]), rows, strict=True):
                np.multiply(factors, row, out=scratch)
                np.add(sums, scratch, out=sums)


def _windows(
    frame: Array, groups: int, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> Array:
    """The windows of frame[n, c, h, w] as a view [n, groups, c / groups, ho, wo, kh, kw]."""
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(frame, span, axis=(2, 3))
    view = view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    n, c, *rest = view.shape
    s = view.strides
    strides = (s[0], s[1] * (c // groups), *s[1:])
    return np.lib.stride_tricks.as_strided(view, (n, groups, c // groups, *rest), strides, writeable=False)


def _parts(n: int, each: int) -> list[slice]:
    """Samples in parts whose windows together are not much memory; one sample's must fit."""
    step = max(1, _CHUNK // max(*room(each), 1))
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


def _reach(g: Geometry) -> tuple[int, int]:
    """Rows and columns, padded ones among them, that the windows of a convolution cover."""
    return (
        (g.ho - 1) * g.stride[0] + (g.kh - 1) * g.dilation[0] + 1,
        (g.wo - 1) * g.stride[1] + (g.kw - 1) * g.dilation[1] + 1,
    )


def _framed(x: Array, pads: tuple[int, int], extent: tuple[int, int]) -> Array:
    """x[n, c, h, w] with pads[0] rows above and pads[1] columns before (negative: left out), cut to the extent."""
    frame = np.zeros(room(*x.shape[:2], *extent), np.float32)
    places: list[tuple[slice, slice]] = []
    for size, pad, reach in zip(x.shape[2:], pads, extent, strict=True):
        low, high = max(0, -pad), min(size, reach - pad)
        places.append((slice(low, max(low, high)), slice(low + pad, max(low, high) + pad)))
    (rows, to_rows), (columns, to_columns) = places
    if rows.stop > rows.start and columns.stop > columns.start:
        frame[:, :, to_rows, to_columns] = x[:, :, rows, columns]
    return frame


def _spread(dy: Array, stride: tuple[int, int]) -> Array:
    """dy with stride - 1 zeros between its rows and columns."""
    if stride == (1, 1):
        return dy
    n, c, h, w = dy.shape
    spread = np.zeros(room(n, c, (h - 1) * stride[0] + 1, (w - 1) * stride[1] + 1), np.float32)
    spread[:, :, :: stride[0], :: stride[1]] = dy
    return spread


def _begun(start: Array | None, shape: tuple[int, ...]) -> Array:
    return np.zeros(room(*shape), np.float32) if start is None else start.reshape(shape).astype(np.float32)


_EMPTY: Final = "a window of the pool holds nothing of the data"
_Places = tuple[slice, slice]


def max_pool(x: Array, g: Geometry) -> tuple[Array, Array]:
    """x[n, C, hi, wi] → y[n, C, ho, wo] and the number of the first maximum's tap (u8); a NaN counts as greatest."""
    y = np.full(room(*x.shape[:2], g.ho, g.wo), -np.inf, np.float32)
    taps = np.zeros(y.shape, np.uint8)
    seen = np.zeros(y.shape[2:], np.bool_)
    for tap, out, into in _taps(g):
        new, old = x[(..., *into)], y[(..., *out)]
        better = (new > old) | (np.isnan(new) & ~np.isnan(old)) | ~seen[out]
        y[(..., *out)] = np.where(better, new, old)
        taps[(..., *out)] = np.where(better, np.uint8(tap), taps[(..., *out)])
        seen[out] = True
    if not seen.all():
        raise OperandError(_EMPTY)
    return y, taps


def max_pool_gradient(dy: Array, taps: Array, g: Geometry) -> Array:
    """dy[n, C, ho, wo] → dx[n, C, hi, wi]: each gradient to the tap that was greatest."""
    dx = np.zeros(room(*dy.shape[:2], g.hi, g.wi), np.float32)
    for tap, out, into in _taps(g):
        dx[(..., *into)] += np.where(taps[(..., *out)] == tap, dy[(..., *out)], np.float32(0))
    return dx


def average_pool(x: Array, g: Geometry) -> Array:
    """x[n, C, hi, wi] → y[n, C, ho, wo]."""
    y = np.zeros(room(*x.shape[:2], g.ho, g.wo), np.float32)
    for _, out, into in _taps(g):
        y[(..., *out)] += x[(..., *into)]
    return y / _counts(g)


def average_pool_gradient(dy: Array, g: Geometry) -> Array:
    """dy[n, C, ho, wo] → dx[n, C, hi, wi]."""
    shares = dy / _counts(g)
    dx = np.zeros(room(*dy.shape[:2], g.hi, g.wi), np.float32)
    for _, out, into in _taps(g):
        dx[(..., *into)] += shares[(..., *out)]
    return dx


def _taps(g: Geometry) -> Iterator[tuple[int, _Places, _Places]]:
    """Number of each tap, the windows in which it lies inside the data, and where it lies there."""
    window, stride, pad = g.pool
    if not 1 <= window <= min(g.hi, g.wi) + 2 * pad or stride < 1 or not 0 <= pad < window:
        raise OperandError(f"a pool of window {window}, stride {stride}, pad {pad} does not fit {g.hi} x {g.wi}")
    for tap in range(window * window):
        rows = _range(tap // window - pad, stride, g.hi, g.ho)
        columns = _range(tap % window - pad, stride, g.wi, g.wo)
        if rows is not None and columns is not None:
            yield tap, (rows[0], columns[0]), (rows[1], columns[1])


def _range(shift: int, stride: int, size: int, count: int) -> tuple[slice, slice] | None:
    """Windows i for which i·stride + shift is in the data, and those places."""
    low = max(0, -(shift // stride))
    high = min(count, (size - 1 - shift) // stride + 1)
    if low >= high:
        return None
    begin = low * stride + shift
    return slice(low, high), slice(begin, begin + (high - low - 1) * stride + 1, stride)


def _counts(g: Geometry) -> Array:
    """How many elements of the data each window holds."""
    counts = np.zeros(room(g.ho, g.wo), np.float32)
    for _, out, _ in _taps(g):
        counts[out] += 1
    if not counts.all():
        raise OperandError(_EMPTY)
    return counts
