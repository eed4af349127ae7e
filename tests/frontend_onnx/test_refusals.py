"""Unsupported parts: all of a model's at once, each with its count, its nodes, the reason and what would help."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from building import model_of, parse
from onnx import TensorProto, helper, numpy_helper

from dlc import DlcError, ExitCode

X = np.zeros((2, 3), np.float32)


def many() -> onnx.ModelProto:
    """A model with a dozen unsupported parts of all kinds between supported ones."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        *(helper.make_node("StringConcat", ["r", "r"], [f"u{k}"], name=f"text{k}") for k in range(7)),
        helper.make_node("Softmx", ["r"], ["s"], name="typo"),
        helper.make_node("Add", ["s", "u0"], ["a"], name="behind what is refused"),
        helper.make_node("Multinomial", ["x"], ["l"], name="random"),
        helper.make_node("DictVectorizer", ["r"], ["t", "p"], name="trees", domain="ai.onnx.ml"),
        helper.make_node("QOrderedGelu", ["r"], ["q"], name="fused", domain="com.microsoft"),
        helper.make_node("Mine", ["r"], ["m"], name="mine", domain="org.example"),
        helper.make_node("Reshape", ["r", "shape"], ["d"], name="dynamic"),
        helper.make_node("Reshape", ["r", "shape"], ["d2"], name="dynamic again"),
        helper.make_node("BatchNormalization", ["x", "b", "b", "b", "b"], ["n", "u"], name="statistics"),
        helper.make_node("Resize", ["x", "", "two"], ["z"], name="lanczos", mode="lanczos"),
        helper.make_node("Sub", ["r", "wrong"], ["w"], name="shapes"),
        helper.make_node("SequenceConstruct", ["r"], ["q2"], name="sequence"),
    ]
    inputs = {"x": X, "shape": np.zeros(2, np.int64), "wrong": np.zeros(4, np.float32)}
    outputs = [f"u{k}" for k in range(7)] + ["a", "l", "t", "p", "q", "m", "d", "d2", "n", "z", "w", "q2"]
    stored = {"b": np.ones(3, np.float32), "two": np.array([2, 2], np.float32)}
    model = model_of(nodes, inputs, outputs, stored, domains=["ai.onnx.ml", "com.microsoft"])
    text = helper.make_tensor_value_info("text", TensorProto.STRING, [1])
    brain = helper.make_tensor_value_info("brain", TensorProto.COMPLEX64, [1])
    model.graph.input.extend([text, brain])
    return model


def test_all_unsupported_parts_are_reported_at_once(golden: Callable[[str, str], None]) -> None:
    with pytest.raises(DlcError) as caught:
        parse(many())
    golden("unsupported.txt", str(caught.value))


def test_every_node_is_named_to_programs() -> None:
    with pytest.raises(DlcError) as caught:
        parse(many())
    (texts,) = [d for d in caught.value.diagnostics if d.message.startswith("StringConcat")]
    assert texts.nodes == tuple(f"text{k}" for k in range(7))
    assert "text4 and 2 more" in str(caught.value) and "text5" not in str(caught.value)


def lanczos(source: str, name: str = "lanczos") -> onnx.NodeProto:
    """A node whose attribute is not supported, whatever its operand."""
    return helper.make_node("Resize", [source, "", "twice"], [f"{name}.y"], name=name, mode="lanczos")


TWICE = {"twice": np.array([1, 1, 2, 2], np.float32)}


def opened(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    """A model of an image of open size, whose batch has a name."""
    model = model_of(nodes, {"x": np.zeros((1, 3, 1, 1), np.float32)}, outputs, TWICE)
    for k, name in ((0, "batch"), (2, ""), (3, "")):
        dim = model.graph.input[0].type.tensor_type.shape.dim[k]
        dim.ClearField("dim_value")
        if name:
            dim.dim_param = name
    return model


def test_open_dimensions_are_told_with_all_that_is_unsupported() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Mine", ["c"], ["m"], name="mine", domain="org.example"),
        lanczos("c"),
        helper.make_node("MatMul", ["c", "w"], ["s"], name="a size that depends on the guess"),
    ]
    model = opened(nodes, ["m", "lanczos.y", "s"])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 3, 1, 1), np.float32), "w"))
    with pytest.raises(DlcError) as caught:
        parse(model)
    codes = [d.code for d in caught.value.diagnostics]
    assert codes == ["unbound-dimension", "unsupported-op", "unsupported-op"]
    assert "org.example.Mine" in str(caught.value) and "resizing mode lanczos" in str(caught.value)
    assert caught.value.exit_code == ExitCode.MODEL


def test_open_dimensions_alone_are_a_matter_of_flags() -> None:
    with pytest.raises(DlcError) as caught:
        parse(opened([helper.make_node("Conv", ["x", "twice"], ["y"])], ["y"]))
    assert [d.code for d in caught.value.diagnostics] == ["unbound-dimension"]
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("declared", [False, True])
def test_what_lies_behind_a_refused_part_is_found_if_its_type_is_declared(declared: bool) -> None:
    nodes = [
        helper.make_node("Mine", ["x"], ["m"], name="mine", domain="org.example"),
        lanczos("m"),
        helper.make_node("Reshape", ["m", "n"], ["r"], name="contradicts what is declared"),
    ]
    model = model_of(nodes, {"x": X}, ["lanczos.y", "r"], {**TWICE, "n": np.array([7])}, domains=["org.example"])
    if declared:
        model.graph.value_info.append(helper.make_tensor_value_info("m", TensorProto.FLOAT, [1, 3, 4, 4]))
    with pytest.raises(DlcError) as caught:
        parse(model)
    assert len(caught.value.diagnostics) == (2 if declared else 1)
    assert ("lanczos" in str(caught.value)) is declared


def test_one_problem_of_many_nodes_is_told_once() -> None:
    nodes = [helper.make_node("Sub", ["x", "wrong"], [f"y{k}"], name=f"n{k}") for k in range(30)]
    model = model_of(nodes, {"x": X, "wrong": np.zeros(4, np.float32)}, [f"y{k}" for k in range(30)])
    with pytest.raises(DlcError) as caught:
        parse(model)
    (found,) = caught.value.diagnostics
    assert found.code == "shape" and found.nodes == tuple(f"n{k}" for k in range(30))


def test_reasons_of_one_operator_stand_together() -> None:
    nodes = [lanczos("x"), helper.make_node("Mine", ["x"], ["m"], domain="org.example"), lanczos("x", "other")]
    nodes[2].attribute[0].s = b"spline"
    model = model_of(nodes, {"x": np.zeros((1, 3, 4, 4), np.float32)}, ["lanczos.y", "m", "other.y"], TWICE)
    with pytest.raises(DlcError) as caught:
        parse(model)
    heads = [d.message.partition(",")[0] for d in caught.value.diagnostics]
    assert heads == ["Resize", "Resize", "org.example.Mine"]


def test_very_many_operators_are_counted() -> None:
    nodes = [helper.make_node(f"F{k}", ["x"], [f"y{k}"], domain="org.example") for k in range(150)]
    model = model_of(nodes, {"x": X}, [f"y{k}" for k in range(150)], domains=["org.example"])
    with pytest.raises(DlcError) as caught:
        parse(model)
    assert len(caught.value.diagnostics) == 100
    assert "and 50 more operators and reasons, at 50 nodes" in caught.value.diagnostics[-1].notes


def test_what_depends_on_a_refused_part_is_not_refused_for_it() -> None:
    with pytest.raises(DlcError) as caught:
        parse(many())
    assert "behind what is refused" not in str(caught.value)


def test_parts_that_no_output_needs_are_not_looked_at() -> None:
    model = many()
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info("r"))
    del model.graph.input[3:]
    graph = parse(model)
    assert [type(op).__name__ for op in graph.ops] == ["Input", "Relu"]


def test_integers_times_a_fraction_are_refused() -> None:
    x = np.ones((2, 2), np.int32)
    with pytest.raises(DlcError, match="integers times a factor that is not whole"):
        parse(model_of([helper.make_node("Gemm", ["x", "x"], ["y"], alpha=0.5)], {"x": x}, ["y"]))
    parse(model_of([helper.make_node("Gemm", ["x", "x"], ["y"], alpha=2.0)], {"x": x}, ["y"]))
