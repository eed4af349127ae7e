"""A model as a Python program. It needs NumPy only.

    python program.py inputs.npz outputs.npz

Each kernel is a list of statements `for axes, where guard: out[index] (reduce)= value`. Inner axes are arrays that
broadcast against each other, so that one line of NumPy runs the whole statement; outer axes are loops where the arrays
would become too large.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def grid(*extents: int) -> tuple[Array, ...]:
    """One array per axis, shaped to broadcast."""
    return np.ix_(*(np.arange(n) for n in extents))


def at(tensor: Array, *index: Any) -> Array:
    """Elements of a tensor; indices outside it occur at points that a guard leaves out only."""
    if not tensor.size:
        return np.zeros((), tensor.dtype)
    return tensor[tuple(np.clip(i, 0, n - 1) for i, n in zip(index, tensor.shape, strict=True))]


def store(
    out: Array, index: tuple[Any, ...], value: Any, shape: tuple[int, ...], where: Any = True, combine: Any = None
) -> None:
    """out[index] = value where the guard holds, or what is there combined with it by a ufunc."""
    keep = np.broadcast_to(where, shape)
    places = tuple(np.broadcast_to(i, shape)[keep] for i in index)
    values = np.broadcast_to(value, shape)[keep]
    if not index:  # a single number; ufunc.at wants subscripts
        out, places = out.reshape(1), (np.zeros(values.shape, np.int64),)
    if combine is None:
        out[places] = values
    else:
        combine.at(out, places, values)


def erf(x: Array) -> Array:
    """The error function."""
    table = np.vectorize(math.erf, otypes=[np.float64])
    return table(x).astype(x.dtype) if x.size else x


def truncdiv(a: Array, b: Array) -> Array:
    """Integer division that rounds toward zero."""
    quotient = np.floor_divide(a, b)
    return np.where((np.remainder(a, b) != 0) & ((a < 0) != (b < 0)), quotient + 1, quotient)


def shl(a: Array, b: Array) -> Array:
    """Bits moved to the left; beyond the width all are gone."""
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(inside, a << np.where(inside, b, 0).astype(b.dtype), 0).astype(a.dtype)


def shr(a: Array, b: Array) -> Array:
    """Bits moved to the right; beyond the width the sign is left."""
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(inside, a >> np.where(inside, b, 0).astype(b.dtype), np.where(a < 0, -1, 0)).astype(a.dtype)


def pow(a: Array, b: Array) -> Array:
    """Powers; of integers with negative exponents the whole part, where NumPy raises, and 0 for those of 0."""
    a, b = np.asarray(a), np.asarray(b)
    if np.result_type(a, b).kind != "i":
        return np.power(a, b)
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, unit, np.power(a, np.maximum(b, 0)))


def main(run: Callable[..., tuple[Array, ...]], inputs: list[str], outputs: list[str]) -> None:
    """Read inputs from one file, write outputs to another."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} inputs.npz outputs.npz   (arrays: {', '.join(inputs)})")
    given = np.load(sys.argv[1])
    outcome: Any = dict(zip(outputs, run(*(given[name] for name in inputs)), strict=True))
    np.savez(sys.argv[2], **outcome)
