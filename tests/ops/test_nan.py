"""NaN and infinities among the data: every schedule gives what the reference gives, which takes NaN as numpy does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc.graph import Input, Op
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.ops import elementwise as e
from dlc.ops import order as od
from dlc.ops import pool as pl
from dlc.ops import reduce as rd
from dlc.passes.lower import composite_kernel
from tests.backend_c.harness import STRICT, Compiled
from tests.ops.samples import feed, samples, x
from tests.tools import COMPILERS

LEFT_OUT = {"conv", "conv_transpose"}
"""Schedules may or may not multiply zeros of the padding by what is not finite."""
SIZES = (1, 4, 5, 17, 64, 100)
SEEDS = range(2)


def choosing(n: int) -> list[Op]:
    """Ops that choose among n elements, along rows and across them."""
    found: list[Op] = [e.Clip(x(n, n), low=-0.5, high=0.5), e.Minimum(x(n), x(n)), e.Maximum(x(3, n), x(n))]
    for axis in (0, 1):
        for arg in (rd.ArgMax, rd.ArgMin):
            found += [arg(x(n, n + 3), axis=axis, keep=False, last=last) for last in (False, True)]
        found += [reduction(x(n, n + 3), axes=(axis,)) for reduction in (rd.ReduceMax, rd.ReduceMin)]
        found += [od.Rank(x(n, n + 3), axis=axis, largest=largest) for largest in (False, True)]
    if n > 2:
        image = x(1, 3, n, n + 1)
        found += [pl.MaxPool(image, window=(2, 2)), pl.MaxPool(image, (3, 3), (2, 2), (1, 1, 1, 1))]
        places = pl.MaxPool(image, (3, 3), (2, 2), (1, 1, 1, 1))
        found.append(pl.MaxPlace(image, places, (3, 3), (2, 2), (1, 1, 1, 1)))
    return found


@cache
def ops() -> tuple[Op, ...]:
    every = [*samples(), *(op for n in SIZES for op in choosing(n))]
    floats = (op for op in every if any(i.dtype.is_float and i.shape for i in op.operands))
    return tuple(op for op in floats if op.text_name not in LEFT_OUT)


def kernel_of(op: Op) -> Kernel:
    return op.kernel if op.expansion is None else composite_kernel(op)


def arguments(op: Op, seed: int) -> list[Any]:
    """An eighth of the floats NaN, or infinite."""
    values, random = feed(op, seed), np.random.default_rng(seed)
    found: list[Any] = []
    for i in op.operands:
        # What is no input here is the maxima of a pooling, which belong to the image before them.
        value = np.array(values[i.name] if isinstance(i, Input) else i.evaluate(found[0]), i.dtype.numpy)
        if i.dtype.is_float and value.size and isinstance(i, Input):
            places = random.integers(0, value.size, max(1, value.size // 8))
            value.reshape(-1)[places] = random.choice([np.nan, np.inf, -np.inf], len(places), p=[0.7, 0.15, 0.15])
        found.append(value)
    return found


def described(op: Op) -> str:
    return f"{op.text_name}({', '.join(str(i.type) for i in op.operands)}) {dict(op.attrs)}"


def reference(op: Op, args: list[Any]) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        found = op.evaluate(*args)
    return found if len(op.types) > 1 else (found,)


def assert_same(got: tuple[Any, ...], want: tuple[Any, ...], op: Op) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True, err_msg=described(op))


def test_kernels_agree_with_the_reference() -> None:
    for op in ops():
        for seed in SEEDS:
            args = arguments(op, seed)
            assert_same(run_kernel(kernel_of(op), args), reference(op, args), op)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", [GENERIC, target_for("native")], ids=["generic", "native"])
def test_c_agrees_with_the_reference(target: CTarget, cc: str, tmp_path: Path) -> None:
    program = Compiled([kernel_of(op) for op in ops()], target, tmp_path, cc, (*STRICT, "-O0"))
    for n, op in enumerate(ops()):
        for seed in SEEDS:
            args = arguments(op, seed)
            assert_same(program(n, args), reference(op, args), op)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("arg", "oracle"), [(rd.ArgMax, np.argmax), (rd.ArgMin, np.argmin)])
def test_arguments_are_those_of_numpy(arg: Any, oracle: Any, last: bool) -> None:
    for seed in range(20):
        op = arg(x(9, 7), axis=1, keep=False, last=last)
        (rows,) = arguments(op, seed)
        want = 6 - oracle(rows[:, ::-1], axis=1) if last else oracle(rows, axis=1)
        np.testing.assert_array_equal(op.evaluate(rows), want)
