"""Models of tables (ai.onnx.ml) as skl2onnx writes them, against onnxruntime."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import Array, compare, model_of, parse, runtime
from onnx import TensorProto, helper

from dlc import DlcError, Source, build, load
from dlc.cli.frame import run
from dlc.driver.state_text import op_classes
from dlc.graph import evaluate
from dlc.graph.text import parse_graph, print_graph
from dlc.plugins.discovery import load_registry

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


# ---- texts

KINDS = {
    "label": TensorProto.STRING,
    "best": TensorProto.STRING,
    "word": TensorProto.STRING,
    "same": TensorProto.BOOL,
    "code": TensorProto.INT64,
    "hot": TensorProto.FLOAT,
}
NAMES = ["no", '*/ "é', "yes"]


def classified(classes: list[str]) -> onnx.ModelProto:
    """A linear classifier whose label goes through operators that move it, and a stored text for the best feature."""
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["l", "s"],
            domain="ai.onnx.ml",
            classlabels_strings=classes,
            coefficients=np.random.default_rng(1).standard_normal(9).tolist(),
            intercepts=[0.1, 0.2, 0.3],
        ),
        helper.make_node("Reshape", ["l", "shape"], ["r"]),
        helper.make_node("Identity", ["r"], ["label"]),
        helper.make_node("ArgMax", ["x"], ["k"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "k"], ["best"]),
        helper.make_node("Equal", ["best", "l"], ["same"]),
        helper.make_node(
            "LabelEncoder", ["best"], ["code"], domain="ai.onnx.ml", keys_strings=NAMES[:2], values_int64s=[7, 9]
        ),
        helper.make_node(
            "LabelEncoder", ["code"], ["word"], domain="ai.onnx.ml", keys_int64s=[9], values_strings=["nine"]
        ),
        helper.make_node("OneHotEncoder", ["best"], ["hot"], domain="ai.onnx.ml", cats_strings=NAMES, zeros=1),
    ]
    stored = {"shape": np.array([-1, 1])}
    model = model_of(nodes, {"x": X}, list(KINDS), stored, opset=21, domains=("ai.onnx.ml",))
    model.opset_import[1].version = 2
    texts: Any = [n.encode() for n in NAMES]
    model.graph.initializer.append(helper.make_tensor("names", TensorProto.STRING, [3], texts))
    for output in model.graph.output:
        output.type.CopyFrom(helper.make_tensor_type_proto(KINDS[output.name], None))
    return model


@pytest.mark.parametrize("classes", [NAMES, ["yes", "maybe", "no"]])
def test_labels_that_are_texts_are_numbers_with_the_texts_in_the_interface(classes: list[str], tmp_path: Path) -> None:
    model = classified(classes)
    session: Any = import_module("onnxruntime").InferenceSession(model.SerializeToString())
    want = dict(zip(KINDS, session.run(None, {"x": X}), strict=True))
    source = Source(data=model.SerializeToString(), label="model.onnx")
    program = build(source, output=tmp_path / "out", cache_dir=tmp_path / "cache")
    ports = {p.name: p for p in program.signature.outputs}
    got = program(x=X)
    for name in ("label", "best", "word"):
        assert set(ports[name].labels) == {*NAMES, *classes, "nine", "_Unused"}
        np.testing.assert_array_equal(np.array(ports[name].labels)[got[name]], want[name].astype(str))
    for name in ("same", "code", "hot"):
        np.testing.assert_array_equal(got[name], want[name])
        assert ports[name].labels == ()
    again = build(source, cache_dir=tmp_path / "cache", cache="require")
    assert again.signature == load(tmp_path / "out").signature == program.signature


def test_verify_compares_texts_with_those_of_onnxruntime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        *classified(NAMES).graph.node[:1],
        helper.make_node("Identity", ["l"], ["label"]),
        helper.make_node("ZipMap", ["s"], ["scores"], domain="ai.onnx.ml", classlabels_strings=NAMES),
    ]
    model = model_of(nodes, {"x": X}, ["label", "scores"], domains=("ai.onnx.ml",))
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.STRING, None))
    one = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    rows = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, one))
    model.graph.output[1].type.CopyFrom(rows)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert run(["verify", str(path), "--cache-dir", str(tmp_path / "cache"), "--json"]) == 0
    assert [o["ok"] for o in json.loads(capsys.readouterr().out)["outputs"]] == [True, True]


def test_labels_are_part_of_the_text_of_a_graph() -> None:
    graph = parse(classified(NAMES))
    assert parse_graph(print_graph(graph), op_classes(load_registry())).labels == graph.labels != {}
    assert replace(graph, labels={}) != graph


def test_columns_have_their_labels() -> None:
    assert parse(zip_map(X, classlabels_int64s=[5, 2, 9])).labels == {"y": ("5", "2", "9")}


def test_a_function_may_move_texts() -> None:
    model = classified(NAMES)
    model.graph.node[2].CopyFrom(helper.make_node("Same", ["r"], ["label"], domain="own"))
    body = [helper.make_node("Identity", ["a"], ["b"])]
    model.functions.append(helper.make_function("own", "Same", ["a"], ["b"], body, [helper.make_opsetid("", 21)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert parse(model).labels == parse(classified(NAMES)).labels


def test_computing_with_texts_is_refused() -> None:
    model = classified(NAMES)
    model.graph.node[2].CopyFrom(helper.make_node("Add", ["r", "r"], ["label"]))
    with pytest.raises(DlcError, match="an operand of element type string"):
        parse(model)


def test_other_numbers_of_texts_than_the_shape_says_are_refused() -> None:
    model = classified(NAMES)
    model.graph.initializer[-1].dims[0] = 1 << 62
    with pytest.raises(DlcError, match="3 texts for a tensor of shape"):
        parse(model)
