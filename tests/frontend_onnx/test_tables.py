"""Models of tables (ai.onnx.ml) as skl2onnx writes them, against onnxruntime."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
from building import Array, compare, model_of, parse, runtime
from onnx import TensorProto, helper

from dlc import DlcError
from dlc.graph import evaluate

X = np.random.default_rng(0).standard_normal((11, 3)).astype(np.float32)


def model_with(nodes: list[onnx.NodeProto], outputs: tuple[str, ...]) -> onnx.ModelProto:
    model = model_of(nodes, {"x": X}, outputs, domains=("ai.onnx.ml",))
    for output, kind in zip(model.graph.output, (TensorProto.INT64, TensorProto.FLOAT), strict=False):
        output.type.tensor_type.elem_type = kind
    return model


def machine(classes: int, *, kernel: str, chances: bool = False, positive: bool = False) -> onnx.NodeProto:
    """A support vector machine with random vectors, of which each class has another number."""
    random = np.random.default_rng(classes)
    counts = [k + 2 for k in range(classes)]
    coefficients = random.standard_normal((classes - 1) * sum(counts))
    pairs = classes * (classes - 1) // 2
    more: dict[str, Any] = {}
    if chances:
        more = {"prob_a": random.uniform(-4, -1, pairs).tolist(), "prob_b": random.uniform(-1, 1, pairs).tolist()}
    return helper.make_node(
        "SVMClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        classlabels_ints=[7 - k for k in range(classes)],
        coefficients=(np.abs(coefficients) if positive else coefficients).tolist(),
        kernel_params=[0.5, 0.25, 2.0],
        kernel_type=kernel,
        rho=random.standard_normal(pairs).tolist(),
        support_vectors=random.standard_normal(sum(counts) * 3).tolist(),
        vectors_per_class=counts,
        **more,
    )


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_machine_for_each_pair_of_classes_votes(classes: int, kernel: str) -> None:
    compare(model_with([machine(classes, kernel=kernel)], ("label", "scores")), {"x": X}, runtime)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_of_pairs_are_coupled(classes: int) -> None:
    compare(model_with([machine(classes, kernel="RBF", chances=True)], ("label", "scores")), {"x": X}, runtime)


def test_coefficients_may_all_be_positive() -> None:
    compare(model_with([machine(2, kernel="RBF", positive=True)], ("label", "scores")), {"x": X}, runtime)


def test_a_machine_with_other_numbers_of_vectors_is_refused() -> None:
    node = machine(3, kernel="RBF")
    next(a for a in node.attribute if a.name == "vectors_per_class").ints[0] = 9
    with pytest.raises(DlcError, match="coefficients for"):
        parse(model_with([node], ("label", "scores")))


def zip_map(rows: Array, **labels: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", **labels),
    ]
    model = model_of(nodes, {"x": rows}, ["y"], domains=("ai.onnx.ml",))
    key = TensorProto.INT64 if "classlabels_int64s" in labels else TensorProto.STRING
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    model.graph.output[0].type.CopyFrom(kind)
    return model


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [5, 2, 9]}, {"classlabels_strings": ["b", "a", "c"]}])
def test_maps_from_labels_are_arrays_in_the_order_of_the_labels(labels: dict[str, Any]) -> None:
    model = zip_map(X, **labels)
    session: Any = import_module("onnxruntime").InferenceSession(model.SerializeToString())
    maps: list[dict[Any, float]] = session.run(None, {"x": X})[0]
    (order,) = labels.values()
    (got,) = evaluate(parse(model), {"x": X}).values()
    np.testing.assert_allclose(got, [[row[label] for label in order] for row in maps], rtol=1e-5)


def test_a_map_with_another_number_of_labels_is_refused() -> None:
    with pytest.raises(DlcError, match="2 labels for"):
        parse(zip_map(X, classlabels_int64s=[1, 2]))
