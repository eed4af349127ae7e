"""Small real models of several exporters, with the outputs that came with them or onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.frontend import Onnx
from onnx import numpy_helper

from dlc import DlcError, Report, Source
from dlc.runtime.loading import load
from tests.models.building import Bench, assert_close, random_inputs, reference
from tests.models.writing import Array

DATA = Path(__file__).parents[1] / "data" / "models"


@dataclass(frozen=True)
class Case:
    """A model, and what `dlc build` needs to know about its shapes."""

    file: str
    flags: tuple[str, ...] = ()
    exact: bool = False
    """Quantised: onnxruntime's fused kernels differ from its own single ones by one step, so those are the oracle."""


CASES = {
    "mnist, CNTK": Case("mnist_cntk/model.onnx"),
    "mnist, torch": Case("mnist_mlp/model.onnx"),
    "mnist, ConvInteger": Case("quantised/model.onnx"),
    "super resolution": Case("super_resolution/model.onnx", ("--dim", "batch_size=1")),
    "super resolution, batch of 2": Case("super_resolution/model.onnx", ("--input", "input:2x1x224x224")),
    "tiny vit": Case("tinyvit/model.onnx"),
    "compact transformer": Case("cct_vit/model.onnx"),
    "keywords": Case("micro_kws/fp32.onnx"),
    "keywords, quantised": Case("micro_kws/qdq.onnx", ("--dim", "unk__68=1"), exact=True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_outputs_are_those_of_onnxruntime(name: str, bench: Bench, place: Path) -> None:
    case = CASES[name]
    built = bench.build(DATA / case.file, place, *case.flags)
    feeds = random_inputs(built.program)
    assert_close(built(feeds), reference(built.source, feeds, optimised=not case.exact))


def stored(folder: Path) -> list[tuple[Array, Array]]:
    """Inputs and outputs that came with a model, which has one of each."""
    if (folder / "inputs.npz").exists():
        inputs, outputs = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
        return [(inputs[inputs.files[0]], outputs[outputs.files[0]])]
    files = sorted(folder.glob("*_input_0.pb"))
    return [(_tensor(file), _tensor(file.with_name(file.name.replace("input", "output")))) for file in files]


def _tensor(file: Path) -> Array:
    proto = onnx.TensorProto()
    proto.ParseFromString(file.read_bytes())
    return numpy_helper.to_array(proto)


@pytest.mark.parametrize("name", ["mnist_cntk", "tinyvit", "cct_vit"])
def test_the_outputs_are_those_that_came_with_the_model(name: str, bench: Bench, place: Path) -> None:
    program = bench.build(DATA / name / "model.onnx", place).program
    pairs = stored(DATA / name)
    assert pairs
    (port,) = program.signature.inputs
    for x, want in pairs:
        feeds: dict[str, Any] = {port.name: x.reshape(port.type.shape)}
        (got,) = program(**feeds).values()
        np.testing.assert_allclose(got.reshape(-1), want.reshape(-1), rtol=1e-3, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize(("name", "width"), [("digits_pca_mlp", 64), ("wine_nb", 13)])
def test_the_classes_are_those_that_scikit_learn_predicts(name: str, width: int, bench: Bench, place: Path) -> None:
    known: Mapping[str, Array] = np.load(DATA / "tabular" / f"{name}.npz")
    bench.build(DATA / "tabular" / f"{name}.onnx", place, "--input", f"X:16x{width}")
    label, probabilities = load(place)(X=known["x"]).values()
    np.testing.assert_array_equal(label, known["sklearn_predict"])
    np.testing.assert_allclose(probabilities, known["out1"], rtol=1e-4, atol=1e-5)


def test_a_training_step_is_refused_with_all_that_is_not_supported() -> None:
    with pytest.raises(DlcError) as caught:
        Onnx().parse(Source(DATA / "training" / "model.onnx", label="model.onnx"), Report())
    assert [d.message for d in caught.value.diagnostics] == [
        "Squeeze, 1 node: axes is an attribute, which version 13 made an operand",
        "Squeeze, 1 node: attribute axes is a number, not a list",
        "SoftmaxCrossEntropyLossGrad, 1 node: it has no cotangent of the loss",
        "SoftmaxCrossEntropyLossGrad, 1 node: its operand is the loss, not the logarithms of probabilities",
        "SGD, 2 nodes: the standard has no such operator",
    ]
    assert all(d.help.startswith("--lenient reads it ") for d in caught.value.diagnostics)


@pytest.mark.parametrize(
    ("file", "tolerance"),
    [("training/model.onnx", 1e-6), ("cct_train_ft2/network.onnx", 2e-4)],
    ids=["small", "compact"],
)
def test_a_training_step_that_onnxruntime_made_gives_the_stored_weights(
    file: str, tolerance: float, bench: Bench, place: Path
) -> None:
    """Those of the compact transformer come from another graph than the file has: there the derivative of Gelu is taken
    where a bias was added, in the file before it is added."""
    model = DATA / file
    program = bench.build(model, place, "--lenient").program
    feeds: dict[str, Any] = dict(np.load(model.parent / "inputs.npz"))
    want, got = np.load(model.parent / "outputs.npz"), program(**feeds)
    assert set(got) == set(want)
    for name, weights in got.items():
        assert np.abs(weights - want[name]).max() <= tolerance * np.abs(want[name]).max()
