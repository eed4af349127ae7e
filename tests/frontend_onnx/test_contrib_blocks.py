"""Weights in blocks of few bits, the quantised LSTM and small operators of onnxruntime, against onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc import DlcError
from dlc.graph import Constant
from tests.frontend_onnx.building import parse
from tests.frontend_onnx.contrib import Array, Case, compiled, interpreted

RNG = np.random.default_rng(8)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def q(kind: Any, *shape: int) -> Array:
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)


def q4(name: str, *shape: int) -> Array:
    """Integers of 4 bits."""
    low = -8 if name == "int4" else 0
    return RNG.integers(low, low + 16, shape, np.int8).astype(getattr(ml_dtypes, name))


def i(*values: int) -> Array:
    return np.array(values, np.int64)


def n_bits(
    k: int, n: int, bits: int, block: int, zero: str = "", bias: bool = False, shape: tuple[int, ...] = (2, 3)
) -> Case:
    """MatMulNBits of weights [n, k]."""
    blocks = -(-k // block)
    zeros = {"": None, "packed": q(np.uint8, n, -(-blocks * bits // 8)), "float": f(n, blocks)}[zero]
    packed = q(np.uint8, n, blocks, block * bits // 8)
    operands = [f(*shape, k), packed, f(n, blocks), zeros, None, f(n) if bias else None]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    return Case("MatMulNBits", operands, attributes, fixed=(1, 2, 3, 5), atol=1e-3)


def gathered(data: Array, scales: Array, zero: Array | None, indices: Array, **attributes: int) -> Case:
    return Case("GatherBlockQuantized", [data, indices, scales, zero], attributes, fixed=(0, 2, 3))


TABLE, LEVELS = q(np.uint8, 7, 16), q(np.uint8, 7, 1)
BLOCKS = [
    n_bits(32, 6, 4, 16),
    n_bits(32, 6, 4, 16, "packed"),
    n_bits(40, 5, 4, 16, "packed", bias=True),
    n_bits(48, 5, 4, 32, "float", shape=(3,)),
    n_bits(64, 6, 8, 32),
    n_bits(64, 6, 8, 32, "packed"),
    n_bits(64, 6, 2, 32),
    n_bits(64, 6, 2, 16, "packed"),
    replace(n_bits(40, 5, 4, 16, "packed"), fixed=()),  # bytes that are computed
    replace(n_bits(64, 5, 2, 16, "packed"), fixed=()),
    gathered(TABLE, f(7, 2), LEVELS, i(3, 0, -1), bits=4, block_size=16),
    gathered(TABLE, f(7, 2), None, np.array([[3, 0], [6, 2]], np.int32), bits=4, block_size=16),
    gathered(q(np.uint8, 7, 32), f(7, 2), q(np.uint8, 7, 2), i(3, 0), bits=8, block_size=16),
    gathered(q4("uint4", 7, 40), f(7, 3), q4("uint4", 7, 3), i(3, 0, -1), block_size=16),
    gathered(q4("int4", 7, 40), f(7, 3), None, np.array([[3, 0], [6, 2]], np.int32), block_size=16),
    gathered(q4("uint4", 32, 3, 5), f(2, 3, 5), None, i(2, 0), gather_axis=1, quantize_axis=0, block_size=16),
]
DIRECTIONS, HIDDEN, WIDTH = 2, 6, 5


def lstm(kind: Any, directions: int, per_channel: bool, **attributes: Any) -> Case:
    size = (directions, 4 * HIDDEN) if per_channel else (directions,)
    scales = [np.abs(f(*size)) * np.float32(0.004) + np.float32(0.002) for _ in range(2)]
    zeros = [np.zeros(size, kind) if kind is np.int8 else np.full(size, 128, kind) for _ in range(2)]
    states = [f(directions, 3, HIDDEN), f(directions, 3, HIDDEN)]
    operands = [f(4, 3, WIDTH), q(kind, directions, WIDTH, 4 * HIDDEN), q(kind, directions, HIDDEN, 4 * HIDDEN)]
    operands += [f(directions, 8 * HIDDEN), None, *states, None, scales[0], zeros[0], scales[1], zeros[1]]
    given = {"hidden_size": HIDDEN, **attributes}
    fixed = (1, 2, 3, 8, 9, 10, 11)
    return Case("DynamicQuantizeLSTM", operands, given, fixed, (True, True, True), atol=0.02, rtol=0.02)


LSTM = [
    lstm(np.int8, 1, per_channel=False),
    lstm(np.uint8, 1, per_channel=False, direction="reverse"),
    lstm(np.int8, 2, per_channel=True, direction="bidirectional"),
]
REGIONS = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.8, 0.7], [-0.2, 0.3, 0.6, 1.4], [0.9, 0.8, 0.2, 0.1]], np.float32)
IMAGES, WHICH, SIZE = f(2, 3, 7, 6), np.array([0, 1, 1, 0], np.int32), np.array([4, 5], np.int32)
CROPS: list[Any] = [IMAGES, REGIONS, WHICH, SIZE]
DISTANCE = {"metric": "euclidean"}
BAD = f(2, 3)
BAD[1, 1] = np.inf


def complex_product(a: Array, b: Array) -> list[Array]:
    y = (a[..., 0] + 1j * a[..., 1]) * (b[..., 0] + 1j * b[..., 1])
    return [np.stack([y.real, y.imag], -1).astype(np.float32)]


def conjugate_product(a: Array, b: Array) -> list[Array]:
    return complex_product(a, b * np.array([1, -1], np.float32))


def all_finite(*operands: Array, isinf_only: int = 0, isnan_only: int = 0) -> list[Array]:
    infinite, absent = (any(test(x).any() for x in operands) for test in (np.isinf, np.isnan))
    return [np.array(not ((infinite and not isnan_only) or (absent and not isinf_only)))]


OTHERS = [
    Case("Inverse", [f(5, 5)], atol=1e-4, rtol=1e-3),
    Case("Inverse", [np.array([[0, 2, 1], [1, 0, 0], [0, 0, 3]], np.float32)]),
    Case("Inverse", [f(2, 3, 4, 4)], atol=1e-3, rtol=1e-3),
    Case("CDist", [f(4, 3), f(5, 3)], DISTANCE, atol=1e-3),
    Case("CDist", [f(4, 3), f(5, 3)], {"metric": "sqeuclidean"}),
    Case("CropAndResize", CROPS, {"mode": "bilinear", "extrapolation_value": 7.0}, fixed=(3,)),
    Case("CropAndResize", CROPS, {"mode": "nearest"}, fixed=(3,)),
    Case("CropAndResize", [*CROPS[:3], np.array([1, 1], np.int32)], fixed=(3,)),
    Case("ComplexMul", [f(3, 4, 2), f(4, 2)], formula=complex_product),
    Case("ComplexMulConj", [f(3, 4, 2), f(3, 4, 2)], formula=conjugate_product),
    *(
        Case("IsAllFinite", [f(3), x], given, formula=all_finite)
        for x in (BAD, f(2), np.array([np.nan], np.float32))
        for given in ({}, {"isnan_only": 1}, {"isinf_only": 1})
    ),
    Case("ExpandDims", [f(2, 3), np.array(-1, np.int32)], fixed=(1,)),
    Case("ExpandDims", [f(2, 3), np.array(1, np.int32)], fixed=(1,)),
    Case("GatherND", [f(2, 3, 4), np.array([[0, 1], [1, 2]])]),
    Case("Trilu", [f(4, 5), np.array(1)], {"upper": 0}, fixed=(1,)),
    Case("Pad", [f(2, 3), i(1, 0, 0, 2), np.array([5], np.float32)], fixed=(1, 2)),
    Case("GridSample", [f(1, 2, 4, 5), f(1, 3, 2, 2)], {"mode": "bilinear", "padding_mode": "border"}),
    Case("Range", [np.array([2.0], np.float32), np.array([8.5], np.float32)], fixed=(0, 1)),
    Case("Range", [np.array(9), np.array(1), np.array(-3)], fixed=(0, 1, 2)),
]
CASES = [*BLOCKS, *LSTM, *OTHERS]


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c}" for k, c in enumerate(CASES)])
def test_an_operator_gives_what_onnxruntime_gives(case: Case) -> None:
    interpreted(case)


PACKED = n_bits(32, 6, 4, 16).operands


def test_constant_weights_have_the_type_of_their_bits() -> None:
    """So they are stored as packed as the model has them."""
    constants = [op for op in parse(n_bits(64, 6, 4, 16, "packed").model()).ops if isinstance(op, Constant)]
    assert sorted((c.dtype.name, c.shape) for c in constants) == [("f32", (6, 4)), ("u4", (6, 4)), ("u4", (6, 64))]


REFUSED: dict[str, tuple[Case, str]] = {
    "bits": (Case("MatMulNBits", PACKED, {"K": 32, "N": 6, "bits": 3, "block_size": 16}), "weights of 3 bits"),
    "shape": (Case("MatMulNBits", PACKED, {"K": 99, "N": 6, "block_size": 16}), "does not hold"),
    "block": (Case("MatMulNBits", PACKED, {"K": 32, "N": 6, "block_size": 0}), "power of two"),
    "bytes": (gathered(TABLE, f(7, 2), None, i(1), gather_axis=1, quantize_axis=0), "another dimension than the last"),
    "axis": (gathered(TABLE, f(7, 2), None, i(1), quantize_axis=0, block_size=16), "along the dimension of the blocks"),
    "rows": (Case("Inverse", [f(40, 40)]), "at most 32"),
    "square": (Case("Inverse", [f(4, 5)]), "not a square matrix"),
    "crops": (
        Case("CropAndResize", [*CROPS[:3], i(1 << 20, 1 << 20)], fixed=(3,)),
        "weights of all",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_with_the_reason(name: str) -> None:
    case, reason = REFUSED[name]
    with pytest.raises(DlcError, match=reason):
        parse(case.model())


def test_compiled_programs_give_it_too(tmp_path: Path) -> None:
    compiled(CASES, tmp_path)
