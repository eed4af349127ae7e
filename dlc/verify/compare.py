"""How far two arrays are apart, in every measure that people ask for, and whether that is close enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.base.types import Array, dtype_of_numpy, in_compute_type


@dataclass(frozen=True)
class Tolerance:
    """Close enough: |a - b| ≤ absolute + relative · |b|, element by element; integers and booleans must be equal."""

    relative: float
    absolute: float

    def __str__(self) -> str:
        if not self.relative and not self.absolute:
            return "equal"
        return f"|a - b| <= {self.absolute:.3g} + {self.relative:.3g} |b|"


@dataclass(frozen=True)
class Comparison:
    """One output against its reference."""

    name: str
    max_abs: float
    """Largest absolute difference."""
    max_rel: float
    """Largest difference relative to the reference, where that is not zero."""
    max_ulp: int
    """Largest difference in units in the last place of the output's own type; for integers, the difference."""
    cosine: float
    """Cosine of the angle between the two as vectors; 1 for two zero vectors."""
    wrong: int
    """Elements beyond the tolerance, or NaN on one side only."""
    size: int
    """Elements."""
    tolerance: Tolerance
    worst: tuple[int, ...]
    """Index of the largest absolute difference."""

    @property
    def ok(self) -> bool:
        """Whether every element is close enough."""
        return self.wrong == 0


def compare(name: str, got: Array, want: Array, tolerance: Tolerance) -> Comparison:
    """Compare two arrays of equal shape and dtype. Equal infinities and NaN on both sides count as equal."""
    assert got.shape == want.shape, (got.shape, want.shape)
    if not want.size:
        return Comparison(name, 0.0, 0.0, 0, 1.0, 0, 0, tolerance, ())
    exact = in_compute_type(want).dtype.kind in "iub"
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
        broken = np.isnan(difference) | np.isinf(difference)
        relative = np.where(b == 0, 0.0, difference / np.abs(b))
        limit = 0.0 if exact else tolerance.absolute + tolerance.relative * np.abs(b)
        wrong = int(np.count_nonzero(~same & (broken | ~(difference <= limit))))
    shown = np.where(np.isnan(difference), np.inf, difference)
    worst = tuple(int(k) for k in np.unravel_index(int(np.argmax(shown)), shown.shape))
    return Comparison(
        name,
        float(shown.max()),
        float(np.where(np.isnan(relative), np.inf, relative).max()),
        _ulps(got, want, broken),
        _cosine(a, b),
        wrong,
        want.size,
        tolerance,
        worst,
    )


def _ulps(got: Array, want: Array, broken: Array) -> int:
    """Steps between neighbours of the type: floats are ordered like their bit patterns, once negatives are mirrored."""
    kind = in_compute_type(want).dtype.kind
    if kind == "b":
        return int(np.count_nonzero(got != want) > 0)
    if kind in "iu":
        # Through the smaller and the larger of each pair: unsigned differences would wrap.
        a, b = in_compute_type(got), in_compute_type(want)
        return int(np.max(np.maximum(a, b).astype(object) - np.minimum(a, b).astype(object)))
    of = dtype_of_numpy(want.dtype)
    assert of is not None, want.dtype
    sign = 1 << (of.bits - 1 if of.format is None or of.format.signed else of.bits)
    lines: list[Array] = []
    for array in (got, want):
        bits = np.ascontiguousarray(array).view(f"u{of.itemsize}").astype(object if of.itemsize == 8 else np.int64)
        lines.append(np.where(bits >= sign, sign - bits, bits))
    kept = ~(broken | np.isnan(got) | np.isnan(want))
    steps = np.abs(lines[0] - lines[1])[kept]
    return int(steps.max()) if steps.size else 0


def _cosine(a: Array, b: Array) -> float:
    a, b = a.reshape(-1), b.reshape(-1)
    with np.errstate(all="ignore"):
        scale = float(np.linalg.norm(a) * np.linalg.norm(b))
        if scale == 0.0:
            return 1.0 if not a.any() and not b.any() else 0.0
        return float(np.dot(a, b) / scale)
