"""Random bits, exp, log and the softmax made of them: what would differ between machines if a library computed it.

Random bits are functions of a seed, the number of the run and an element's place, so that no order matters. They are
those of `dlc.ops.random` with the run as step, stream 0: what dropout keeps is what dlc's other backends keep. exp and
log consist of additions and multiplications alone. Softmax is the published `softmax` stage, section 4.6.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dlc.ops.random import random_words, scale_of
from dlc_backend_s2train.simulator.operands import Array, OperandError

_WORDS: Final = 1 << 32
_CHUNK: Final = 1 << 16


def drawn(shape: tuple[int, ...], seed: int, run: int, first: int = 0) -> Array:
    """u32 words as fp64 of `shape`, those of the elements from number `first` on."""
    result = np.empty(math.prod(shape), np.float64)
    for low in range(0, result.size, _CHUNK):
        high = min(low + _CHUNK, result.size)
        result[low:high] = random_words(np.arange(first + low, first + high, dtype=np.uint64), seed, run, 0)
    return result.reshape(shape)


def kept(shape: tuple[int, ...], keep: float, seed: int, run: int, first: int = 0) -> Array:
    """bool of `shape`: which elements dropout keeps, each with probability `keep`."""
    return drawn(shape, seed, run, first) >= round((1.0 - _probability(keep)) * _WORDS)


def dropped_out(x: Array, bits: Array, keep: float) -> Array:
    """x · bit / keep; an infinite x that is dropped is 0 all the same."""
    scale = np.float32(scale_of(1.0 - _probability(keep)))
    return np.where(bits, x * scale, np.float32(0))


def pruned(g: Array, threshold: float, seed: int, run: int, first: int = 0) -> Array:
    """|g| < t becomes sign(g)·t with probability |g| / t, else 0: the mean stays (Ye et al., SparseTrain, DAC 2020)."""
    t = np.float32(threshold)
    if not t > 0:
        return g
    # Both sides are exact or one fp64 rounding away: the same comparison on every machine.
    promoted = drawn(g.shape, seed, run, first) / _WORDS < np.abs(g.astype(np.float64)) / np.float64(t)
    small = np.where(promoted, np.copysign(t, g), np.float32(0))
    return np.where(np.abs(g) < t, small, g)


def _probability(keep: float) -> float:
    if not 0.0 <= keep <= 1.0:
        raise OperandError(f"dropout keeps an element with a probability in [0, 1], not {keep}")
    return keep


_LN2_HIGH: Final = 0.6931471803691238
"""The upper 32 bits of ln 2: an exponent times it is exact."""
_LN2_LOW: Final = 1.9082149292705877e-10
_EXP: Final = tuple(1.0 / math.factorial(n) for n in range(14, -1, -1))
"""Taylor's series; the remainder for |r| ≤ ln 2 / 2 is below 2⁻⁶⁰."""
_LOG: Final = tuple(2.0 / n for n in range(25, 0, -2))
"""Of artanh, doubled; the remainder for |f| ≤ 0.172 is below 2⁻⁶⁰."""


def exp(x: Array) -> Array:
    """fp32 e^x of fp32 x ≤ 0: computed in fp64 to about 2⁻⁵⁰, then rounded once. NaN stays."""
    wide = np.maximum(x.astype(np.float64), -200.0)  # NaN passes; below -104 fp32 has only 0
    whole = np.rint(np.where(np.isnan(wide), 0.0, wide) * math.log2(math.e))
    r = (wide - whole * _LN2_HIGH) - whole * _LN2_LOW
    return np.ldexp(_horner(_EXP, r), whole.astype(np.int32)).astype(np.float32)


def log(x: Array) -> Array:
    """fp32 ln x of finite fp32 x > 0, computed likewise; NaN and infinity stay."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    low = mantissa < math.sqrt(0.5)
    mantissa, exponent = np.where(low, mantissa * 2.0, mantissa), exponent - low
    f = (mantissa - 1.0) / (mantissa + 1.0)
    series = f * _horner(_LOG, f * f)
    y = exponent * _LN2_HIGH + (exponent * _LN2_LOW + series)
    return np.where(np.isposinf(x), x, y.astype(np.float32))


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def softmax(logits: Array) -> Array:
    """logits fp32[n, K] → the probabilities of each row, fp32; the sums ascend by class in either mode."""
    if not all(logits.shape):
        raise OperandError(f"logits of {logits.shape} have no softmax")
    powers = exp(logits - logits.max(axis=1, keepdims=True))
    total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
    return powers / total


def softmax_cross_entropy(logits: Array, labels: Array, scale: float) -> tuple[Array, Array]:
    """logits fp32[n, K], labels i32[n] → scale·(softmax - onehot)/m fp32[n, K], mean loss of m samples fp32[1].

    m counts the samples whose label is not negative; the others have the gradient 0. Without any the loss is NaN. Sums
    ascend by class, then by sample, in either mode.
    """
    n, classes = logits.shape
    if not n or not classes:
        raise OperandError(f"logits of {logits.shape} have no loss")
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        sample = int(wrong[0])
        raise OperandError(f"label {int(labels[sample])} of sample {sample} is not a class of {classes}")
    counts = labels >= 0
    count = int(counts.sum())
    rows, labels = np.arange(labels.size), np.where(counts, labels, 0)
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = exp(shifted)
    total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
    losses = np.where(counts, log(total[:, 0]) - shifted[rows, labels], np.float32(0))
    mean = np.add.accumulate(losses, dtype=np.float32)[-1:] / np.float32(count)
    gradient = powers / total
    gradient[rows, labels] -= np.float32(1)
    return np.where(counts[:, None], gradient * np.float32(scale / max(count, 1)), np.float32(0)), mean
