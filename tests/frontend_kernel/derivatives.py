"""Derivatives of the brute-force interpreter: by the complex step, and by central differences.

One run gives all of them: every element of an input is a row of numpy values, each with another perturbation.
`Im f(x + ih) / h` is the derivative to rounding error, because nothing is subtracted (Squire and Trapp, SIAM Review
40(1), 1998); central differences share no idea with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.frontend_kernel.brute_force import run
from tests.frontend_kernel.small_language import Case

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[str, Sequence[float]]

COMPLEX_STEP = 1e-30
CENTRAL_STEP = 1e-4


@dataclass(frozen=True)
class Gradients:
    """What a scalar, the outputs weighted and summed, changes by with every element of the inputs asked for."""

    exact: Mapping[str, Array]
    """By the complex step."""
    central: Mapping[str, Array]
    """By central differences."""


def gradients(case: Case, values: Values, seeds: Values, wrt: Sequence[str]) -> Gradients:
    """Gradients of `Σ seeds · outputs`, each of its input's shape."""
    sizes = {name: len(values[name]) for name in wrt}
    count = sum(sizes.values())
    given: dict[str, Sequence[Any]] = dict(values)
    start = 0
    for name, size in sizes.items():
        rows = np.repeat(np.asarray(values[name], np.complex128)[:, None], 3 * count, axis=1)
        for n in range(size):
            at = start + n
            rows[n, at] += 1j * COMPLEX_STEP
            rows[n, count + at] += CENTRAL_STEP
            rows[n, 2 * count + at] -= CENTRAL_STEP
        given[name] = list(rows)
        start += size
    scalar = weighted(run(case, given), seeds) + np.zeros(3 * count, np.complex128)
    exact = scalar[:count].imag / COMPLEX_STEP
    central = (scalar[count : 2 * count] - scalar[2 * count :]).real / (2 * CENTRAL_STEP)
    return Gradients(_shaped(case, exact, sizes), _shaped(case, central, sizes))


def second_order(case: Case, values: Values, seeds: Values, direction: Values, wrt: Sequence[str]) -> dict[str, Array]:
    """The Hessian of `Σ seeds · outputs` over the inputs `wrt`, times a direction: differences of exact gradients."""

    def at(sign: int) -> Mapping[str, Array]:
        moved = dict(values)
        for name in wrt:
            pairs = zip(values[name], direction[name], strict=True)
            moved[name] = [v + sign * CENTRAL_STEP * u for v, u in pairs]
        return gradients(case, moved, seeds, wrt).exact

    high, low = at(1), at(-1)
    return {name: (high[name] - low[name]) / (2 * CENTRAL_STEP) for name in wrt}


def weighted(outputs: Mapping[str, Sequence[Any]], seeds: Values) -> Any:
    """`Σ seeds · outputs`."""
    return sum(w * v for name, out in outputs.items() for w, v in zip(seeds[name], out, strict=True))


def _shaped(case: Case, flat: Array, sizes: Mapping[str, int]) -> dict[str, Array]:
    shapes, found, start = case.shapes, dict[str, Array](), 0
    for name, size in sizes.items():
        found[name] = flat[start : start + size].reshape(shapes[name])
        assert size == math.prod(shapes[name])
        start += size
    return found
