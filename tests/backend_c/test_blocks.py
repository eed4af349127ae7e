"""Attention in C: blocks of rows on several machines under both compilers, without undefined operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dlc
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.schedules.blocks import Blocks
from dlc.kernel.schedules.schedule import scheduled
from tests.backend_c.harness import STRICT, Compiled, close, samples
from tests.kernel.test_blocks import Attention
from tests.machines import MACHINES, target_of
from tests.tools import COMPILERS

FORMS = (
    Attention(heads=2, queries=50, keys=96, depth=8, values=16, mask="full"),
    Attention(batch=2, heads=1, queries=45, keys=45, depth=8, values=8, causal=True, packed=True),
)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("machine", [name for name, m in MACHINES.items() if m.vector_bytes])
def test_attention(machine: str, cc: str, tmp_path: Path) -> None:
    kernel = FORMS[cc == "gcc"].kernel
    assert isinstance(scheduled(kernel, MACHINES[machine]).choices[0], Blocks)
    checks = ("-fsanitize=undefined", "-fno-sanitize-recover=all") if (cc, machine) == ("gcc", "odd-registers") else ()
    compiled = Compiled([kernel], target_of(MACHINES[machine]), tmp_path, cc, (*STRICT, "-O0", *checks))
    args = samples(kernel)
    for got, want in zip(compiled(0, args), run_kernel(kernel, args), strict=True):
        assert close(got, want)


def attention(heads: int, positions: int, depth: int) -> onnx.ModelProto:
    """Masked attention as exporters write it, from [1, positions, 3·heads·depth]."""
    width = heads * depth
    made = helper.make_node
    nodes = [
        made("Split", ["x"], ["q", "k", "v"], axis=2, num_outputs=3),
        *(made("Reshape", [n, "heads"], [f"{n}1"]) for n in "qkv"),
        *(made("Transpose", [f"{n}1"], [f"{n}2"], perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3]) for n in "qkv"),
        made("MatMul", ["q2", "k2"], ["s"]),
        made("Mul", ["s", "scale"], ["s1"]),
        made("Add", ["s1", "mask"], ["s2"]),
        made("Softmax", ["s2"], ["p"], axis=-1),
        made("MatMul", ["p", "v2"], ["o"]),
        made("Transpose", ["o"], ["o1"], perm=[0, 2, 1, 3]),
        made("Reshape", ["o1", "flat"], ["y"]),
    ]
    values = [
        helper.make_tensor("heads", TensorProto.INT64, [4], [1, positions, heads, depth]),
        helper.make_tensor("flat", TensorProto.INT64, [3], [1, positions, width]),
        helper.make_tensor("scale", TensorProto.FLOAT, [], [depth**-0.5]),
    ]
    tensor = helper.make_tensor_value_info
    inputs = [
        tensor("x", TensorProto.FLOAT, [1, positions, 3 * width]),
        tensor("mask", TensorProto.FLOAT, [1, 1, 1, positions]),
    ]
    outputs = [tensor("y", TensorProto.FLOAT, [1, positions, width])]
    graph = helper.make_graph(nodes, "attention", inputs, outputs, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("options", ["cpu=x86-64-v3 threads=2", "cpu=x86-64-v3 math=ordered"])
def test_a_model_agrees_with_onnxruntime(options: str, tmp_path: Path) -> None:
    onnxruntime: Any = pytest.importorskip("onnxruntime")
    heads, positions, depth = 4, 150, 16
    path = tmp_path / "attention.onnx"
    path.write_bytes(attention(heads, positions, depth).SerializeToString())
    program: Any = dlc.build(path, target=f"c{{{options}}}", cache_dir=tmp_path / "cache", output=tmp_path / "out")
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, positions, 3 * heads * depth)).astype(np.float32),
        "mask": np.where(rng.random((1, 1, 1, positions)) < 0.2, -1e9, 0.0).astype(np.float32),
    }
    session: Any = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, feeds)
    got = program(**feeds)["y"]
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
