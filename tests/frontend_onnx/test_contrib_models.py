"""Models that onnxruntime's own optimisers and quantisers wrote: they build, and give what onnxruntime gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dlc
from dlc.graph import evaluate
from tests.frontend_onnx import quantising as q
from tests.frontend_onnx.building import QUICK, parse, runtime

FUSED = 1e-4
ROUNDED = 0.02
"""Relative to the largest output: a value that is rounded the other way changes others after it."""


@dataclass(frozen=True)
class Written:
    """A model and the tool that rewrites it."""

    model: str
    tool: Callable[[onnx.ModelProto, Path], None]
    operators: str
    """Operators that the result has; the test is about these."""
    tolerance: float = ROUNDED
    compiled: bool = False


WRITTEN = {
    "convolutions, optimised": Written("convolutions", q.optimised, "FusedConv FusedGemm", FUSED, compiled=True),
    "bert, optimised": Written("bert", q.optimised, "FusedGemm FusedMatMul Gelu SkipLayerNormalization", FUSED, True),
    "bert in parts, optimised": Written("bert, parts", q.optimised, "Gelu SkipLayerNormalization", FUSED),
    "gpt, optimised": Written("gpt", q.optimised, "FastGelu FusedMatMul SkipLayerNormalization", FUSED),
    "bert, by family": Written(
        "bert",
        q.fused_transformer("bert", 32, 4),
        "Attention BiasGelu EmbedLayerNormalization SkipLayerNormalization",
        FUSED,
        compiled=True,
    ),
    "gpt, by family": Written("gpt", q.fused_transformer("gpt2", 32, 4), "FastGelu SkipLayerNormalization", FUSED),
    "convolutions, QOperator": Written(
        "convolutions",
        q.statically_quantised("QOperator"),
        "QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu "
        "QLinearMul QLinearSigmoid QLinearSoftmax",
        compiled=True,
    ),
    "convolutions, by channel": Written(
        "convolutions", q.statically_quantised("QOperator", per_channel=True), "QGemm QLinearConv QLinearSoftmax"
    ),
    "convolutions, QDQ": Written(
        "convolutions", q.statically_quantised("QDQ", per_channel=True), "QuantizeLinear DequantizeLinear"
    ),
    "gpt, QOperator": Written("gpt", q.statically_quantised("QOperator"), "QLinearConcat QLinearMatMul QLinearSoftmax"),
    "bert, QDQ": Written("bert", q.statically_quantised("QDQ"), "QuantizeLinear DequantizeLinear"),
    "bert, dynamic": Written("bert", q.dynamically_quantised, "DynamicQuantizeMatMul MatMulIntegerToFloat"),
    "recurrent, dynamic": Written(
        "recurrent", q.dynamically_quantised, "DynamicQuantizeLSTM DynamicQuantizeMatMul", compiled=True
    ),
    "bert, 4 bits": Written("bert", q.in_blocks(4, symmetric=False), "MatMulNBits", FUSED, compiled=True),
    "convolutions, 4 bits": Written("convolutions", q.in_blocks(4, symmetric=True), "MatMulNBits", FUSED),
    "recurrent, 8 bits": Written("recurrent", q.in_blocks(8, symmetric=False), "MatMulNBits", FUSED),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_model_gives_what_onnxruntime_gives(name: str, tmp_path: Path, builds: Path) -> None:
    case, path = WRITTEN[name], tmp_path / "model.onnx"
    case.tool(q.MODELS[case.model](), path)
    model = q.read(path)
    assert set(case.operators.split()) <= q.operators(model)
    feeds = q.feeds_of(model, 9)
    names = [o.name for o in model.graph.output]
    want = dict(zip(names, runtime(model, names, feeds), strict=True))
    graph = parse(model)
    agree(evaluate(graph, {i.name: feeds[i.name] for i in graph.inputs}), want, case.tolerance)
    if case.compiled:
        program: Any = dlc.build(path, QUICK, cache_dir=builds)
        agree(program(feeds), want, case.tolerance)


def agree(got: Any, want: Any, tolerance: float) -> None:
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=0, atol=tolerance * float(np.abs(array).max()), err_msg=name)
