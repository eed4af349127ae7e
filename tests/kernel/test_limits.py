"""Loops that end at a size: products, windows and reductions on any machine, at sizes around the ends of their tiles.

What lies behind the end of an operand is NaN; results are those of the same op on arrays of just that size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, CTarget

from dlc.base.extents import symbol, value
from dlc.base.types import Type, f32
from dlc.graph import Input, Op, evaluate_ops
from dlc.ops.elementwise import Relu
from dlc.ops.linear import Conv, ConvTranspose, Gemm, MatMul
from dlc.ops.normalize import LayerNorm
from dlc.ops.order import FirstOf, Rank
from dlc.ops.pool import MaxPool
from dlc.ops.reduce import ReduceMax, ReduceSum
from dlc.ops.shape import Pad
from dlc.passes.lower import Kernels, lower_op
from tests.backend_c.harness import STRICT, Compiled, called
from tests.machines import MACHINES, target_of

Array = Any
TARGETS: Mapping[str, CTarget] = {"generic": GENERIC, **{name: target_of(m) for name, m in MACHINES.items()}}
LARGEST = 70
SIZES = (1, 2, 3, 5, 15, 16, 17, 31, 48, 67, 70)


def x(name: str, *shape: int) -> Input:
    return Input(name, Type(f32, shape))


def softmax(n: int) -> Op:
    from dlc.ops.normalize import Softmax

    return Softmax(x("a", 3, 5, n), axis=-1)


OPS: Mapping[str, Callable[[int], Op]] = {
    "rows": lambda n: MatMul(x("a", n, 40), x("b", 40, 50)),
    "columns": lambda n: MatMul(x("a", 13, 40), x("b", 40, n)),
    "reduction": lambda n: MatMul(x("a", 13, n), x("b", n, 50)),
    "scores": lambda n: MatMul(x("a", 2, n, 16), x("b", 2, 16, n)),
    "weighted": lambda n: MatMul(x("a", 2, n, n), x("b", 2, n, 16)),
    "batch": lambda n: MatMul(x("a", n, 4, 9), x("b", n, 9, 21)),
    "transposed": lambda n: Gemm(x("a", n, 24), x("b", 33, 24), x("c", 33), trans_b=True),
    "transposed rows": lambda n: Gemm(x("a", 24, n), x("b", 24, n), trans_a=True),
    "convolution": lambda n: Conv(x("a", 2, 3, n, n), x("w", 8, 3, 3, 3), x("b", 8), pads=(1, 1, 1, 1)),
    "strided": lambda n: Conv(x("a", 1, 3, n + 2, 20), x("w", 8, 3, 3, 3), stride=(2, 2), pads=(1, 1, 1, 1)),
    "depthwise": lambda n: Conv(x("a", 1, 6, n, 12), x("w", 6, 1, 3, 3), pads=(1, 1, 1, 1), group=6),
    "along": lambda n: Conv(x("a", 2, 4, n), x("w", 5, 4, 3), pads=(2, 0)),
    "deconvolution": lambda n: ConvTranspose(x("a", 1, 4, n, n), x("w", 4, 3, 2, 2), stride=(2, 2)),
    "biased": lambda n: ConvTranspose(x("a", 1, 4, n, n), x("w", 4, 3, 2, 2), x("b", 3), stride=(2, 2)),
    "larger": lambda n: ConvTranspose(x("a", 1, 4, n), x("w", 4, 3, 2), x("b", 3), stride=(2,), output_pad=(1,)),
    "overlapping": lambda n: ConvTranspose(x("a", 1, 4, n, 8), x("w", 4, 3, 3, 3), stride=(2, 2), pads=(1, 1, 1, 1)),
    "apart": lambda n: ConvTranspose(x("a", 1, 4, n, 5), x("w", 4, 3, 2, 2), x("b", 3), stride=(3, 3)),
    "pooling": lambda n: MaxPool(x("a", 1, 3, n + 1, 30), window=(2, 2), stride=(2, 2)),
    "sum": lambda n: ReduceSum(x("a", 4, n), axes=(1,), keep=False),
    "sums": lambda n: ReduceSum(x("a", n, 9), axes=(0,), keep=True),
    "largest": lambda n: ReduceMax(x("a", 4, n, 3), axes=(1, 2), keep=False),
    "softmax": softmax,
    "normalisation": lambda n: LayerNorm(x("a", 3, n, 24), x("s", 24), x("b", 24)),
    "map": lambda n: Relu(x("a", 3, n, 5)),
    "rows in fours": lambda n: MatMul(x("a", n, 40), x("b", 40, 50)),
    "convolution in eights": lambda n: Conv(x("a", 1, 3, n, n), x("w", 8, 3, 3, 3), x("b", 8), pads=(1, 1, 1, 1)),
    "columns in eights": lambda n: MatMul(x("a", 13, 40), x("b", 40, n)),
}
SELECTIONS: Mapping[str, Callable[[int], Op]] = {
    "places": lambda n: Rank(x("a", 3, n), axis=1),
    "places of columns": lambda n: Rank(x("a", n, 3), axis=0, largest=False),
    "first": lambda n: FirstOf(x("a", 3, n), axis=1, count=1),
    "first of many": lambda n: FirstOf(x("a", 3, n + 2), axis=1, count=3),
    "sorted": lambda n: FirstOf(x("a", 3, n), axis=1, count=n),
    "reflected": lambda n: Pad(x("a", 3, n), pads=(0, 1, 0, 1), mode="reflect"),
    "repeated": lambda n: Pad(x("a", 3, n), pads=(0, 2, 0, 1), mode="edge"),
}
"""What takes elements from places that depend on data, or on the size: how far that goes, loops do not say."""
ALL = {**OPS, **SELECTIONS}
UNITS: Mapping[str, int] = {"rows in fours": 4, "convolution in eights": 8, "columns in eights": 8}


def opened_by(name: str) -> Op:
    unit = UNITS.get(name, 1)
    return ALL[name](symbol("n", 1, LARGEST // unit, unit))


def inputs(op: Op) -> list[Input]:
    return [i for i in op.operands if isinstance(i, Input)]


def arrays(op: Op) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    return {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in inputs(op)}


def in_room(array: Array, of: Type) -> Array:
    room = np.full(of.room, np.nan, np.float32)
    room[tuple(map(slice, array.shape))] = array
    return room


@pytest.fixture(scope="module", params=TARGETS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return library(
        request.param, frozenset(called(request, "name")), tmp_path_factory.getbasetemp() / f"limits-{request.param}"
    )


@cache  # a worker that takes over the tests of another comes to a machine more than once
def library(machine: str, names: frozenset[str], folder: Path) -> Compiled:
    folder.mkdir()
    kernels = [lower_op(opened_by(name), Kernels()).body for name in ALL]
    only = {list(ALL).index(name) for name in names}
    # What is tested is the text.
    return Compiled(kernels, TARGETS[machine], folder, flags=(*STRICT, "-O0"), only=only)


@pytest.mark.parametrize("name", ALL)
def test_every_size(name: str, compiled: Compiled) -> None:
    make = ALL[name]
    opened = opened_by(name)
    call = partial(compiled, list(ALL).index(name))
    unit = UNITS.get(name, 1)
    for size in SIZES if unit == 1 else range(unit, LARGEST + 1, unit):
        op = make(size)
        given = arrays(op)
        laid = [in_room(given[i.name], i.type) for i in inputs(opened)]
        (got,) = call([*laid, *(np.asarray(size, np.int64) for _ in opened.symbols)])
        wanted = evaluate_ops((op,), {i: given[i.name] for i in inputs(op)})[0]
        shape = tuple(value(d, {"n": size}) for d in opened.shape)
        assert shape == op.shape
        np.testing.assert_allclose(got[tuple(map(slice, shape))], wanted, rtol=2e-4, atol=2e-4, err_msg=f"size {size}")
