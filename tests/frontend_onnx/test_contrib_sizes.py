"""onnxruntime's operators on dimensions that are known when the program runs: compiled C against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dlc
from tests.frontend_onnx.building import QUICK, runtime

Array = Any
N, H, G = 4, 8, 2
D = N * H
MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(12)


def model(nodes: list[onnx.NodeProto], inputs: Mapping[str, Any], outputs: list[str]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(np.array(1), "one")]
    stored += [numpy_helper.from_array(RNG.standard_normal(s).astype(np.float32), k) for k, s in WEIGHTS.items()]
    used = {i for n in nodes for i in n.input}
    graph = helper.make_graph(nodes, "g", infos, results, [t for t in stored if t.name in used])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


WEIGHTS = {"gamma": (D,), "beta": (D,), "bias": (3 * D,)}
TABLES = [
    numpy_helper.from_array(t(np.outer(np.arange(16), np.linspace(1, 0.1, H))).astype(np.float32), n)
    for n, t in (("cos", np.cos), ("sin", np.sin))
]


def cached() -> onnx.ModelProto:
    """Causal attention behind a cache that grows, its norm with what came before, and rotary positions."""
    f = TensorProto.FLOAT
    nodes = [
        helper.make_node(
            "MultiHeadAttention",
            ["x", "x", "x", "bias", "mask", "", "pk", "pv"],
            ["a", "k", "v"],
            domain=MICROSOFT,
            num_heads=N,
            unidirectional=1,
        ),
        helper.make_node("SkipLayerNormalization", ["a", "x", "gamma", "beta"], ["y"], domain=MICROSOFT, epsilon=1e-4),
    ]
    past = (f, ["batch", N, "past", H])
    inputs = {"x": (f, ["batch", "seq", D]), "mask": (TensorProto.INT32, ["batch"]), "pk": past, "pv": past}
    return model(nodes, inputs, ["y", "k", "v"])


def prompt() -> onnx.ModelProto:
    """Grouped queries of a prompt, whose length is that of its text."""
    f = TensorProto.FLOAT
    nodes = [
        helper.make_node("Shape", ["q"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Cast", ["length"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "kv", "kv", "", "", "ends", "total", "cos", "sin"],
            ["y", "k", "v"],
            domain=MICROSOFT,
            num_heads=N,
            kv_num_heads=G,
            do_rotary=1,
        ),
    ]
    wide = 2 * H
    inputs = {
        "q": (f, ["batch", "seq", N * wide]),
        "kv": (f, ["batch", "seq", G * wide]),
        "ends": (TensorProto.INT32, ["batch"]),
    }
    found = model(nodes, inputs, ["y", "k", "v"])
    found.graph.initializer.extend(TABLES)
    return found


CASES: dict[str, tuple[onnx.ModelProto, dict[str, str], list[dict[str, int]]]] = {
    "cached": (
        cached(),
        {"batch": "1..3", "seq": "1..6", "past": "0..5"},
        [{"batch": 1, "seq": 1, "past": 5}, {"batch": 3, "seq": 6, "past": 0}, {"batch": 2, "seq": 4, "past": 3}],
    ),
    "prompt": (prompt(), {"batch": "1..3", "seq": "2..9"}, [{"batch": 1, "seq": 2}, {"batch": 3, "seq": 9}]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_program_for_every_size(name: str, builds: Path) -> None:
    made, dims, several = CASES[name]
    program: Any = dlc.build(made.SerializeToString(), QUICK, dims=dims, cache_dir=builds)
    names = [o.name for o in made.graph.output]
    for sizes in several:
        feeds: dict[str, Array] = {}
        for value in made.graph.input:
            shape = [sizes.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
            whole = value.type.tensor_type.elem_type != TensorProto.FLOAT
            last = sizes["seq"] + sizes.get("past", 0) - (name == "prompt")
            feeds[value.name] = np.full(shape, last, np.int32) if whole else RNG.standard_normal(shape, np.float32)
        got = program(**feeds)
        for output, want in zip(names, runtime(made, names, feeds), strict=True):
            assert got[output].shape == want.shape
            np.testing.assert_allclose(got[output], want, rtol=1e-4, atol=1e-5, err_msg=f"{output} at {sizes}")
