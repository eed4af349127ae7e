"""What tests of derivatives share: the adjoint run on arrays, and central differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.gradient.adjoint import adjoint
from dlc.kernel.kernel import Kernel

Array = Any


def pulled(kernel: Kernel, args: Sequence[Array], seeds: Sequence[Array], wrt: Sequence[int]) -> tuple[Array, ...]:
    """The cotangents of parameters by the adjoint kernel."""
    found = adjoint(kernel, wrt)
    return run_kernel(found.kernel, [*(args[k] for k in found.primals), *(seeds[k] for k in found.cotangents)])


def differences(
    kernel: Kernel, args: Sequence[Array], seeds: Sequence[Array], number: int, step: float = 1e-6
) -> Array:
    """Central differences of Σ seeds · results with respect to one parameter."""
    out = np.zeros(args[number].shape)

    def value(x: Array) -> float:
        results = run_kernel(kernel, [*args[:number], x, *args[number + 1 :]])
        return sum(float((r * s).sum()) for r, s in zip(results, seeds, strict=True) if r.dtype.kind == "f")

    for place in np.ndindex(*out.shape):
        above, below = args[number].copy(), args[number].copy()
        above[place] += step
        below[place] -= step
        out[place] = (value(above) - value(below)) / (2 * step)
    return out


def sampled(kernel: Kernel, seed: int, below: int = 3) -> tuple[list[Array], list[Array]]:
    """Arguments (integers from 0 to `below`) and cotangents of the results."""
    rng = np.random.default_rng(seed)

    def values(shape: tuple[int, ...], dtype: Any) -> Array:
        found = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, below, shape)
        return np.asarray(found).astype(dtype)

    args = [values(p.shape, p.dtype.numpy) for p in kernel.params]
    return args, [values(r.shape, r.dtype.numpy) for r in kernel.results]


def check(kernel: Kernel, seed: int = 0, below: int = 3, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    """The adjoint with respect to every parameter of floating point equals central differences."""
    args, seeds = sampled(kernel, seed, below)
    wrt = [k for k, p in enumerate(kernel.params) if p.dtype.is_float]
    for k, got in zip(wrt, pulled(kernel, args, seeds, wrt), strict=True):
        np.testing.assert_allclose(got, differences(kernel, args, seeds, k), rtol=rtol, atol=atol, err_msg=f"p{k}")
