"""Elements written where data say, behind what they overwrite; the place may be a sum of the same kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled

KERNEL = """kernel (f32[3,5], i64[3,5]) -> (i64[3,5]) local (i64[3,5]) {
  r0[i,j] = 0
  k<5: t0[i,j] += i64(p0[i,k] < p0[i,j])
  i<3 j<5: r0[i,min(max(t0[i,j], 0), 4)] = p1[i,j]
}"""


@pytest.mark.parametrize("target", [GENERIC, target_for("native")], ids=["generic", "native"])
def test_a_place_that_is_computed_by_the_same_kernel(target: CTarget, tmp_path: Path) -> None:
    kernel = parse_kernel(KERNEL)
    random = np.random.default_rng(0)
    args = (random.standard_normal((3, 5)).astype(np.float32), np.arange(15).reshape(3, 5))
    (got,) = Compiled([kernel], target, tmp_path, "gcc")(0, args)
    (want,) = run_kernel(kernel, args)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, np.argsort(args[0], 1) + 5 * np.arange(3)[:, None])
