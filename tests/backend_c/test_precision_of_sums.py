"""Long sums of single precision against math.fsum: rounding does not grow with all their terms."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import CTarget

from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Array, Compiled
from tests.backend_c.test_schedules import TARGETS
from tests.tools import COMPILERS

# Of terms that are all positive; one after another, 16384 of them are wrong by some 50 units.
UNITS = 14
UNIT = 2.0**-24
SUMS = {
    "columns": ("f32[16384,24]", "f32[24]", " k<16384: r0[i] += p0[k,i]", (0,)),
    "columns, parts that differ": ("f32[5,53,61,9]", "f32[9]", " k<5 m<53 n<61: r0[i] += p0[k,m,n,i]", (0, 1, 2)),
    "short inner axes": ("f32[5001,3,24]", "f32[24]", " k<5001 m<3: r0[i] += p0[k,m,i]", (0, 1)),
    "along memory": ("f32[3,300007]", "f32[3]", " k<300007: r0[i] += p0[i,k]", (1,)),
    "along memory in rows": ("f32[2,3,211,512]", "f32[2]", " k<3 m<211 n<512: r0[i] += p0[i,k,m,n]", (1, 2, 3)),
    "apart": ("f32[16384,2]", "f32[2]", " k<16384: r0[i] += p0[k,i]", (0,)),
}


def fsum(x: Array, axes: tuple[int, ...]) -> Array:
    rows = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(-1, math.prod(x.shape[a] for a in axes))
    return np.array([math.fsum(row) for row in rows.astype(np.float64).tolist()])


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_long_sums_are_near_to_exact_ones(target: CTarget, cc: str, tmp_path: Path) -> None:
    kernels = [parse_kernel(f"kernel(p0: {p}) -> (r0: {r}) {{\n{body}\n}}") for p, r, body, _ in SUMS.values()]
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT, "-O1"))
    for n, (name, (_, _, _, axes)) in enumerate(SUMS.items()):
        x = np.random.default_rng(n).random(kernels[n].params[0].shape, np.float32)
        (got,) = compiled(n, [x])
        want = fsum(x, axes)
        assert np.abs(got.reshape(-1) / want - 1).max() <= UNITS * UNIT, name
