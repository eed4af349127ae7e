"""An instruction with the values of its operands, and functions of the pages `docs/s2train*.md` that several use."""

from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
HIGH, LOW = 0.6931471803691238, 1.9082149292705877e-10
single = np.float32


@dataclass
class Shape:
    """A record of GEOM."""

    n: int
    ci: int
    co: int
    hi: int
    wi: int
    ho: int
    wo: int
    kh: int
    kw: int
    stride: tuple[int, int]
    pads: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    pool: tuple[int, int, int]
    channels: tuple[int, int]
    samples: tuple[int, int]

    @classmethod
    def of(cls, record: Any) -> Self:
        """From its numbers; with samples, n is how many they are."""
        r: list[int] = list(record)
        stride, pads, dilation = (r[9], r[10]), (r[11], r[12]), (r[15], r[16])
        pool, channels, samples = (r[18], r[19], r[20]), (r[21], r[22]), (r[23], r[24])
        n, ci, co, hi, wi, ho, wo, kh, kw = r[:9]
        n = samples[1] - samples[0] or n
        return cls(n, ci, co, hi, wi, ho, wo, kh, kw, stride, pads, dilation, r[17], pool, channels, samples)


@dataclass
class Numbers:
    """A record of HYPR."""

    rate: float = 0.0
    momentum: float = 0.0
    decay: float = 0.0
    scale: float = 1.0
    threshold: float = 0.0
    keep: float = 1.0
    epsilon: float = 0.0
    seed: int = 0
    nesterov: int = 0
    growth: int = 0

    @property
    def factor(self) -> Any:
        """Of what dropout keeps."""
        return single(1.0 / (1.0 - (1.0 - self.keep)) if self.keep else 0.0)


@dataclass
class Operation:
    """An instruction with the values of its operands."""

    opcode: int
    stage: int
    splitting: int
    flags: int
    shape: Shape | None
    numbers: Numbers
    run: int
    first: int
    given: dict[str, Array]

    @property
    def g(self) -> Shape:
        """The geometry."""
        assert self.shape
        return self.shape


def shifted(x: Array, at: tuple[int, int], step: tuple[int, int], extent: tuple[int, ...]) -> Array:
    """x[n, c, i·step + at] for all i below the extent, zeros outside."""
    found = np.zeros((*x.shape[:2], *extent), single)
    for i, j in np.ndindex(*extent):
        row, column = i * step[0] + at[0], j * step[1] + at[1]
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            found[:, :, i, j] = x[:, :, row, column]
    return found


def rows(bn: Array, like: Array) -> Array:
    """Rows of a norm's parameters or statistics, one number for each channel."""
    return bn.reshape(len(bn), 1, -1, *(1,) * (like.ndim - 2))


def channel_sums(x: Array) -> Array:
    """Sums over samples, rows and columns, in this order."""
    total = np.zeros(x.shape[1], single)
    for row in np.moveaxis(x, 1, -1).reshape(-1, x.shape[1]):
        total += row
    return total


def exponential(z: Array) -> Array:
    z = np.maximum(z.astype(np.float64), -200.0)
    k = np.rint(z * 1.4426950408889634)
    r, total = (z - k * HIGH) - k * LOW, np.zeros_like(z)
    for i in range(14, -1, -1):
        total = total * r + 1.0 / prod(range(1, i + 1))
    return np.ldexp(total, k.astype(int)).astype(single)


def logarithm(s: Array) -> Array:
    f, k = np.frexp(s.astype(np.float64))
    low = f < 0.5**0.5
    f, k = np.where(low, f * 2, f), k - low
    u, total = (f - 1) / (f + 1), np.zeros_like(f)
    for i in range(12, -1, -1):
        total = total * (u * u) + 2.0 / (2 * i + 1)
    return (k * HIGH + (k * LOW + u * total)).astype(single)


def words(o: Operation, shape: tuple[int, ...]) -> Array:
    """Words of the elements from `first` on, as fp64."""
    mask, found = (1 << 32) - 1, list[int]()
    for place in range(o.first, o.first + prod(shape)):
        a, b, c, d = place & mask, place >> 32, o.run & mask, 0
        k, m = o.numbers.seed & mask, o.numbers.seed >> 32
        for _ in range(10):
            p, q = a * 0xD2511F53, c * 0xCD9E8D57
            a, b, c, d = q >> 32 ^ b ^ k, q & mask, p >> 32 ^ d ^ m, p & mask
            k, m = k + 0x9E3779B9 & mask, m + 0xBB67AE85 & mask
        found.append(a)
    return np.array(found, np.float64).reshape(shape)
