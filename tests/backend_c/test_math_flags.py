"""Helpers keep their results under flags by which a user's program gives up NaN, or sums in the order as written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled
from tests.tools import COMPILERS

FLAGS = (
    ("-ffast-math",),
    ("-funsafe-math-optimizations",),
    ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"),
    ("-ffinite-math-only",),
)
VALUES = (
    "exp(p0[i])",
    "tanh(p0[i])",
    "erf(p0[i])",
    "max(p0[i], p1[i])",
    "sign(p0[i])",
    "round(p0[i])",
    "p0[i] % p1[i]",
)
CASTS = ("i32(p0[i])", "i64(p0[i])", "u8(min(max(p0[i], 0.0), 255.0))")
NARROW = ("f16(p0[i])", "bf16(p0[i])", "f8e4m3fn(p0[i])", "f8e5m2(p0[i])")
SIZE = 37
KERNELS = [
    *(f"kernel (f32[{SIZE}], f32[{SIZE}]) -> (f32[{SIZE}]) {{ r0[i] = {v} }}" for v in VALUES),
    *(f"kernel (f32[{SIZE}]) -> ({v.partition('(')[0]}[{SIZE}]) {{ r0[i] = {v} }}" for v in (*CASTS, *NARROW)),
]
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -3e38, 65519.0, 300.0)


@pytest.mark.parametrize("flags", FLAGS, ids=lambda f: f[0])
@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", [GENERIC, target_for("native")], ids=["generic", "native"])
def test_helpers(target: CTarget, cc: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    kernels = [parse_kernel(text) for text in KERNELS]
    compiled = Compiled(kernels, target, tmp_path, cc, ("-O2", *flags))
    rng = np.random.default_rng(0)
    a, b = (4 * rng.standard_normal(SIZE).astype(np.float32) for _ in range(2))
    a[: len(SPECIAL)] = SPECIAL
    for n, kernel in enumerate(kernels):
        args = (a, b)[: len(kernel.params)]
        (got,), (want,) = compiled(n, args), run_kernel(kernel, args)
        if not kernel.results[0].dtype.is_float:
            assert np.array_equal(got, want), KERNELS[n]
            continue
        got, want = got.astype(np.float32), want.astype(np.float32)
        assert np.array_equal(np.isnan(got), np.isnan(want)), f"{KERNELS[n]}: {got} instead of {want}"
        tiny = np.abs(want) < 1.2e-38  # linking with these flags may flush them, in the whole process
        assert np.array_equal(np.signbit(got), np.signbit(want)) or np.isnan(want).any(), KERNELS[n]
        np.testing.assert_allclose(got[~tiny], want[~tiny], rtol=3e-6, atol=0, err_msg=KERNELS[n])
