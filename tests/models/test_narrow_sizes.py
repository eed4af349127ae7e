"""Narrow weights and activations in programs that serve a range of sizes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models.building import Bench
from tests.models.writing import Array

INNER, COLUMNS, BLOCK, LARGEST = 64, 80, 16, 40


def products(narrow: str) -> tuple[onnx.ModelProto, Array]:
    """r = relu(x·w), y = r·rᵀ of x with n rows, and w as it is meant."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    if narrow == "int4":
        whole = random.integers(-8, 8, (INNER, COLUMNS)).astype(ml_dtypes.int4)
        scale = random.uniform(0.01, 0.05, (INNER // BLOCK, COLUMNS)).astype(np.float32)
        stored = [numpy_helper.from_array(whole, "q"), numpy_helper.from_array(scale, "s")]
        nodes.append(helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=BLOCK))
        weights = whole.astype(np.float32) * np.repeat(scale, BLOCK, 0)
    else:
        half = (random.standard_normal((INNER, COLUMNS)) / 8).astype(np.float16)
        stored, weights = [numpy_helper.from_array(half, "w")], half.astype(np.float32)
    nodes += [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Transpose", ["r"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "turned"], ["y"]),
    ]
    of = TensorProto.FLOAT if narrow == "int4" else TensorProto.FLOAT16
    x = helper.make_tensor_value_info("x", of, ["n", INNER])
    y = helper.make_tensor_value_info("y", of, ["n", "n"])
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), weights


@pytest.mark.parametrize("cpu", ["native", "generic"])
@pytest.mark.parametrize("narrow", ["float16", "int4"])
def test_products_of_every_size(narrow: str, cpu: str, bench: Bench, place: Path) -> None:
    model, weights = products(narrow)
    built = bench.compile(model, place, "--dim", f"n=1..{LARGEST}", target=f"c{{cpu={cpu} flags=-O0}}")
    kind, tolerance = (np.float32, 1e-5) if narrow == "int4" else (np.float16, 2.0**-10)
    for n in (1, 2, 7, 33, LARGEST):
        x = np.random.default_rng(n).standard_normal((n, INNER)).astype(kind)
        r = np.maximum(x.astype(np.float32) @ weights, 0).astype(kind).astype(np.float32)
        got = built({"x": x})["y"]
        assert (got.shape, got.dtype) == ((n, n), kind)
        assert np.abs(got.astype(np.float32) - r @ r.T).max() <= tolerance * np.abs(r @ r.T).max()
