"""Tables read at conditions: right with every compiler, those included that take the condition for a mask."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.condition_indices import HELPER
from dlc_backend_c.function import c_function
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.base.types import DType, Type, bool_, f32, f64, i8, i32, i64, u8
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, select
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.text import parse_kernel, print_kernel
from tests.backend_c.harness import Compiled
from tests.tools import COMPILERS

Index = Callable[[Expr], Expr]
INDICES: dict[str, Index] = {
    "choice": lambda c: select(c, Const(1), Const(0)),
    "cast": lambda c: Apply("i64", (c,)),
    "one later": lambda c: Apply("i64", (c,)) + 1,
    "doubled": lambda c: Apply("i64", (c,)) * 2,
    "other way": lambda c: 1 - Apply("i64", (c,)),
    "clamped": lambda c: Apply("min", (Apply("max", (Apply("i64", (c,)), Const(0))), Const(1))),
    "through a float": lambda c: Apply("i64", (select(c, Const(1.0), Const(0.0)),)),
    "through a byte": lambda c: Apply("i64", (Apply("u8", (c,)),)),
}
PAIRS = ((i32, f32), (f32, i32), (f64, f64), (i8, u8))
"""Elements, and what is compared: the compilers are mistaken where both have one width."""
WORD = f"[{HELPER}("


def reading(element: DType, compared: DType, index: Index, rows: int) -> Kernel:
    """Elements of a table of four that comparisons of neighbours choose."""
    x, table = Param("x", Type(compared, (rows, 2))), Param("t", Type(element, (4,)))
    i = Axis("i", rows)
    value = table[index(Apply("lt", (x[i, 0], x[i, 1])))]
    return Kernel.canonical((x, table), (Param("r", Type(element, (rows,))),), (Nest("r", (i,), (i,), value),))


def arrays(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(len(kernel.params[0].shape))
    x, table = kernel.params
    return [rng.integers(0, 100, x.shape).astype(x.dtype.numpy), np.array([10, 20, 30, 40], table.dtype.numpy)]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", [GENERIC, target_for("native")], ids=["generic", "native"])
def test_a_condition_chooses_an_element(target: CTarget, cc: str, tmp_path: Path) -> None:
    cases = [
        *product(PAIRS[:1], INDICES, (16,)),
        *product(PAIRS[1:], ("cast", "doubled"), (16,)),
        *product(PAIRS[:1], ("choice",), (8, 19)),
    ]
    kernels = [reading(element, compared, INDICES[name], rows) for (element, compared), name, rows in cases]
    compiled = Compiled(kernels, target, tmp_path, cc)
    for n, kernel in enumerate(kernels):
        (got,), (want,) = compiled(n, arrays(kernel)), run_kernel(kernel, arrays(kernel))
        assert np.array_equal(got, want), f"{print_kernel(kernel)}: {got} instead of {want}"


def test_the_largest_of_two_chooses_a_label(tmp_path: Path) -> None:
    """As binary classifiers do; the compiler finds that the clamped place is 0 or 1."""
    kernel = parse_kernel("""kernel (f32[16,2], i32[2]) -> (i32[16]) local (f32[16], i64[16]) {
      k<2: t0[i] max= p0[i,k]
      k<2: t1[i] min= select(p0[i,k] == t0[i], k, 1)
      r0[i] = p1[min(max(t1[i], 0), 1)]
    }""")
    x = np.random.default_rng(0).standard_normal((16, 2)).astype(np.float32)
    args = (x, np.array([10, 20], np.int32))
    (got,) = Compiled([kernel], GENERIC, tmp_path, "gcc")(0, args)
    np.testing.assert_array_equal(got, args[1][x.argmax(1)])


def text_of(index: Expr, *params: Param) -> str:
    table, i = Param("t", Type(f32, (64,))), Axis("i", 16)
    nest = Nest("r", (i,), (i,), table[index])
    return c_function(Kernel.canonical((*params, table), (Param("r", Type(f32, (16,))),), (nest,)), "f", GENERIC).text


def test_only_conditions_are_hidden() -> None:
    """What data says as a number, or beside an axis of the loop, keeps its vectors."""
    x, b, i = Param("x", Type(i64, (16,))), Param("b", Type(bool_, (16,))), Axis("i", 16)
    number, truth = x[i], Apply("i64", (b[i],))
    assert WORD in text_of(truth, b) and WORD in text_of(truth * 2 + 1, b)
    assert WORD in text_of(i * 2 + truth, b), "an outer loop is no other axis to the compiler"
    assert WORD in text_of(Apply("min", (Apply("max", (number, Const(0))), Const(1))), x)
    assert WORD not in text_of(Apply("min", (Apply("max", (number, Const(0))), Const(63))), x)
