"""Every op on dimensions that are known when it runs: the values that it has on numbers, whatever lies behind the end.

The samples' dimensions are replaced by symbols, one after the other. Operands are laid out for larger sizes, and what
lies behind their ends is NaN, or any integer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, target_for

from dlc.base.extents import Dim, Undecided, symbol, value
from dlc.graph import Input, Op, evaluate_ops
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.text import parse_kernel, print_kernel
from dlc.passes.lower import lower_op
from tests.backend_c.harness import STRICT, Compiled, called
from tests.lanes import on_one_machine
from tests.ops.resized import ROOM, replaced, spread
from tests.ops.samples import feed, samples

Array = Any


@dataclass(frozen=True)
class Case:
    """A sample and the same op on a symbolic dimension."""

    op: Op
    opened: Op
    size: int

    def __str__(self) -> str:
        return f"{self.op.text_name}-{self.opened.type.text}-{'-'.join(x.type.text for x in self.opened.operands)}"


@cache
def cases() -> list[Case]:
    return [case for op in samples() for case in opened(op)]


def opened(op: Op, low: int = 1) -> Iterator[Case]:
    """The op with each of the sizes of its operands as a symbol from `low` on, where the op is defined then."""
    if any(not isinstance(x, Input) for x in op.operands):
        return
    for size in sorted({d for x in op.operands for d in x.shape if d > 1}):
        of = symbol("n", low, size + ROOM)
        for also in (False, True):
            try:
                yield Case(op, replaced(op, size, of, also), size)
            except (Undecided, ValueError, TypeError):
                continue
            break


CASES = cases()


def laid_out(case: Case) -> list[Array]:
    """The operands of the opened op's kernel in memory, and the size."""
    values = feed(case.op)
    generator = np.random.default_rng(3)
    out: list[Array] = []
    for x, of in zip(case.op.operands, case.opened.operands, strict=True):
        assert isinstance(x, Input)
        out.append(spread(values[x.name], of.type, generator))
    return [*out, *(np.asarray(case.size, np.int64) for _ in case.opened.symbols)]


def kept(case: Case, result: Array) -> Array:
    """The elements of a result that have a meaning."""
    shape = tuple(value(d, {"n": case.size}) for d in case.opened.shape)
    return result[tuple(map(slice, shape))]


def expected(case: Case) -> Array:
    values = feed(case.op)
    known: dict[Op, Array] = {x: values[x.name] for x in case.op.operands if isinstance(x, Input)}
    return evaluate_ops((case.op,), known)[0]


def close(got: Array, wanted: Array) -> None:
    assert got.shape == wanted.shape
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)
    else:
        np.testing.assert_array_equal(got, wanted)


def test_most_ops_take_symbolic_dimensions() -> None:
    every = {type(op) for op in samples() if all(isinstance(x, Input) for x in op.operands) and op.operands}
    without = sorted({c.text_name for c in every} - {c.op.text_name for c in CASES})
    assert len(without) < len(every) // 4, without
    assert any(isinstance(d, Dim) for c in CASES for d in c.opened.shape)


def test_no_subscript_leaves_a_dimension_that_may_be_empty() -> None:
    """One of data or of a place outside is brought inside, where there may be nothing."""
    several = [case for op in samples() for case in opened(op, 0)]
    assert {"gather", "gather_elements", "scatter_nd"} <= {case.op.text_name for case in several}
    assert {str(case): found for case in several if (found := kernel_problems(lower_op(case.opened).body))} == {}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_interpreter(case: Case) -> None:
    kernel = lower_op(case.opened).body
    assert kernel_problems(kernel) == ()
    assert parse_kernel(print_kernel(kernel)) == kernel
    close(kept(case, run_kernel(kernel, laid_out(case))[0]), expected(case))


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return library(
        request.param, frozenset(called(request, "n")), tmp_path_factory.getbasetemp() / f"sizes-{request.param}"
    )


@cache  # a worker that takes over the tests of another comes to a machine more than once
def library(machine: str, only: frozenset[int], folder: Path) -> Compiled:
    folder.mkdir()
    target = GENERIC if machine == "generic" else target_for("native")
    kernels = [lower_op(c.opened).body for c in CASES]
    return Compiled(kernels, target, folder, flags=(*STRICT, "-O0"), only=only)


@pytest.mark.parametrize(
    ("compiled", "n"), on_one_machine(CASES, ("generic", "native"), lambda c: c.op.text_name), indirect=["compiled"]
)
def test_c(n: int, compiled: Compiled) -> None:
    close(kept(CASES[n], compiled(n, laid_out(CASES[n]))[0]), expected(CASES[n]))
