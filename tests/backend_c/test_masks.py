"""Elements that are loaded on a condition, in groups: right with every compiler, the mistaken ones included."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.masks import MACRO
from dlc_backend_c.target import GENERIC, X86_64_V3, X86_64_V4, CTarget, missing, target_for

from dlc.base.types import DType, Type, f16, f32, f64, i8, i64
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, select
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import print_kernel
from tests.backend_c.harness import Compiled, close, samples
from tests.tools import COMPILERS

LEVELS = (X86_64_V3, X86_64_V4)
RUN_HERE = (target_for("native"), GENERIC, *(t for t in LEVELS if not missing(t.features)))
TARGETS = tuple({t.flags: t for t in RUN_HERE}.values())
"""One of those with the same flags: `native` is one of the others, and the cache is too large for these to matter."""


def shifted(dtype: DType, rows: int, columns: int, by: int, kind: str = "above") -> Kernel:
    """A matrix moved down by some rows, with zeros above it or below it."""
    x, out = Param("x", Type(dtype, (rows, columns))), Param("r", Type(dtype, (rows + by, columns)))
    i, j = Axis("i", rows + by), Axis("j", columns)
    zero = Const(0.0 if dtype.is_float else 0)
    value: Expr = select(i >= by, x[i - by, j], zero) if kind == "above" else select(i < rows, x[i, j], zero)
    return Kernel.canonical((x,), (out,), (Nest("r", (i, j), (i, j), value),))


def chosen(dtype: DType, by: DType, rows: int, columns: int) -> Kernel:
    """Elements of a matrix where a second one, of longer rows, is positive, and 0 elsewhere."""
    x, t = Param("x", Type(dtype, (rows, columns))), Param("t", Type(by, (rows, columns + 3)))
    out, i, j = Param("r", Type(dtype, (rows, columns))), Axis("i", rows), Axis("j", columns)
    zero = Const(0.0 if dtype.is_float else 0)
    above = Apply("gt", (t[i, j], Const(0.0 if by.is_float else 0)))
    return Kernel.canonical((x, t), (out,), (Nest("r", (i, j), (i, j), select(above, x[i, j], zero)),))


def summed(dtype: DType, rows: int, columns: int) -> Kernel:
    """The sum of the elements of a matrix in the rows that a vector names for their columns."""
    x, t = Param("x", Type(dtype, (rows, columns))), Param("t", Type(i64, (columns,)))
    out, i, j = Param("r", Type(dtype, (1,))), Axis("i", rows), Axis("j", columns)
    value = select(Apply("eq", (t[j] - 1, i)), x[i, j], Const(0.0 if dtype.is_float else 0))
    return Kernel.canonical((x, t), (out,), (Nest("r", (Axis("k", 1),), (Axis("k", 1), i, j), value, "add"),))


def moved() -> list[Kernel]:
    sizes = ((4, 2, 2), (39, 2, 2), (61, 2, 3), (59, 2, 5), (5, 3, 2), (60, 4, 5))
    return [shifted(t, *s, kind) for t in (f32, f64, i8, i64) for s in sizes for kind in ("above", "below")]


def groups() -> list[Kernel]:
    columns = (2, 3, 4, 5, 6, 7, 8, 12, 16, 17)
    return [chosen(*types, 40, n) for types in product((f32, f64), (f32, f64, f16, i8)) for n in columns]


def sums() -> list[Kernel]:
    return [summed(t, rows, n) for t in (f32, f64) for rows in (2, 3, 5, 36) for n in (2, 4, 5, 6, 8, 16, 17, 40)]


@pytest.mark.parametrize("make", (moved, groups, sums), ids=lambda m: m.__name__)
@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
def test_elements_have_their_own_conditions(
    target: CTarget, cc: str, make: Callable[[], list[Kernel]], tmp_path: Path
) -> None:
    kernels = make()
    compiled = Compiled(kernels, target, tmp_path, cc)
    for n, kernel in enumerate(kernels):
        (got,), (want,) = compiled(n, samples(kernel)), run_kernel(kernel, samples(kernel))
        assert close(got, want), f"{print_kernel(kernel)}: {got} instead of {want}"


def _marked(kernel: Kernel) -> bool:
    return f"{MACRO};" in c_function(kernel, "f", GENERIC).text


@pytest.mark.parametrize("columns", (2, 3, 8, 16))
def test_groups_that_depend_on_a_condition_are_marked(columns: int) -> None:
    assert _marked(shifted(f32, 4, columns, 2))
    assert _marked(chosen(f32, i8, 4, columns))


def test_what_no_compiler_groups_is_not_marked() -> None:
    assert not _marked(shifted(f32, 4, 17, 2))  # a loop of 17 iterations is not unrolled
    assert not _marked(summed(f32, 4, 40))
    x, out, i, j = Param("x", Type(f32, (5, 2))), Param("r", Type(f32, (2, 5))), Axis("i", 5), Axis("j", 2)
    assert not _marked(Kernel.canonical((x,), (out,), (Nest("r", (j, i), (i, j), x[i, j]),)))
    leaky = select(Apply("gt", (x[i, j], Const(0.0))), x[i, j], x[i, j] * 0.1)  # its loads happen anyway
    same = Param("r", Type(f32, (5, 2)))
    assert not _marked(Kernel.canonical((x,), (same,), (Nest("r", (i, j), (i, j), leaky),)))
