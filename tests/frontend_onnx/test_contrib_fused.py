"""Fused float operators of onnxruntime (com.microsoft) against onnxruntime, interpreted and as compiled C."""

from __future__ import annotations

from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.graph import evaluate
from tests.frontend_onnx.building import parse
from tests.frontend_onnx.contrib import Array, Case, compiled, equal, interpreted

RNG = np.random.default_rng(6)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ids(most: int, *shape: int) -> Array:
    return RNG.integers(0, most, shape, np.int32)


def nhwc(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return (x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))).astype(np.float32)


def grouped(x: Array, gamma: Array, beta: Array, groups: int, epsilon: float = 1e-5, **attributes: int) -> list[Array]:
    """GroupNorm of diffusion models by its definition, channels last."""
    n, h, w, c = x.shape
    parts = x.reshape(n, h * w, groups, c // groups)
    centred = parts - parts.mean((1, 3), keepdims=True)
    y = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + epsilon)
    y = y.reshape(x.shape) * gamma + beta
    return [np.float32(silu(y) if attributes["activation"] else y)]


def skip_grouped(x: Array, gamma: Array, beta: Array, skip: Array, bias: Array, **attributes: Any) -> list[Array]:
    total = x + (skip[:, None, None] if skip.ndim == 2 else skip) + bias
    return [*grouped(total, gamma, beta, **attributes), total]


def bias_softmax(x: Array, bias: Array, axis: int, is_inner_broadcast: int) -> list[Array]:
    total = np.exp(x + bias)
    return [total / total.sum(tuple(range(axis, x.ndim)), keepdims=True)]


def split_gelu(x: Array, bias: Array) -> list[Array]:
    left, right = np.split(x + bias, 2, -1)
    return [left * gelu(right)]


def three(x: Array, bias: Array, skip: Array) -> list[Array]:
    return [x + bias + skip]


IMAGE, SMALL = f(2, 4, 7, 6), f(2, 3, 8)
CONV: dict[str, Any] = {"pads": [1, 1, 0, 1], "strides": [2, 1]}
GROUPED: dict[str, Any] = {"groups": 2, "epsilon": 1e-4, "channels_last": 1}
WORDS, MASK = ids(20, 2, 5), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
EMBED = [WORDS, ids(2, 2, 5), f(20, 8), f(9, 8), f(2, 8), f(8), f(8)]
THREE = (True, True, True)

CASES = [
    Case("FusedMatMul", [f(2, 3, 4), f(2, 4, 5)], {"alpha": 0.25}),
    Case("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], {"transA": 1, "transB": 1}),
    Case("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}),
    Case("FusedMatMul", [f(2, 3, 4), f(4, 2, 5)], {"transBatchB": 1, "alpha": 2.0}),
    Case("FusedMatMul", [f(4, 2, 3), f(5, 2, 4)], {"transA": 1, "transBatchA": 1, "transB": 1, "transBatchB": 1}),
    Case("FusedMatMul", [f(3, 2, 6, 4), f(2, 6, 4, 5)], {"transBatchA": 1}),
    Case("TransposeMatMul", [f(4, 3), f(5, 4)], {"transA": 1, "transB": 1}),
    *(
        Case("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": kind, **extra})
        for kind, extra in (
            ("Relu", {"alpha": 0.5, "beta": 2.0}),
            ("LeakyRelu", {"activation_alpha": 0.2}),
            ("Sigmoid", {}),
            ("Tanh", {"transA": 0}),
            ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
            ("Elu", {"activation_alpha": 0.7}),
            ("Softplus", {}),
            ("ThresholdedRelu", {"activation_alpha": 0.6}),
        )
    ),
    Case("FusedConv", [IMAGE, f(3, 4, 3, 3), f(3)], {"activation": "Relu", **CONV}),
    Case("FusedConv", [IMAGE, f(3, 4, 3, 3)], {"activation": "LeakyRelu", "activation_params": [0.2], **CONV}),
    Case(
        "FusedConv", [IMAGE, f(4, 2, 1, 1), f(4)], {"activation": "Clip", "activation_params": [-0.5, 0.5], "group": 2}
    ),
    Case("FusedConv", [IMAGE, f(4, 4, 1, 1)], {"activation": "HardSigmoid", "activation_params": [0.25, 0.5]}),
    Case("FusedConv", [IMAGE, f(4, 4, 1, 1), f(4), IMAGE], {"activation": "Relu"}),
    Case("Gelu", [f(3, 5)]),
    Case("FastGelu", [f(3, 5)]),
    Case("FastGelu", [f(3, 5), f(5)]),
    Case("QuickGelu", [f(3, 5)], {"alpha": 1.3}),
    Case("BiasGelu", [f(3, 5), f(5)]),
    Case(
        "BiasSplitGelu",
        [f(2, 3, 8), f(8)],
        formula=split_gelu,
    ),
    Case("BiasAdd", [SMALL, f(8), f(2, 3, 8)], formula=three),
    Case("BiasSoftmax", [f(2, 3, 4), f(3, 4)], {"axis": 1, "is_inner_broadcast": 0}, formula=bias_softmax),
    Case("BiasSoftmax", [f(2, 3, 4), f(2, 1, 4)], {"axis": 2, "is_inner_broadcast": 1}, formula=bias_softmax),
    Case("SkipLayerNormalization", [SMALL, f(2, 3, 8), f(8), f(8)], {"epsilon": 1e-3}),
    Case("SkipLayerNormalization", [SMALL, f(1, 3, 8), f(8), f(8), f(8)], outputs=(True, False, False, True)),
    Case("SkipLayerNormalization", [SMALL, f(3, 8), f(8)]),
    Case("SkipSimplifiedLayerNormalization", [SMALL, f(2, 3, 8), f(8), f(8)], outputs=(True, False, False, True)),
    Case("SkipSimplifiedLayerNormalization", [f(6, 8), f(6, 8), f(8)], {"epsilon": 1e-3}),
    Case("SimplifiedLayerNormalization", [SMALL, f(8)], {"epsilon": 1e-3}, domain=""),
    Case("SimplifiedLayerNormalization", [SMALL, f(3, 8)], {"axis": 1}, domain="", outputs=(True, True)),
    Case("EmbedLayerNormalization", [*EMBED, MASK], {"epsilon": 1e-3}, outputs=THREE),
    Case("EmbedLayerNormalization", [*EMBED, None, ids(9, 2, 5)], outputs=THREE),
    Case("EmbedLayerNormalization", [WORDS, None, f(20, 8), f(9, 8), None, f(8), f(8)], outputs=(True, True)),
    Case("GroupNorm", [nhwc(IMAGE), f(4), f(4)], {"activation": 1, **GROUPED}, formula=grouped),
    Case("GroupNorm", [nhwc(IMAGE), f(4), f(4)], {"activation": 0, **GROUPED}, formula=grouped),
    *(
        Case(
            "SkipGroupNorm",
            [nhwc(IMAGE), f(4), f(4), f(*skip), f(4)],
            {"activation": 1, **GROUPED},
            formula=skip_grouped,
            outputs=(True, True),
        )
        for skip in ((2, 4), (2, 7, 6, 4))
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c}" for k, c in enumerate(CASES)])
def test_an_operator_gives_what_onnxruntime_gives(case: Case) -> None:
    interpreted(case)


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_convolutions_of_the_other_layout(op: str) -> None:
    """There is no kernel for CPUs: they are the convolution between two transpositions."""
    w, b = f(3, 4, 3, 3), f(3)
    fused = {"activation": "Relu"} if op == "NhwcFusedConv" else {}
    (want,) = Case("FusedConv", [IMAGE, w, b], {"activation": "Relu", **CONV}).wanted() if fused else _conv(w, b)
    case = Case(op, [nhwc(IMAGE), w, b], {**CONV, **fused})
    equal(evaluate(parse(case.model()), case.values(False))["y0"], nhwc(want))


def _conv(w: Array, b: Array) -> list[Array]:
    return Case("Conv", [IMAGE, w, b], CONV, domain="").wanted()


def test_compiled_programs_give_it_too(tmp_path: Path) -> None:
    compiled(CASES, tmp_path)
