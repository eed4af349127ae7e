"""A program built with --train, run as any other: it predicts with the parameters that it has."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime as ort  # pyright: ignore[reportMissingTypeStubs]
import pytest

from dlc import DlcError, load
from dlc.api.training_program import TrainingProgram
from dlc.base.diagnostics import ExitCode
from dlc.base.types import Array
from tests.cli.conftest import Dlc
from tests.cli.models import small

TRAIN = "loss=cross-entropy,optimizer=sgd{lr=0.5}"


@pytest.fixture(autouse=True)
def built(dlc: Dlc) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    ran = dlc("build", "small.onnx", "-q", "--target", "c{cpu=generic}", "--train", TRAIN, "-o", "out")
    assert ran.code == 0, ran.err


def loaded() -> TrainingProgram:
    return cast("TrainingProgram", load("out"))


def predicted(model: str, x: Array) -> Array:
    session: Any = ort.InferenceSession(model)
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


def test_it_predicts_with_initial_parameters(dlc: Dlc) -> None:
    program = loaded()
    (port,) = program.signature.inputs
    x = np.random.default_rng(1).standard_normal(port.type.shape).astype(np.float32)
    np.save("x.npy", x)
    ran = dlc("run", "out", "x.npy", "-q", "-o", "y.npz")
    assert ran.code == 0, ran.err
    with np.load("y.npz") as found:
        (y,) = found.values()
    np.testing.assert_allclose(y, predicted("small.onnx", x), rtol=1e-5, atol=1e-6)


def test_what_it_learnt_is_a_model_again() -> None:
    program = loaded()
    data, labels = program.arguments
    rng = np.random.default_rng(2)
    x = rng.standard_normal(data.type.shape).astype(np.float32)
    assert program.classes is not None
    y = rng.integers(0, program.classes.count, labels.type.shape)
    losses = [program.train_step(x, y) for _ in range(20)]
    assert losses[-1] < losses[0]
    program.save_onnx("learnt.onnx")
    (scores,) = program(x=x).values()
    np.testing.assert_allclose(predicted("learnt.onnx", x), scores, rtol=1e-5, atol=1e-6)
    assert not np.allclose(predicted("small.onnx", x), scores, rtol=1e-3)


def test_a_template_that_was_changed_is_not_filled() -> None:
    program = loaded()
    (template,) = Path("out").glob("*_template.onnx")
    template.write_bytes(template.read_bytes() + b"\0")
    with pytest.raises(DlcError, match="is not the file that the manifest describes"):
        program.save_onnx("learnt.onnx")
    assert not Path("learnt.onnx").exists()


@pytest.mark.parametrize("reference", ["onnxruntime", "numpy"])
def test_it_is_verified_by_the_model_that_it_holds(dlc: Dlc, reference: str) -> None:
    ran = dlc("verify", "out", "--reference", reference)
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"reference: {reference}\n") and ran.out.rstrip().endswith("ok")


def test_parameters_that_differ_from_those_of_the_model_are_found(dlc: Dlc) -> None:
    begun = "loss=cross-entropy,init=kaiming-uniform,seed=3"
    assert dlc("build", "small.onnx", "-q", "--target", "c{cpu=generic}", "--train", begun, "-o", "other").code == 0
    assert dlc("verify", "other", "-q").code == 0
    for reference in ("onnxruntime", "numpy"):
        ran = dlc("verify", "other", "-q", "--model", "small.onnx", "--reference", reference)
        assert ran.code == ExitCode.MISMATCH and "MISMATCH" in ran.out
