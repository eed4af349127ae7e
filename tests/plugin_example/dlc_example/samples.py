"""What `dlc plugins test` runs the plugin on."""

import json
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from dlc import ModelSample, OpSample, Samples, Source, StepsSample, make_graph
from dlc.base.types import Type, f32
from dlc.graph import Constant, Input, Splat, Tensor
from dlc.ops.elementwise import Mul, Sigmoid
from dlc.schedules import parse_kernel
from dlc_example.swish import Swish

X = Input("x", Type(f32, (2, 3)))
VALUES = np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)
BETA = np.array([1.0, 0.5, -2.0], np.float32)


def swish(x: Any, beta: Any = 1.0) -> Any:
    """By hand."""
    return x / (1 + np.exp(-beta * x))


def onnx_model(version: int) -> Source:
    """Both operators of the domain org.example."""
    attributes: dict[str, Any] = {"beta": 0.5} if version == 1 else {}
    nodes = [
        helper.make_node("Swish", ["x", *["b"] * (version == 2)], ["s"], domain="org.example", **attributes),
        helper.make_node("Gate", ["s", "x"], ["y"], domain="org.example"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    stored = [helper.make_tensor("b", TensorProto.FLOAT, [3], BETA)] if version == 2 else []
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", version)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Source(data=model.SerializeToString(), label=f"swish{version}.onnx")


MLP: dict[str, Any] = {
    "input": {"name": "x", "shape": [2, 3]},
    "layers": [{"name": "only", "weight": [[0.5, -1.0, 2.0]], "bias": [0.25], "activation": "tanh"}],
    "output": "y",
}

SAMPLES = Samples(
    ops=(
        OpSample(Swish(X), {"x": VALUES}, swish(VALUES)),
        OpSample(Swish(X, Input("beta", Type(f32, (3,)))), {"x": VALUES, "beta": BETA}, swish(VALUES, BETA)),
    ),
    graphs=(
        make_graph([X], {"y": Mul(X, Sigmoid(X)), "z": Mul(X, Sigmoid(Mul(X, Constant(Tensor.of(BETA, f32)))))}),
        make_graph([X], {"y": Swish(X, Splat(1.0, Type(f32, (3,))))}),
    ),
    models=(
        ModelSample(
            Source(data=json.dumps(MLP).encode(), label="net.mlp"),
            {"x": VALUES},
            {"y": np.tanh(VALUES @ np.array([[0.5], [-1.0], [2.0]], np.float32) + 0.25)},
        ),
        ModelSample(onnx_model(1), {"x": VALUES}, {"y": swish(VALUES, 0.5) * swish(VALUES) / VALUES}),
        ModelSample(onnx_model(2), {"x": VALUES}, {"y": swish(VALUES, BETA) * swish(VALUES) / VALUES}),
    ),
    kernels=(parse_kernel("kernel(f32[3,50]) -> (f32[3,50]) {\n  k<50: r0[i,j] += p0[i,k] if k-j <= 0\n}"),),
    steps=(
        # The mean is 0.1·g in the first step, 0.99·0.01·g1 + 0.01·g2 of the state in the second: signs decide.
        StepsSample(
            "lion{lr=0.5}",
            np.array([1.0, -1.0]),
            (np.array([2.0, -1.0]), np.array([-1.0, -3.0])),
            (np.array([0.5, -0.5]), np.array([1.0, 0.0])),
        ),
    ),
    specs=("find-swish{beta=no}", "numpy{comments=no}"),
)
