"""One value in every element of a result, stored by vectors beside results that are computed: all lanes have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.base.types import DTYPES, in_compute_type
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.print import print_loops
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import Compiled
from tests.machines import MACHINES, target_of
from tests.tools import COMPILERS

TARGET = target_of(MACHINES["odd-registers"])
BY_VECTORS = ("f32", "f16", "bf16")
ALL = (*BY_VECTORS, "f64", "i32", "i64", "i8", "u8")


def kernel(dtype: str, size: int) -> Kernel:
    """One result is of arithmetic, which vectors do for floats; two hold the one element of a parameter."""
    narrow = DTYPES[dtype].is_float and DTYPES[dtype].narrow
    loaded = f"{DTYPES[dtype].compute}(p0[0])" if narrow else "p0[0]"
    other = f"{DTYPES[dtype].compute}(p1[i])" if narrow else "p1[i]"
    stored = f"{dtype}({{}})" if narrow else "{}"
    computed = f"exp({other})" if DTYPES[dtype].is_float else f"{other}*{other}"
    lines = (f"r0[i] = {stored.format(computed)}", "r1[i] = p0[0]", f"r2[i] = {stored.format(loaded)}")
    types = f"({dtype}[1], {dtype}[{size}]) -> ({', '.join([f'{dtype}[{size}]'] * 3)})"
    return parse_kernel(f"kernel{types} {{\n" + "".join(f"  {line}\n" for line in lines) + "}")


@pytest.mark.parametrize("cc", COMPILERS)
def test_every_element_has_the_value(cc: str, tmp_path: Path) -> None:
    kernels = [kernel(dtype, size) for dtype in ALL for size in (4, 31)]
    for dtype in BY_VECTORS:
        assert "r1[s0 .. +4] = p0[0]" in print_loops(schedule(kernel(dtype, 31), TARGET.machine))
    library = Compiled(kernels, TARGET, tmp_path, cc, ("-O0", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"))
    for n, k in enumerate(kernels):
        dtype, size = k.params[0].dtype, k.results[0].shape[0]
        one, many = np.array([3]).astype(dtype.numpy), np.full(size, 2).astype(dtype.numpy)
        results = [in_compute_type(r) for r in library(n, [one, many])]
        for got in results[1:]:
            assert (got.astype(float) == 3).all(), (dtype, got)
