"""Operators on signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dlc.base.extents import larger, shown, smaller
from dlc.graph import Input, Op
from dlc.kernel.define import ShapeError
from dlc.ops.fourier import Dft, Frames
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Reshape
from dlc_frontend_onnx.implied import Choices, exactly, pieces
from dlc_frontend_onnx.node import Array, Node, constant
from dlc_frontend_onnx.ops.choose import along_axis
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count


def _single(node: Node, k: int, what: str) -> int | float:
    found = node.constant(k, what)
    if found.size != 1:
        raise ShapeError(f"{what} has {found.size} elements, not 1")
    return found.reshape(-1)[0].item()


@onnx("DFT", since=17)
def dft_axis_attribute(node: Node) -> Op:
    """Fourier transform along an axis that is an attribute."""
    return _dft(node, node.int("axis", 1))


@onnx("DFT", since=20)
def dft(node: Node) -> Op:
    """Fourier transform along an axis that is an operand, perhaps one that is known at run time."""
    if node.optional(2) is None:
        return _dft(node, -2)
    rank = len(node.x().shape)
    if node.maybe_constant(2) is None and isinstance(node.x(2), Input) and node.declared and node.declared[0]:
        leads = [d for d in range(rank - 1) if _leads(node, d)]
        if leads:
            node.values.assume(node.x(2), [(*leads, *(d - rank for d in leads))])
            return along_axis(node.x(2), rank, leads, lambda d: _dft(node, d))
    return _dft(node, int(_single(node, 2, "the axis")))


def _leads(node: Node, axis: int) -> bool:
    """Whether a transform along this axis has the shape that the model declares."""
    try:
        return _dft(node, axis).shape == node.declared[0]
    except ShapeError:
        return False


def _dft(node: Node, axis: int) -> Op:
    x, inverse, half = node.x(), node.flag("inverse"), node.flag("onesided")
    axis = normalized(axis, len(x.shape))
    if axis == len(x.shape) - 1:
        raise ShapeError(f"a Fourier transform along axis {axis} of {x.type}, which holds the parts of a number")
    extent = x.shape[axis]
    length = 2 * (extent - 1) if inverse and half else extent
    if node.optional(1) is not None:
        length = int(_single(node, 1, "the length of the transform"))
    return _transformed(x, axis, length, inverse, half)


def _transformed(x: Op, axis: int, length: int, inverse: bool, half: bool) -> Op:
    count = length // 2 + 1 if half and not inverse else length
    taken = smaller(x.shape[axis], larger(length, 0))
    check_count(4 * taken * larger(count, 0), f"the table of a transform of length {shown(length)}")
    return Dft(x, axis=axis, length=length, inverse=inverse, half=half)


@onnx("STFT", since=17)
def stft(node: Node) -> Op:
    """Fourier transforms of overlapping pieces of a signal."""
    x, window, half = node.x(), node.optional(2), node.flag("onesided", True)
    if len(x.shape) == 2:
        x = Reshape(x, to=(*x.shape, 1))
    if len(x.shape) != 3:
        raise ShapeError(f"the signal {x.type} must be [batch, length, 1 or 2]")
    length = window.type.size if window is not None else x.shape[1]
    samples, given = x.shape[1], node.optional(3) is not None and node.maybe_constant(3) is None
    if node.optional(3) is not None and not given:
        length = int(_single(node, 3, "the length of a piece"))

    def told(out: tuple[int, ...]) -> tuple[int, int] | None:
        halves = (2 * (out[2] - 1), 2 * out[2] - 1) if half else (out[2],)
        return pieces(samples, out[1], halves if given else (length,)) if len(out) == 4 else None

    def part(k: int, outs: Sequence[tuple[int, ...]]) -> Choices:
        found = told(outs[0])
        return None if found is None else exactly(found[k])

    if given:
        (length,) = node.numbers(3, "the length of a piece", lambda outs: part(1, outs))
    (step,) = node.numbers(1, "the step between pieces", lambda outs: part(0, outs))
    frames = Frames(x, window, length=length, step=step)
    return _transformed(frames, 2, length, inverse=False, half=half)


_WINDOWS: Final[Mapping[str, tuple[float, ...]]] = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Factors of the cosines of 0, 1 and 2 turns, with alternating signs."""


@onnx("HannWindow", "HammingWindow", "BlackmanWindow", since=17)
def window_values(node: Node) -> Op:
    """y[n] = a0 - a1 · cos(2πn / N) + a2 · cos(4πn / N), where N is the size, or one less without `periodic`."""
    (size,) = node.numbers(0, "the size", lambda outs: exactly(*outs[0]))
    check_count(size, "the window")
    turns = np.arange(size) / max(size if node.flag("periodic", True) else size - 1, 1)
    factors = _WINDOWS[node.proto.op_type]
    terms = ((-1) ** k * a * np.cos(2 * np.pi * k * turns) for k, a in enumerate(factors))
    return constant(sum(terms, np.zeros(size)), node.dtype("output_datatype"))


@onnx("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Op:
    """Triangular filters, evenly spaced on the mel scale, over the bins of a spectrum."""
    names = ("number of filters", "length of the transform", "sample rate", "lowest frequency", "highest frequency")
    filters, length, rate, low, high = (_single(node, k, f"the {name}") for k, name in enumerate(names))
    bins = int(length) // 2 + 1
    if not (filters >= 0 and length >= 0 and rate > 0 and 0 <= low <= high < float("inf")):
        raise ShapeError(f"{filters} filters for {length} samples at {rate} Hz from {low} to {high} Hz")
    check_count(bins * int(filters), "the filters")
    dtype = node.dtype("output_datatype")
    lowest, highest = (2595 * np.log10(1 + np.float64(f) / 700) for f in (low, high))
    mels = np.arange(int(filters) + 2) * ((highest - lowest) / (int(filters) + 2)) + lowest
    at = np.floor((int(length) + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate).astype(np.int64)
    if at.max(initial=0) >= bins:
        raise ShapeError(f"a filter at bin {at.max()} of {bins}: the highest frequency is above half the sample rate")
    return constant(_triangles(at, bins), dtype)


def _triangles(at: Array, bins: int) -> Array:
    """Matrix [bins, filters]: filter i rises from bin at[i] to 1 at bin at[i + 1] and falls to 0 at bin at[i + 2]."""
    left, centre, right = at[:-2], at[1:-1], at[2:]
    j = np.arange(bins)[:, None]
    rising = (j - left) / np.maximum(centre - left, 1)
    falling = (right - j) / np.maximum(right - centre, 1)
    filters = np.where((left <= j) & (j < centre), rising, np.where((centre <= j) & (j < right), falling, 0.0))
    return np.where(j == centre, 1.0, filters)
