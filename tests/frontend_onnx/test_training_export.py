"""Training steps written as ONNX models: read back they are dlc's own steps, and what PyTorch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from building import Array, model_of, parse
from dlc_frontend_onnx.frontend import Onnx
from dlc_frontend_onnx.training_export import training_model
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from test_fresh_network import NETWORK, fresh

from dlc import DlcError, Report, Source
from dlc.graph import Graph, evaluate
from dlc.passes.autodiff import Autodiff
from dlc.spec import Spec
from dlc.training.step.step import initial_values
from tests.training.nets import relative_error
from tests.training.torch_networks import torch_step

ONNX: Any = onnx
RNG = np.random.default_rng(6)
OPTIMIZERS = {
    "sgd{lr=0.1}": "Momentum",
    "sgd{lr=0.1 momentum=0.9 dampening=0.25 weight-decay=0.01}": "Momentum",
    "sgd{lr=0.1 momentum=0.8 nesterov=yes}": "Momentum",
    "adam{lr=0.01 weight-decay=0.02 eps=0}": "Adam",
    "adam{lr=0.01 betas=0.8,0.99 eps=0}": "Adam",
    "adagrad{lr=0.1 lr-decay=0.2 weight-decay=0.01}": "Adagrad",
}


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def perceptron(opset: int = 17, last: str = "", dtype: Any = np.float32) -> onnx.ModelProto:
    """12 → 16 → 5; `last` is an operator behind it."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "w2"], ["m"]),
        helper.make_node("Add", ["m", "b2"], ["scores"]),
    ]
    if last:
        nodes.append(helper.make_node(last, ["scores"], ["p"], axis=1))
    weights = {"w1": f(16, 12) / 4, "b1": f(16) / 9, "w2": f(16, 5) / 4, "b2": f(5) / 9}
    x = np.zeros((8, 12), dtype)
    stored = {k: v.astype(dtype) for k, v in weights.items()}
    model = model_of(nodes, {"x": x}, ["p" if last else "scores"], stored, opset)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(kind, (8, 5)))
    return model


def options(text: str) -> Autodiff:
    return Autodiff.from_spec(Spec.parse(f"autodiff{{{text}}}"))


def exported(model: onnx.ModelProto, text: str, **settings: Any) -> onnx.ModelProto:
    source = Source(data=model.SerializeToString(), label="net.onnx")
    found = onnx.load_from_string(training_model(Onnx(**settings), source, options(text)))
    ONNX.checker.check_model(found)
    return found


class Run:
    """A step whose results are fed back to it."""

    def __init__(self, step: onnx.ModelProto, start: dict[str, Array]) -> None:
        self.graph: Graph = parse(step)
        pairs = [n for n in self.graph.names if n.endswith(".new")]
        types = {i.name: i.type for i in self.graph.inputs}
        zeros = {n.removesuffix(".new"): types[n.removesuffix(".new")] for n in pairs}
        self.held = {n: start.get(n, np.zeros(t.shape, t.dtype.numpy)) for n, t in zeros.items()}

    def __call__(self, x: Array, y: Array, label: str = "labels") -> float:
        found = evaluate(self.graph, {**self.held, "x": x, label: y})
        self.held = {n: found[f"{n}.new"] for n in self.held}
        return float(found["loss"])


def both(model: onnx.ModelProto, text: str, batches: list[tuple[Array, Array]]) -> Run:
    """The exported step and dlc's own on the same data: losses and weights are the same."""
    own = options(text).run(parse(model), Report())
    held = initial_values(own)
    run = Run(exported(model, text), held)
    for x, y in batches:
        found = evaluate(own, {**held, "x": x, "labels": y})
        held = {n: found[n] for n in held}
        assert abs(run(x, y) - float(found["loss"])) < 1e-6 * max(1, abs(float(found["loss"])))
    for name, value in held.items():
        if name in run.held:
            np.testing.assert_allclose(run.held[name], value, rtol=2e-5, atol=1e-6, err_msg=name)
    assert run.held["step"] == len(batches)
    return run


def classified(count: int) -> list[tuple[Array, Array]]:
    return [(f(8, 12), RNG.integers(0, 5, 8)) for _ in range(count)]


# Of Adam the standard adds eps elsewhere: without it the two are the same.
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_are_those_of_dlc(optimizer: str) -> None:
    text = f"loss=cross-entropy optimizer={optimizer} label=labels"
    assert OPTIMIZERS[optimizer] in [n.op_type for n in exported(perceptron(), text).graph.node]
    run = both(perceptron(), text, classified(6))
    assert set(run.held) >= {"w1", "b1", "w2", "b2", "step"}


@pytest.mark.parametrize(
    ("loss", "last"),
    [
        ("cross-entropy{ignore=3}", ""),
        ("cross-entropy{weights=1,2,3,4,5 reduction=sum}", ""),
        ("cross-entropy", "Softmax"),
        ("nll", "LogSoftmax"),
        ("nll{weights=1,2,3,4,5}", "LogSoftmax"),
    ],
)
def test_losses_of_classes(loss: str, last: str) -> None:
    both(perceptron(last=last), f"loss={loss} optimizer=sgd{{lr=0.05}} label=labels", classified(3))


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("loss", ["mse", "mse{reduction=sum}"])
def test_squares_need_no_operator_of_their_own(loss: str, opset: int) -> None:
    batches = [(f(8, 12), f(8, 5)) for _ in range(3)]
    both(perceptron(opset), f"loss={loss} optimizer=sgd{{lr=0.01}} label=labels", batches)


def test_double_precision_stays() -> None:
    batches = [(x.astype(np.float64), y) for x, y in classified(3)]
    run = both(perceptron(dtype=np.float64), "optimizer=adam{lr=0.01 eps=0} label=labels", batches)
    assert {v.dtype for n, v in run.held.items() if n != "step"} == {np.dtype(np.float64)}


def test_some_weights_stay_and_outputs_can_be_kept() -> None:
    step = exported(perceptron(), "optimizer=sgd label=labels wrt=*1 outputs=yes")
    assert [i.name for i in step.graph.input] == ["x", "w1", "b1", "labels", "step", "w1.momentum", "b1.momentum"]
    names = ["loss", "scores", "w1.new", "b1.new", "w1.momentum.new", "b1.momentum.new", "step.new"]
    assert [o.name for o in step.graph.output] == names
    assert {t.name for t in step.graph.initializer} == {"w2", "b2", "one", "learning_rate"}


@pytest.mark.parametrize(
    ("text", "kind", "settings"),
    [
        ("sgd{lr=0.1 momentum=0.9}", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        ("adam{lr=0.002}", torch.optim.Adam, {"lr": 0.002}),
    ],
)
def test_a_residual_network_learns_as_in_torch(text: str, kind: Any, settings: dict[str, float]) -> None:
    module, model = fresh()
    own = {name: v.numpy().copy() for name, v in module.state_dict().items() if v.is_floating_point()}
    run = Run(exported(model, f"optimizer={text} label=labels"), own)
    assert run.held.keys() >= own.keys()
    other = kind(module.parameters(), **settings)
    for x, y in NETWORK.data(4):
        assert abs(run(x, y) - torch_step(module, other, x, y)) < 2e-4
    for name, value in module.state_dict().items():
        if name in own and not name.endswith("running_var"):  # PyTorch's follows the unbiased variance
            assert relative_error(run.held[name], value.numpy()) < 2e-3, name


def test_batch_normalisations_are_those_of_dlc() -> None:
    _, model = fresh()
    for extra in ("", " momentum=0.5", " wrt=!*norm1*", " stored-norms=yes"):
        run = both(model, f"optimizer=sgd{{lr=0.1}} label=labels{extra}", NETWORK.data(2))
        assert ("0.norm2.running_mean" in run.held) == ("stored" not in extra)
        assert ("0.norm1.running_var" in run.held) == (extra in ("", " momentum=0.5"))


@pytest.mark.parametrize("optimizer", ["sgd{lr=0.1 momentum=0.9 weight-decay=0.1}", "adam{lr=0.1}", "adagrad{lr=0.1}"])
def test_the_update_is_what_onnx_itself_computes(optimizer: str) -> None:
    step = exported(perceptron(), f"optimizer={optimizer} label=labels")
    node = next(n for n in step.graph.node if n.name == "update")
    stored = {t.name: numpy_helper.to_array(t) for t in step.graph.initializer}
    types = {i.name: i.type.tensor_type for i in step.graph.input}
    rate, number, *others = node.input
    shapes = {n: [d.dim_value for d in types[n.removesuffix(".gradient")].shape.dim] for n in others}
    feeds = {rate: stored["learning_rate"], number: np.array(4), **{n: np.abs(f(*s)) for n, s in shapes.items()}}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.output]
    graph = helper.make_graph([node], "update", infos, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.preview.training", 1)]
    alone = helper.make_model(graph, opset_imports=imports, ir_version=8)
    evaluator: Any = ReferenceEvaluator(alone)
    want = dict(zip(node.output, evaluator.run(None, feeds), strict=True))
    got = evaluate(parse(alone), feeds)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=1e-6, err_msg=name)


def report(text: str, **settings: Any) -> str:
    with pytest.raises(DlcError) as caught:
        exported(perceptron(**settings), text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label=labels clip=1", "clip has no counterpart"),
        ("label=labels accumulate=4", "accumulate has no counterpart"),
        ("label=labels init=normal", "init has no counterpart"),
        ("label=labels optimizer=sgd{schedule=cosine{steps=9}}", "cosine{steps=9 minimum=0.0} has no counterpart"),
        ("label=labels optimizer=adamw", "takes weight decay off after its step"),
        ("label=labels optimizer=adam{amsgrad=yes}", "keeps no largest mean square"),
        ("label=labels optimizer=rmsprop", "ONNX has no operator for rmsprop"),
        ("label=labels optimizer=lamb", "ONNX has no operator for lamb"),
        ("label=labels loss=cross-entropy{smoothing=0.1}", "no loss for labels that are probabilities, or smoothed"),
        ("label=labels loss=huber", "no loss for the loss huber"),
        ("label=w2", 'has a value named "w2" already'),
        ("label=scores", 'has a value named "scores" already'),
        ("label=labels wrt=w9", 'no parameter is named "w9"'),
    ],
)
def test_what_the_operators_cannot_express_is_refused(text: str, message: str) -> None:
    assert message in report(text)


def test_old_operator_sets_and_half_precision_are_refused() -> None:
    assert "cross-entropy in operator set 9, which has no losses" in report("label=labels", opset=9)
    assert 'optimizers of ONNX take f32 and f64, but "w1" is f16[16,12]' in report("label=labels", dtype=np.float16)
    _, model = fresh()
    model.opset_import[0].version = 13
    for node in model.graph.node:
        kept = [a for a in node.attribute if a.name != "training_mode"]
        del node.attribute[:]
        node.attribute.extend(kept)
    with pytest.raises(DlcError, match="operator set 13 has no BatchNormalization in training mode"):
        exported(model, "label=labels")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dlc.cli.frame import run

    (tmp_path / "net.onnx").write_bytes(perceptron().SerializeToString())
    arguments = [str(tmp_path / "net.onnx"), "--train", "optimizer=adam{lr=1e-3},label=labels"]
    assert run(["export", *arguments, "-o", str(tmp_path / "step.onnx")]) == 0
    assert "feed every NAME.new back as NAME" in capsys.readouterr().out
    step: onnx.ModelProto = ONNX.load(tmp_path / "step.onnx")
    assert "Adam" in [n.op_type for n in step.graph.node]
    assert run(["export", *arguments, "-o", str(tmp_path / "none" / "step.onnx")]) == 2
    assert run(["export", str(tmp_path / "no.onnx"), *arguments[1:], "-o", "step.onnx"]) == 2
    assert run(["export", arguments[0], "--train", "optimizer=adan", "-o", "step.onnx"]) == 2
    report = capsys.readouterr().err
    assert "no.onnx is not a file" in report
    assert "there is no optimizer" in report
