"""Training through a scan and through branches: weights that their bodies read get the gradients of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper, numpy_helper

from dlc import Report, Source
from dlc.api.passes import run_passes
from dlc.graph import Graph, evaluate
from dlc.passes.autodiff import Autodiff
from dlc.passes.fold_constants import FoldConstants
from dlc.passes.simplify import Simplify
from dlc.spec import Spec

H, B, LR = 8, 4, 0.1
info = helper.make_tensor_value_info
RANDOM = np.random.default_rng(0)
WEIGHTS = {
    name: (RANDOM.standard_normal(shape) * 0.4).astype(np.float32)
    for name, shape in {"w": (H, H), "u": (3, H), "o": (H, 5), "p": (H, H)}.items()
}


def model(steps: int) -> onnx.ModelProto:
    """y = h o, where h = tanh(h w + x[t] u) for all t, or h = h p where a row's sum is negative."""
    product, start = helper.make_node("MatMul", ["h", "w"], ["a"]), np.zeros((B, H), np.float32)
    then = helper.make_graph(
        [product, helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Tanh", ["s"], ["n"])],
        "then",
        [],
        [info("n", 1, [B, H])],
    )
    otherwise = helper.make_graph(
        [helper.make_node("MatMul", ["h", "p"], ["n"])], "otherwise", [], [info("n", 1, [B, H])]
    )
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["row", "u"], ["b"]),
            helper.make_node("ReduceSum", ["row"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["n"], then_branch=then, else_branch=otherwise),
        ],
        "body",
        [info("h", 1, [B, H]), info("row", 1, [B, 3])],
        [info("n", 1, [B, H])],
    )
    nodes = [
        helper.make_node("Scan", ["start", "x"], ["last"], body=body, num_scan_inputs=1),
        helper.make_node("MatMul", ["last", "o"], ["y"]),
    ]
    stored = {**WEIGHTS, "start": start, "zero": np.array(0, np.float32)}
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [steps, B, 3])],
        [info("y", TensorProto.FLOAT, [B, 5])],
        [numpy_helper.from_array(v, n) for n, v in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def step_of(steps: int, unroll: int) -> Graph:
    graph = Onnx(unroll=unroll).parse(Source(data=model(steps).SerializeToString(), label="m.onnx"), Report())
    optimizer = Spec.parse(f"sgd{{lr={LR}}}", "")
    trained = Autodiff(loss=Spec("mse"), optimizer=optimizer, wrt=("w", "u", "o", "p"))
    return run_passes([trained, FoldConstants(), Simplify(), FoldConstants()], graph, Report())


@pytest.mark.parametrize(("steps", "unroll"), [(3, 512), (3, 0), (100, 512)])
def test_a_step_moves_weights_as_pytorch_does(steps: int, unroll: int) -> None:
    graph = step_of(steps, unroll)
    assert any(op.text_name == "scan" for op in graph.ops) == (unroll == 0 or steps > 3)
    random = np.random.default_rng(steps)
    x = random.standard_normal((steps, B, 3)).astype(np.float32)
    y = random.standard_normal((B, 5)).astype(np.float32)
    feeds: dict[str, Any] = {"x": x, "y": y, **WEIGHTS}
    feeds |= {i.name: np.zeros(i.shape, i.dtype.numpy) for i in graph.inputs if i.name not in feeds}
    got = evaluate(graph, feeds)
    weights = {n: torch.tensor(v, requires_grad=True) for n, v in WEIGHTS.items()}
    h = torch.zeros(B, H)
    for row in torch.tensor(x):
        positive = bool(row.sum() > 0)
        h = torch.tanh(h @ weights["w"] + row @ weights["u"]) if positive else h @ weights["p"]
    loss: Any = torch.nn.functional.mse_loss(h @ weights["o"], torch.tensor(y))
    loss.backward()
    np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-5)
    for name, weight in weights.items():
        assert weight.grad is not None
        want = WEIGHTS[name] - LR * weight.grad.numpy()
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_step_over_many_rows_is_no_larger_graph() -> None:
    few, many = (sum(len(g.ops) for g in step_of(n, 0).graphs) for n in (5, 500))
    assert few == many
