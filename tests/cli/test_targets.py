"""Every target, with every pipeline that leads to it, does as typed what the others do: build, run and verify."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlc.api.program import Port, Signature
from dlc.base.diagnostics import ExitCode
from dlc.base.types import Type, f32
from dlc.plugins.discovery import load_registry
from dlc.runtime.array_program import ArrayProgram
from tests.cli.conftest import Dlc
from tests.cli.models import model, small
from tests.cli.test_program_files import perceptron
from tests.models.building import reference

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURE, SCORES = str(EXAMPLES / "digit.pb"), str(EXAMPLES / "digit_scores.pb")
TRAIN = ("--train", "loss=cross-entropy")
TARGETS = ("c", "s2train")
PIPELINES = {name: "s2train" if name.startswith("s2train") else "c" for name in load_registry().pipelines}
"""Pipeline → the backend that it leads to."""


@pytest.fixture(autouse=True)
def there() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("net.onnx").write_bytes(perceptron().SerializeToString())


# ---- as typed ----
@pytest.mark.parametrize("target", TARGETS)
def test_the_example_is_built_run_and_verified(dlc: Dlc, target: str) -> None:
    example = str(EXAMPLES / "mnist.onnx")
    assert dlc("build", example, "--target", target, "-o", "out", "-q").code == 0
    ran = dlc("run", "out", PICTURE, "--json").document
    assert max(range(4), key=ran["outputs"][0]["first"].__getitem__) == 2
    for line in (
        ("out", PICTURE, "-e", SCORES),
        (example, "-t", target),
        (example, "-t", target, PICTURE, "-e", SCORES),
    ):
        found = dlc("verify", *line)
        assert (found.code, "  ok" in found.out) == (0, True), found


def test_the_digits_are_built_trained_run_and_verified(dlc: Dlc) -> None:
    """The commands of the README, with what another runtime computes as the expected outputs."""
    target, model = ("--target", "s2train"), EXAMPLES / "digits" / "lenet.onnx"
    lenet = (str(model), "--dim", "batch=32")
    x = np.load(EXAMPLES / "digits" / "digits_test.npz")["x"][:32].astype(np.float32) / 16
    np.savez("x.npz", x=x)
    np.savez("scores.npz", scores=reference(model, {"x": x})["scores"])
    expected = ("x.npz", "-e", "scores.npz")
    assert dlc("build", *lenet, *target, "-o", "out", "-q").code == 0
    assert dlc("run", "out", "x.npz", "-q").code == 0
    for line in (("out", *expected), ("out", "x.npz", "--model", lenet[0]), (*lenet, *target, *expected)):
        assert dlc("verify", *line).code == 0
    data = str(EXAMPLES / "digits" / "digits_train.npz")
    assert dlc("train", "out", "--data", data).code == ExitCode.USAGE

    assert dlc("build", *lenet, *target, *TRAIN, "-o", "learns", "-q").code == 0
    assert dlc("verify", "learns", *expected).code == 0
    assert dlc("train", "learns", "--data", data, "--epochs", "1", "--export", "learnt.onnx", "-q").code == 0
    assert dlc("verify", "learnt.onnx", *lenet[1:], *target, "x.npz").code == 0


# ---- what a target makes ----
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_trains_where_it_is_asked_to(dlc: Dlc, target: str) -> None:
    line = ("build", "net.onnx", "--target", target, "--stop-after", "plan-memory", "--json")
    inference = dlc(*line).document
    assert not any(step["step"].startswith("autodiff") for step in inference["steps"])
    learning = dlc(*line, *TRAIN).document
    assert any(step["step"].startswith("autodiff") for step in learning["steps"])


@pytest.mark.parametrize("by", ["auto", "numpy"])
@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_every_pipeline_is_verified(dlc: Dlc, name: str, by: str) -> None:
    """A pipeline that leaves instructions of a target computes what the model does, or the step that it begins with."""
    ran = dlc("verify", "net.onnx", "-t", PIPELINES[name], "-p", name, "--reference", by)
    assert ran.code == 0, ran.err
    assert "  ok" in ran.out


def test_passes_that_compute_something_else_leave_what_can_be_interpreted() -> None:
    """A reference follows them by evaluating what they leave: instructions of a target have no definition."""
    from dlc.base.report import Report
    from dlc.graph import Constant, Input, Tensor, evaluate, make_graph
    from dlc.ops.elementwise import Mul
    from dlc.spec import Spec

    registry = load_registry()
    x = Input("x", Type(f32, (3,)))
    graph = make_graph((x,), {"y": Mul(x, Constant(Tensor.of(np.ones(3, np.float32)), "w"))})
    options = {"gradient": "gradient{wrt=x}", "jvp": "jvp{wrt=x}", "autodiff": "autodiff{loss=mse}"}
    for name, entry in registry.passes.items():
        if entry.load().computes_other:
            found = registry.stage(Spec.parse(options[name])).run(graph, Report())
            feeds = {i.name: np.ones(i.shape, i.dtype.numpy) for i in found.inputs}
            assert evaluate(found, feeds)


@pytest.mark.parametrize("target", TARGETS)
def test_scalars_are_scalars(dlc: Dlc, target: str) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("ReduceMean", ["r"], ["y"], name="mean", keepdims=0),
    ]
    Path("mean.onnx").write_bytes(model(nodes, [("x", [2, 3, 4, 4])], [("y", [])]).SerializeToString())
    ran = dlc("verify", "mean.onnx", "--target", target)
    assert (ran.code, "  ok" in ran.out) == (0, True), ran


def test_scalars_of_functions_on_arrays_are_scalars() -> None:
    port = Port("y", Type(f32, ()))
    program = ArrayProgram(Signature((), (port,)), lambda: (np.array(3, np.float32),))
    assert program()["y"].shape == ()
    given = np.zeros((), np.float32)
    assert program(out={"y": given})["y"] is given
    assert given == 3


@pytest.mark.parametrize("target", TARGETS)
def test_an_output_may_be_called_like_the_labels(dlc: Dlc, target: str) -> None:
    from onnx import helper, numpy_helper

    stored = [numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "w")]
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], name="head", transB=1)]
    Path("named.onnx").write_bytes(model(nodes, [("x", [2, 3])], [("y", [2, 4])], stored).SerializeToString())
    ran = dlc("build", "named.onnx", "--target", target, *TRAIN, "--stop-after", "emit", "-q")
    assert ran.code == 0, ran.err


# ---- --stats ----
def test_stats_of_instructions(dlc: Dlc) -> None:
    """A row for each instruction; together they are what the build tells."""
    ran = dlc("build", "net.onnx", "--target", "s2train", *TRAIN, "-o", "out", "--stats", "--json").document
    rows = [row for row in ran["stats"]["instructions"] if row["entry"] == "step"]
    assert len(rows) == ran["memory"]["instructions"] > 0
    assert sum(row["macs"] for row in rows) == ran["memory"]["macs"] > 0
    assert sum(row["cycles"] for row in rows) == ran["memory"]["cycles_parallel"] > 0
    text = dlc("build", "net.onnx", "--target", "s2train", *TRAIN, "-o", "out", "--stats", "-q").out
    assert text.startswith("predict:\n#  instruction ")
    assert text.count("\ntotal: instructions: ") == 3
    assert "kernel" not in text


def test_stats_of_instructions_that_are_not_there_yet(dlc: Dlc) -> None:
    ran = dlc("build", "net.onnx", "--target", "s2train", "--stats", "--stop-after", "s2-select")
    assert ran.code == ExitCode.USAGE
    assert "--stats: s2train counts in the whole program, which s2-select does not give" in ran.err


def test_stats_say_what_they_do_not_count() -> None:
    """A target whose operations are no kernels, and which tells nothing of them."""
    from dlc_backend_s2train.instruction import S2Host

    from dlc.cli.stats import stats_of
    from dlc.graph import Input, make_graph

    x = Input("x", Type(f32, (4,)))
    graph = make_graph((x,), {"y": S2Host((x,), "", (((4,), 0),), (Type(f32, (4,)),))})
    step: Any = SimpleNamespace(handle=SimpleNamespace(kind="graph", value=graph))
    found = stats_of([step])
    assert found.json()["uncounted"] == 1
    assert str(found).endswith("0 multiply-adds; 1 operation of the target, not counted")
