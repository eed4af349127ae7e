"""exp, tanh and erf of generated C against double precision, over all magnitudes, and where results end."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import X86_64_V4, CTarget, target_for

from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Array, Compiled
from tests.backend_c.test_schedules import TARGETS as NARROW
from tests.tools import COMPILERS

TARGETS = [*NARROW, *([X86_64_V4] if target_for("native").vector_bytes >= 64 else [])]
RELATIVE = {"exp": 1.0e-7, "tanh": 2.0e-7, "erf": 2.0e-7}
"""As dlc_backend_c.vector_math states them."""
PIECES = {"exp": 1.1e-7, "tanh": 1.3e-7, "erf": 1.6e-7}
"""Where functions have pieces, as dlc_backend_c.pieces states them."""
SMALLEST = 2.0**-126
EDGES = (0.0, 88.72, 88.73, 87.3, 103.9, 104.1, 3.99, 4.0, 9.0, 9.1, 1e-30, 1e-38, 3e38, math.inf)
N = 1 << 17


def arguments() -> Array:
    """Of all magnitudes, densely where results change, and of both signs."""
    dense = [np.linspace(0, top, N // 8, dtype=np.float32) for top in (1.5, 4.5, 10.0)]
    sizes = np.geomspace(1e-38, 104, N // 2 - 3 * (N // 8) - len(EDGES), dtype=np.float32)
    x = np.concatenate([*dense, sizes, np.array(EDGES, np.float32)])
    return np.concatenate([x, -x])


def exact(fn: str, x: Array) -> Array:
    with np.errstate(over="ignore"):
        wide = x.astype(np.float64)
        if fn == "erf":
            return np.array([math.erf(v) for v in wide.tolist()])
        return np.exp(wide) if fn == "exp" else np.tanh(wide)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_functions_are_within_their_bounds(target: CTarget, cc: str, tmp_path: Path) -> None:
    x = arguments()
    assert x.size == N
    kernels = [
        parse_kernel(f"kernel(p0: f32[{N}]) -> (r0: f32[{N}]) {{\n i<{N}: r0[i] = {fn}(p0[i])\n}}") for fn in RELATIVE
    ]
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O2"))
    for n, (fn, bound) in enumerate((PIECES if target.vector_bytes >= 64 else RELATIVE).items()):
        (got,) = compiled(n, [x])
        want = exact(fn, x)
        normal = (np.abs(want) >= SMALLEST) & (np.abs(want) < float(np.finfo(np.float32).max))
        assert np.count_nonzero(normal) > N // 3
        error = np.abs(got[normal] / want[normal] - 1)
        assert error.max() <= bound, (fn, x[normal][error.argmax()], error.max())
        # Results that are no normal numbers: tiny ones may be rounded or flushed, large ones are infinite.
        small = np.abs(want) < SMALLEST
        assert np.abs(got[small] - want[small]).max(initial=0) <= SMALLEST, fn
        assert np.isinf(got[np.abs(want) > 3.5e38]).all(), fn
        (nothing,) = compiled(n, [np.full(N, np.nan, np.float32)])
        assert np.isnan(nothing).all(), fn
