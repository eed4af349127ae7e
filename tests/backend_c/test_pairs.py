"""Pairs of elements that are loaded on a condition: right with every compiler, the mistaken ones included."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.pairs import MACRO
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Const, Expr, select
from dlc.kernel.nest import Kernel, Nest, Param
from dlc.kernel.text import print_kernel
from dlc.types import DType, Type, f32, f64, i8, i64
from tests.backend_c.harness import Compiled, close, samples
from tests.tools import COMPILERS

TARGETS = (target_for("native"), GENERIC)


def shifted(dtype: DType, rows: int, columns: int, by: int, kind: str) -> Kernel:
    """A matrix moved down by some rows, with zeros above it or below it."""
    x, out = Param("x", Type(dtype, (rows, columns))), Param("r", Type(dtype, (rows + by, columns)))
    i, j = Axis("i", rows + by), Axis("j", columns)
    zero = Const(0.0 if dtype.is_float else 0)
    value: Expr = select(i >= by, x[i - by, j], zero) if kind == "above" else select(i < rows, x[i, j], zero)
    return Kernel.canonical((x,), (out,), (Nest("r", (i, j), (i, j), value),))


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_rows_that_move(target: CTarget, cc: str, tmp_path: Path) -> None:
    sizes = ((4, 2, 2), (39, 2, 2), (61, 2, 3), (59, 2, 5), (5, 3, 2), (60, 4, 5))
    kernels = [shifted(t, *s, kind) for t in (f32, f64, i8, i64) for s in sizes for kind in ("above", "below")]
    compiled = Compiled(kernels, target, tmp_path, cc)
    for n, kernel in enumerate(kernels):
        (got,), (want,) = compiled(n, samples(kernel)), run_kernel(kernel, samples(kernel))
        assert close(got, want), f"{print_kernel(kernel)}: {got} instead of {want}"


def test_only_pairs_that_depend_on_a_condition_are_marked() -> None:
    def marked(kernel: Kernel) -> bool:
        return f"{MACRO} void f(" in c_function(kernel, "f", GENERIC).text

    assert marked(shifted(f32, 4, 2, 2, "above"))
    assert not marked(shifted(f32, 4, 3, 2, "above"))
    x, out, i, j = Param("x", Type(f32, (5, 2))), Param("r", Type(f32, (2, 5))), Axis("i", 5), Axis("j", 2)
    assert not marked(Kernel.canonical((x,), (out,), (Nest("r", (j, i), (i, j), x[i, j]),)))
