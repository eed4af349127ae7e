"""Sums whose terms have no vector form are staged in a short buffer: of the type of the sum, whatever else is computed.

A loop that computes the sum computes other tensors too, and the first of them may be of any type: the buffer was of
that type once, and its vectors had no typedef.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.target import GENERIC, X86_64_V3, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Compiled, close
from tests.tools import COMPILERS

TYPES = ("bool", "i8", "u8", "i16", "f16", "bf16", "f8e4m3fn", "u4", "i64", "f64", "f32")
HAS_VECTORS = target_for("native").vector_bytes >= 32
TARGETS = [GENERIC, *([X86_64_V3] if HAS_VECTORS else [])]


def kernel(first: str, total: str, result: str) -> Kernel:
    """A first tensor of one type, a sum of it in another, and a result of a third."""
    near = "sqrt(p0[i,j]) < 1.0"
    value = near if first == "bool" else f"{first}({near})" if first == "f64" else f"{first}(f32({near}))"
    given = {"f64": "f64(t0[i,j])"}.get(total, "f32(t0[i,j])") if first != total else "t0[i,j]"
    told = "t1[i]" if total == result else f"{result}(t1[i])"
    return parse_kernel(f"""kernel (f32[5,160], i64[5,160]) -> ({result}[5]) local ({first}[5,160], {total}[5]) {{
  t0[i,j] = {value}
  j<160: t1[i] += {total}(p1[i,j] == 2)*{given}
  r0[i] = {told}
}}""")


KERNELS = [
    *(kernel(t, total, total) for t in TYPES for total in ("f32", "f64")),
    *(kernel("bool", "f32", result) for result in ("f16", "bf16", "i8", "u8", "i32")),
]


def test_the_sums_are_staged() -> None:
    assert all("stage0" in c_function(k, "f", X86_64_V3).text for k in KERNELS)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_sums_of_truth_values_and_narrow_types(target: CTarget, cc: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    args = (rng.uniform(0, 2, (5, 160)).astype(np.float32), rng.integers(0, 4, (5, 160)))
    compiled = Compiled(KERNELS, target, tmp_path, cc, (*STRICT, "-O1"))
    for n, k in enumerate(KERNELS):
        (got,), (want,) = compiled(n, args), run_kernel(k, args)
        assert np.asarray(want).astype(float).max() > 10 and close(got, want), k.text()
