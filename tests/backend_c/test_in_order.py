"""Sums over rows that are read backwards or wrapped: right with every compiler, the mistaken ones included."""

from __future__ import annotations

from pathlib import Path

import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.in_order import MACRO
from dlc_backend_c.target import GENERIC, X86_64_V3, CTarget, target_for

from dlc.base.types import DType, Type, f32, f64
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Const, Expr
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import print_kernel
from tests.backend_c.harness import Compiled, close, samples
from tests.tools import COMPILERS

TARGETS = [GENERIC, *([X86_64_V3] if target_for("native").vector_bytes >= 32 else [])]


def total(dtype: DType, rows: int, row: int, kind: str) -> Kernel:
    """The sum of all elements of a matrix, or of one subscript of its rows, in an order of its own."""
    x, out = Param("x", Type(dtype, (rows, row))), Param("r", Type(dtype, (1,)))
    i, j = Axis("i", rows), Axis("j", row)
    at: dict[str, Expr] = {"forward": j, "backward": row - 1 - j, "wrapped": (j + 1) % row, "halved": j // 2}
    nest = Nest("r", (Const(0),), (i, j), x[i, at[kind]] / 2.5 * x[i, at[kind]], "add")
    return Kernel.canonical((x,), (out,), (nest,))


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_sums(target: CTarget, cc: str, tmp_path: Path) -> None:
    kinds = ("forward", "backward", "wrapped", "halved")
    sizes = ((8, 2), (8, 3), (8, 5), (7, 8), (64, 16))
    kernels = [total(t, *size, kind) for t in (f32, f64) for size in sizes for kind in kinds]
    compiled = Compiled(kernels, target, tmp_path, cc)
    for n, kernel in enumerate(kernels):
        (got,), (want,) = compiled(n, samples(kernel)), run_kernel(kernel, samples(kernel))
        assert close(got, want), f"{print_kernel(kernel)}: {got} instead of {want}"


def test_only_what_sums_in_another_order_is_marked() -> None:
    def marked(kernel: Kernel) -> bool:
        return c_function(kernel, "f", GENERIC).text.startswith(f"{MACRO} void f(")

    assert marked(total(f32, 8, 5, "backward"))
    assert marked(total(f32, 8, 5, "wrapped"))
    assert not marked(total(f32, 8, 5, "forward"))
    x, out, i = Param("x", Type(f32, (5,))), Param("r", Type(f32, (5,))), Axis("i", 5)
    assert not marked(Kernel.canonical((x,), (out,), (Nest("r", (i,), (i,), x[4 - i]),)))
