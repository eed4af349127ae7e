"""Training steps of ONNX models: through the C backend, and against the step that another tool derived."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper, numpy_helper

from dlc import Report, Source
from dlc.graph import Constant, Graph, evaluate
from dlc.training.step.step import initial_values
from tests.models.building import Bench, Built
from tests.training.nets import BATCH, CLASSES, NETS, module_of, relative_error, step_of, torch_step

DIGITS = Path(__file__).parents[2] / "examples" / "mnist.onnx"
CCT = Path(__file__).parents[1] / "data" / "models" / "cct_train_ft2"


@pytest.fixture
def place() -> Generator[Path]:
    with TemporaryDirectory(prefix="dlc-training-") as directory:
        yield Path(directory)


def exported(module: torch.nn.Sequential) -> onnx.ModelProto:
    """The perceptron of `nets` as an ONNX file."""
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "0.weight", "0.bias"], ["a"], name="first", transB=1),
        node("Tanh", ["a"], ["b"], name="tanh"),
        node("Gemm", ["b", "2.weight", "2.bias"], ["c"], name="second", transB=1),
        node("Relu", ["c"], ["d"], name="relu"),
        node("Gemm", ["d", "4.weight", "4.bias"], ["scores"], name="third", transB=1),
    ]
    weights = [numpy_helper.from_array(p.detach().numpy(), name) for name, p in module.named_parameters()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (BATCH, 12))]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (BATCH, CLASSES))]
    graph = helper.make_graph(nodes, "mlp", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def first_values(source: Path, options: str) -> dict[str, Any]:
    """What the step's weights and states start with."""
    return initial_values(step_of(Onnx().parse(Source(source), Report()), options))


def test_a_step_in_c_trains_as_torch_does(place: Path) -> None:
    module = module_of(NETS["mlp"])
    options = "optimizer=adam{lr=0.01} clip=1 outputs=yes"
    pipeline = ("-p", f"autodiff{{{options}}},infer")
    built: Built = Bench(place / "cache").compile(exported(module), place / "model", *pipeline)
    held, program = first_values(built.source, options), built.program
    assert [p.name for p in program.signature.inputs] == ["x", "y", *held]
    assert len(program.signature.aliases) == len(held)
    other = torch.optim.Adam(module.parameters(), lr=0.01)
    batches = NETS["mlp"].batches(5)
    for k in range(50):
        x, y = batches[k % 5]
        want = torch_step(module, other, x, y, clip=1)
        # In place: the arrays of weights and states are inputs and buffers for outputs at once.
        found = program(x=x, y=y, **held, out=held)
        assert abs(float(found["loss"]) - want) <= 0.01 * want
        assert all(found[name] is held[name] for name in held) and found["scores"].shape == (BATCH, CLASSES)
        if k == 0:
            for name, value in module.named_parameters():
                assert relative_error(held[name], value.detach().numpy()) <= 1e-4, name
    assert held["step"] == 50


def test_the_step_of_a_convolutional_network_in_c_is_that_of_the_interpreter(place: Path) -> None:
    options = "optimizer=adam clip=1"
    built: Built = Bench(place / "cache").compile(
        onnx.ModelProto.FromString(DIGITS.read_bytes()), place / "model", "-p", f"autodiff{{{options}}},infer"
    )
    step = step_of(Onnx().parse(Source(DIGITS), Report()), options)
    x = np.random.default_rng(0).uniform(0, 255, (1, 1, 28, 28)).astype(np.float32)
    feeds: dict[str, Any] = {"Input3": x, "y": np.array([3], np.int64), **first_values(built.source, options)}
    want = evaluate(step, feeds)
    found = built.program(**feeds)
    assert found.keys() == want.keys()
    for name, value in found.items():
        assert relative_error(value, want[name]) <= 1e-4, name


def cct() -> tuple[Graph, dict[str, Any], dict[str, Any]]:
    """The model, and what the stored step takes and gives: weights by the names of the initializers."""
    outputs = np.load(CCT / "outputs.npz")
    updated = {name.removesuffix("_updated"): outputs[name] for name in outputs.files}
    model = Onnx().parse(Source(CCT / "network_infer.onnx"), Report())
    return model, dict(np.load(CCT / "inputs.npz")), updated


def test_the_step_of_a_transformer_is_the_one_that_came_with_it() -> None:
    model, feeds, updated = cct()
    step = step_of(model, f"label=labels optimizer=sgd{{lr=0.01}} wrt={','.join(updated)}")
    assert sorted(i.name for i in step.inputs if i.role == "weight") == sorted(updated)
    first = initial_values(step)
    found = evaluate(step, {**first, **feeds})
    for name, want in updated.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-7, err_msg=name)
        if np.any(want != first[name]):  # the bias before a softmax has no effect
            assert relative_error(found[name] - first[name], want - first[name]) <= 1e-4, name
    scores = evaluate(model, {"input": feeds["input"]})["output"][0].astype(np.float64)
    label = int(feeds["labels"][0])
    assert found["loss"] == pytest.approx(np.log(np.exp(scores).sum()) - scores[label], rel=1e-5)


def test_frozen_layers_of_a_transformer_leave_no_backward_node() -> None:
    model, _, updated = cct()
    step = step_of(model, f"label=labels wrt={','.join(updated)}")
    parameters = {op.name for op in model.ops if isinstance(op, Constant) and op.name}
    kept = {op.name for op in step.ops if isinstance(op, Constant) and op.name}
    assert kept == parameters - set(updated)
    # The layers in front of the first trained one have their own ops and no more; trained, they have many more.
    everything = step_of(model, "label=labels")
    assert of_tokenizer(step) == of_tokenizer(model) < of_tokenizer(everything) - 5
    assert len(step_of(model, "label=labels wrt=classifier_fc_*").ops) < len(step.ops) < len(everything.ops)


def of_tokenizer(graph: Graph) -> int:
    """Ops that come, first of all, from the convolutions at the start of the network."""
    return sum(any("tokenizer" in name for name in graph.origin(op)[:1]) for op in graph.ops)
