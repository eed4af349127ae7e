"""Quantised operators of onnxruntime (com.microsoft) against onnxruntime, interpreted and as compiled C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontend_onnx.contrib import Array, Case, compiled, interpreted

RNG = np.random.default_rng(5)
BYTES: tuple[Any, ...] = (np.uint8, np.int8)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def q(kind: Any, *shape: int) -> Array:
    """Integers over the whole range."""
    return RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind, endpoint=True)


def s(value: float) -> Array:
    return np.array(value, np.float32)


def z(kind: Any, value: int) -> Array:
    """A zero point, given for u8: that of i8 lies 128 below."""
    return np.array(value - (128 if kind is np.int8 else 0), kind)


def unary(op: str, kind: Any, shape: tuple[int, ...], out: float, **attributes: Any) -> Case:
    operands = [q(kind, *shape), s(0.04), z(kind, 121), s(out), z(kind, 7)]
    return Case(op, operands, attributes, fixed=(1, 2, 3, 4), steps=1)


BIAS = RNG.integers(-9000, 9000, 6, np.int32)
IMAGE = (2, 8, 7, 6)
POOL: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}


def mean(x: Array, sx: Array, zx: Array, sy: Array, zy: Array, axes: list[int], keepdims: int) -> list[Array]:
    """The formula of QLinearReduceMean's documentation."""
    y = ((x.astype(np.int32) - zx) * sx).astype(np.float32).mean(tuple(axes), dtype=np.float32, keepdims=bool(keepdims))
    limits = np.iinfo(x.dtype)
    return [np.clip(np.rint(y / sy) + zy, limits.min, limits.max).astype(x.dtype)]


def product(a: Array, za: Array, b: Array, zb: Array) -> list[Array]:
    """MulInteger."""
    return [(a.astype(np.int32) - za) * (b.astype(np.int32) - zb)]


def total(x: Array, axes: list[int], keepdims: int) -> list[Array]:
    """ReduceSumInteger."""
    return [x.sum(tuple(axes), dtype=np.int32, keepdims=bool(keepdims))]


CASES = [
    case
    for kind in BYTES
    for case in (
        *(
            Case(
                op,
                [q(kind, *a), s(0.03), z(kind, 118), q(kind, *b), s(0.05), z(kind, 130), s(c), z(kind, 100)],
                fixed=fixed,
                steps=1,
            )
            for op, c in (("QLinearAdd", 0.06), ("QLinearMul", 0.11))
            for a, b, fixed in (
                ((2, 3, 40), (2, 3, 40), (1, 2, 4, 5, 6, 7)),
                ((2, 3, 4), (3, 1), ()),
                ((4,), (2, 1, 4), (1, 2, 3, 4, 5, 6, 7)),
            )
        ),
        unary("QLinearSigmoid", kind, (5, 60), 1 / 256),
        unary("QLinearLeakyRelu", kind, (5, 60), 0.03, alpha=0.2),
        unary("QLinearLeakyRelu", kind, (5, 60), 0.05),
        unary("QLinearSoftmax", kind, (4, 3, 9), 1 / 256, axis=-1, opset=13),
        unary("QLinearSoftmax", kind, (4, 3, 9), 1 / 256, axis=1, opset=13),
        unary("QLinearSoftmax", kind, (4, 3, 9), 1 / 256, axis=1, opset=11),
        unary("QLinearAveragePool", kind, IMAGE, 0.03, **POOL),
        unary("QLinearAveragePool", kind, IMAGE, 0.03, count_include_pad=1, **POOL),
        unary("QLinearAveragePool", kind, IMAGE, 0.03, channels_last=1, kernel_shape=[2, 3]),
        unary("QLinearAveragePool", kind, IMAGE, 0.03, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
        unary("QLinearGlobalAveragePool", kind, IMAGE, 0.005),
        unary("QLinearGlobalAveragePool", kind, IMAGE, 0.005, channels_last=1),
        *(
            Case(c.op, c.operands, c.attributes, c.fixed, steps=1, formula=mean)
            for c in (
                unary("QLinearReduceMean", kind, (3, 4, 5), 0.02, axes=[1], keepdims=1),
                unary("QLinearReduceMean", kind, (3, 4, 5), 0.02, axes=[0, 2], keepdims=0),
            )
        ),
        Case(
            "QLinearWhere",
            [
                f(3, 40) > 0,
                q(kind, 3, 40),
                s(0.03),
                z(kind, 118),
                q(kind, 40),
                s(0.05),
                z(kind, 130),
                s(0.04),
                z(kind, 9),
            ],
            fixed=(2, 3, 5, 6, 7, 8),
            steps=1,
        ),
        Case(
            "QLinearConcat",
            [s(0.04), z(kind, 99), q(kind, 2, 30), s(0.04), z(kind, 99), q(kind, 2, 50), s(0.03), z(kind, 130)],
            {"axis": 1},
            fixed=(0, 1, 3, 4, 6, 7),
            steps=1,
        ),
        Case("QLinearConcat", [s(0.04), z(kind, 99), q(kind, 2, 5), s(0.02), z(kind, 9)], {"axis": -2}, steps=1),
        Case("QuantizeLinear", [f(3, 40), s(0.02), z(kind, 120)], steps=0),
        Case("QuantizeLinear", [f(3, 4, 5), abs(f(4)) + 0.01, q(kind, 4)], {"axis": 1}, fixed=(1, 2)),
        Case("DequantizeLinear", [q(kind, 3, 4, 5), abs(f(4)), q(kind, 4)], {"axis": 1}, fixed=(1, 2)),
        Case("DequantizeLinear", [q(kind, 3, 40), s(0.02), z(kind, 120)]),
        Case(
            "QGemm",
            [
                q(np.uint8, 5, 8),
                s(0.03),
                z(np.uint8, 118),
                q(kind, 8, 6),
                s(0.02),
                z(kind, 130),
                BIAS,
                s(0.3),
                z(np.uint8, 9),
            ],
            fixed=(1, 2, 3, 4, 5, 6, 7, 8),
            steps=1,
        ),
        Case(
            "QGemm",
            [q(np.uint8, 8, 5), s(0.03), z(np.uint8, 118), q(kind, 6, 8), abs(f(6)), q(kind, 6)],
            {"transA": 1, "transB": 1, "alpha": 0.5},
            fixed=(1, 2, 3, 4, 5),
        ),
        Case("DynamicQuantizeMatMul", [f(2, 5, 8), q(kind, 8, 6), s(0.03), z(kind, 130), f(6)], fixed=(1, 2, 3, 4)),
        Case("DynamicQuantizeMatMul", [f(5, 8), q(kind, 8, 6), abs(f(6))], fixed=(1, 2)),
        Case("DynamicQuantizeMatMul", [f(5, 8), q(kind, 8, 6), abs(f(6)), q(kind, 6)], fixed=(1, 2, 3)),
        Case(
            "MatMulIntegerToFloat",
            [q(np.uint8, 2, 5, 8), q(kind, 8, 6), s(0.04), abs(f(6)), z(np.uint8, 119), q(kind, 6), f(6)],
            fixed=(1, 3, 5, 6),
        ),
        Case("MatMulIntegerToFloat", [q(np.uint8, 5, 8), q(kind, 8, 6), s(0.04), s(0.02), None, None], fixed=(1, 3)),
        Case(
            "QLinearConv",
            [
                q(kind, 2, 7, 6, 8),
                s(0.04),
                z(kind, 120),
                # Its option against overflow without VNNI does not reach this operator; pairs of these fit 16 bits.
                q(np.int8, 5, 8, 3, 3) // 2,
                s(0.02),
                np.int8(0),
                s(0.9),
                z(kind, 99),
                BIAS[:5],
            ],
            {"channels_last": 1, "pads": [1, 1, 0, 1], "strides": [2, 1]},
            fixed=(1, 2, 3, 4, 5, 6, 7, 8),
            steps=1,
        ),
        Case("NhwcMaxPool", [q(kind, 2, 7, 6, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
    )
] + [
    Case("MatMulInteger16", [q(np.int16, 3, 5) // 64, q(np.int16, 5, 4) // 64]),
    Case(
        "MulInteger",
        [q(np.uint8, 3, 5), np.uint8(7), q(np.uint8, 5), np.uint8(90)],
        formula=product,
    ),
    Case(
        "ReduceSumInteger",
        [q(np.int8, 3, 5, 4)],
        {"axes": [1], "keepdims": 0},
        formula=total,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c}" for k, c in enumerate(CASES)])
def test_an_operator_gives_what_onnxruntime_gives(case: Case) -> None:
    interpreted(case)


def test_compiled_programs_give_it_too(tmp_path: Path) -> None:
    compiled(CASES, tmp_path)
