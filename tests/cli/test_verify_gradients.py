"""`dlc verify --gradients`, and `dlc verify` of pipelines that differentiate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from dlc.base.diagnostics import ExitCode
from dlc.base.types import Array
from dlc.graph import Op, Splat
from dlc.ops.elementwise import Mul, Relu
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.conftest import Golden
from tests.training.torch_networks import NETWORKS

X = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def files() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    np.save("x.npy", X)


def test_gradients_of_the_outputs_by_the_weights(dlc: Dlc) -> None:
    found = dlc("verify", "small.onnx", "x.npy", "--gradients", "--json").document
    assert found["ok"] and found["torch"] is True
    assert [(w["name"], w["ok"], w["directions"], w["settled"]) for w in found["weights"]] == [
        ("w", True, 4, 4),
        ("b", True, 4, 4),
    ]
    assert all(w["error"] <= 1e-8 and w["torch"] <= 1e-12 for w in found["weights"])


def test_by_inputs_and_of_a_loss(dlc: Dlc) -> None:
    ran = dlc("verify", "small.onnx", "--gradients", "--grad", "x", "--samples", "3", "--json").document
    assert [(w["name"], w["directions"]) for w in ran["weights"]] == [("x", 6)]
    found = dlc("verify", "small.onnx", "--gradients", "--train", "loss=mse,wrt=b", "--json").document
    assert [w["name"] for w in found["weights"]] == ["b"] and found["of"] == "mse" and found["ok"]


def test_the_whole_of_a_network(dlc: Dlc) -> None:
    net = NETWORKS["lenet"]
    module = net.module()
    Path("net.onnx").write_bytes(net.onnx(module, 1))
    ((x, y),) = net.data(1, 1)
    np.savez("batch.npz", x=x, y=y)
    found = dlc("verify", "net.onnx", "batch.npz", "--gradients", "--train", "loss=cross-entropy", "--json").document
    loss = torch.nn.functional.cross_entropy(module.double()(torch.tensor(x).double()), torch.tensor(y))
    assert found["value"] == pytest.approx(loss.item(), rel=1e-12)
    assert {w["name"] for w in found["weights"]} == {name for name, _ in module.named_parameters()}
    assert found["ok"] and all(w["error"] <= 1e-6 and w["torch"] <= 1e-9 for w in found["weights"])


def too_much(self: Relu, *seeds: Op | None) -> Sequence[Op | None] | None:
    """A gradient of relu that is a third too large, and goes through where it should not."""
    del self
    (seed,) = seeds
    assert seed is not None
    return [Mul(seed, Splat(1.3, seed.type))]


@pytest.mark.parametrize("reference", ["numpy", "torch"])
def test_a_wrong_gradient_is_found(dlc: Dlc, monkeypatch: pytest.MonkeyPatch, golden: Golden, reference: str) -> None:
    np.save("x.npy", np.array([[1, 2, 1], [3, 1, 0]], np.float32))
    monkeypatch.setattr(Relu, "vjp", too_much)
    ran = dlc("verify", "small.onnx", "x.npy", "--gradients", "--reference", reference, "--json")
    assert ran.code == ExitCode.MISMATCH
    for w in ran.document["weights"]:
        assert not w["ok"]
        if reference == "torch":
            assert w["torch"] > 0.1
    if reference == "numpy":
        ran = dlc("verify", "small.onnx", "x.npy", "--gradients", "--reference", reference, "-q")
        golden("verify/gradients_wrong.txt", ran.transcript())


def test_where_no_difference_settles_nothing_is_said_to_be_right(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function whose values are noise: no two differences agree."""
    rng = np.random.default_rng(0)

    def noise(self: Relu, x: Array) -> Array:
        return np.maximum(x, 0) + np.asarray(rng.standard_normal(x.size)).reshape(x.shape)

    monkeypatch.setattr(Relu, "evaluate", noise)
    ran = dlc("verify", "small.onnx", "x.npy", "--gradients", "--reference", "numpy", "-q")
    assert ran.code == ExitCode.MISMATCH
    assert ran.out.count("UNDECIDED: no difference settles") == 2
    assert " 0/4 " in ran.out


def test_a_value_that_is_not_finite(dlc: Dlc) -> None:
    np.save("x.npy", np.full((2, 3), np.inf, np.float32))
    ran = dlc("verify", "small.onnx", "x.npy", "--gradients", "-q")
    assert ran.code == ExitCode.MISMATCH and "error[not-finite]" in ran.err


MISTAKES = {
    "no_weights": (["blur.kernel", "--gradients"], "--grad INPUT differentiates with respect to an input"),
    "directory": ([".", "--gradients"], "give the model's file"),
    "pipeline": (["small.onnx", "--gradients", "-p", "infer"], "--gradients builds no program"),
    "expected": (["small.onnx", "--gradients", "-e", "x.npy"], "--expected: gradients are compared with differences"),
    "reference": (["small.onnx", "--gradients", "--reference", "onnxruntime"], "not a reference for gradients"),
    "both": (["small.onnx", "--gradients", "--grad", "x", "--train", ""], "differentiated with respect to the weights"),
    "train": (["small.onnx", "--train", "loss=mse"], "only --gradients asks for it"),
    "samples": (["small.onnx", "--samples", "3"], "only --gradients asks for it"),
    "loss": (["small.onnx", "--gradients", "--train", "loss=mean"], "there is no loss"),
    "weight": (["small.onnx", "--gradients", "--train", "wrt=c,loss=mse"], "from  --train: column 5"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(dlc: Dlc, name: str) -> None:
    Path("blur.kernel").write_text("B<4>[i] = A<4>[i] * 2;")
    words, said = MISTAKES[name]
    ran = dlc("verify", *words, "-q")
    assert ran.code == ExitCode.USAGE and ran.out == ""
    assert said in ran.err


def test_a_training_step_is_verified_as_what_it_is(dlc: Dlc) -> None:
    """Weights and states with what they start with, labels random, against the interpreter of the step."""
    step = "autodiff{loss=mse optimizer=adam{lr=0.1} outputs=yes},infer"
    found = dlc("verify", "small.onnx", "x.npy", "-p", step, "--json").document
    assert found["ok"] and found["reference"] == "numpy"
    names = [o["name"] for o in found["outputs"]]
    assert names == ["loss", "y", "w", "b", "w.mean", "w.square", "b.mean", "b.square", "step"]
    assert dlc("verify", "small.onnx", "-p", "gradient{wrt=x},infer", "-q").code == ExitCode.OK
    assert dlc("verify", "small.onnx", "-p", "infer", "-q").out.startswith("reference: onnxruntime")


def test_an_integer_result_has_no_gradients(dlc: Dlc) -> None:
    Path("twice.kernel").write_text("kernel twice(x: int[8], w: float[8]) -> (y: int[8]) { y[i] = x[i] * 2; }")
    for by in ("x", "w"):
        ran = dlc("verify", "twice.kernel", "--gradients", "--grad", by)
        assert ran.code == ExitCode.USAGE, ran.err
        assert "the model has no output of a float type" in ran.err


def test_a_kernel_inside_of_an_onnx_model_is_compared_with_what_can_compute_it(dlc: Dlc) -> None:
    node = helper.make_node("Twice", ["x"], ["y"], domain="dlc.kernel", kernel="A<4>[i] = B<4>[i] * 2;")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("dlc.kernel", 1)]
    model = helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=opsets, ir_version=8)
    Path("own.onnx").write_bytes(model.SerializeToString())
    found = dlc("verify", "own.onnx", "--json").document
    assert found["ok"] and found["reference"] == "numpy"
    assert dlc("verify", "own.onnx", "--reference", "onnxruntime").code == ExitCode.TOOL
