"""exp and log out of additions and multiplications alone, so that their bits do not depend on a machine's library."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dlc_backend_s2train.numerics.operands import Array

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
