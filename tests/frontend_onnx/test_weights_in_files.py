"""Weights that stay in the model's file: graphs that the cache keeps find them whatever the file is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dlc
from dlc.base.types import Array


def save(path: Path, seed: int) -> Array:
    """A product of a matrix large enough to stay in the file; the matrix."""
    weights = np.random.default_rng(seed).standard_normal((256, 256)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 256]) for n in "xy")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "product", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return weights


def result(model: Path, prefix: str, folder: Path) -> Array:
    """Of ones, by a program that is built with the folder's cache."""
    out = folder / prefix
    dlc.build(model, f"c{{prefix={prefix}}}", output=out, cache_dir=folder / "cache")
    program = cast(Callable[..., dict[str, Array]], dlc.load(out))
    return program(np.ones((1, 256), np.float32))["y"]


def test_a_copy_of_a_model_has_its_own_weights(tmp_path: Path) -> None:
    first, copy = tmp_path / "first.onnx", tmp_path / "copy.onnx"
    sums = save(first, 0).sum(0)
    copy.write_bytes(first.read_bytes())
    result(first, "one", tmp_path)
    save(first, 1)
    np.testing.assert_allclose(result(copy, "two", tmp_path)[0], sums, rtol=1e-4, atol=1e-4)
    first.unlink()
    np.testing.assert_allclose(result(copy, "three", tmp_path)[0], sums, rtol=1e-4, atol=1e-4)
