"""Every op that adds up, on f16 and bf16: values and gradients are those of f32, rounded once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import target_for

import dlc
from dlc.base.types import DType, bf16, f16, f32
from dlc.graph import Graph, Input, Op
from dlc.kernel.evaluate import run_kernel
from dlc.passes.lower import lower_op
from tests.backend_c.harness import STRICT, Compiled
from tests.ops.narrow_samples import as_floats, errors, evaluated, of_type, reducing, values, with_gradients, wrong

Array = Any


def cases(ran: set[tuple[DType, float]]) -> list[Any]:
    """(type, magnitude, all samples or the first of each op); those that are not in `ran` are long."""
    return [
        pytest.param(
            *(dtype, size, whole),
            id=f"{dtype}-{size:g}-{'all' if whole else 'first'}",
            marks=() if (dtype, size) in ran and not whole else pytest.mark.long,
        )
        for size in (1e-3, 1.0, 100.0, 6e4)
        for dtype in (f16, bf16)
        for whole in (False, True)
    ]


@cache
def ops(dtype: DType, whole: bool) -> list[Op]:
    found = reducing() if whole else tuple({op.text_name: op for op in reversed(reducing())}.values())
    return [of_type(op, dtype) for op in found]


@cache
def graph(dtype: DType, whole: bool) -> Graph:
    return with_gradients(ops(dtype, whole))


@cache
def given(dtype: DType, magnitude: float, whole: bool) -> dict[str, Array]:
    return values(ops(f32, whole), dtype, magnitude)


@cache
def single(dtype: DType, magnitude: float, whole: bool) -> dict[str, Array]:
    return evaluated(graph(f32, whole), as_floats(given(dtype, magnitude, whole), np.float32))


def check(got: dict[str, Array], dtype: DType, magnitude: float, whole: bool) -> None:
    case = dtype, magnitude, whole
    assert wrong(got, graph(f32, whole), given(*case), dtype, single(*case)) == {}


def test_ops_that_add_up_are_found_by_their_kernels() -> None:
    names = {op.text_name for op in ops(f32, False)}
    assert names >= {
        "reduce_sum",
        "reduce_mean",
        "layer_norm",
        "softmax",
        "lrn",
        "conv",
        "average_pool",
        "cross_entropy",
    }


@pytest.mark.parametrize(("dtype", "magnitude", "whole"), cases({(f16, 6e4), (bf16, 1e-3)}))
def test_values_and_gradients_are_those_of_f32_rounded_once(dtype: DType, magnitude: float, whole: bool) -> None:
    check(evaluated(graph(dtype, whole), given(dtype, magnitude, whole)), dtype, magnitude, whole)


@cache
def compiled(dtype: DType, whole: bool, folder: Path) -> Any:
    return dlc.compile(graph(dtype, whole), target="c{flags=-O0}", cache_dir=folder)


@pytest.mark.parametrize(("dtype", "magnitude", "whole"), cases(set()))
def test_so_they_are_in_c(dtype: DType, magnitude: float, whole: bool, shared: Path) -> None:
    program, case = compiled(dtype, whole, shared / "narrow sums"), (dtype, magnitude, whole)
    check(program({i.name: given(*case)[i.name] for i in graph(dtype, whole).inputs}), *case)


COMPOSITES = [op for op in ops(f32, False) if op.expansion is not None]


@pytest.mark.parametrize(("dtype", "magnitude"), [(f16, 6e4), pytest.param(bf16, 1e-3, marks=pytest.mark.long)])
def test_ops_that_are_composed_of_others_are_rounded_once_in_c(dtype: DType, magnitude: float, tmp_path: Path) -> None:
    """Kernels of many ops in one library; the long cases above try gradients too."""
    wide = [lower_op(op).body for op in COMPOSITES]
    narrow = [lower_op(of_type(op, dtype)).body for op in COMPOSITES]
    library = Compiled(narrow, target_for("native"), tmp_path, flags=(*STRICT, "-O0"))
    given = values(COMPOSITES, dtype, magnitude)
    far: dict[str, float] = {}
    for n, op in enumerate(COMPOSITES):
        args = [given[x.name] for x in op.operands if isinstance(x, Input)]
        (got,) = library(n, args)
        (want,) = run_kernel(wide[n], list(as_floats(dict(enumerate(args)), np.float32).values()))
        far[op.text_name] = float(np.max(errors(got, want, np.zeros(()), dtype), initial=0))
    assert {k: v for k, v in far.items() if v > 1} == {}
