"""Unsupported parts: all of a model's at once, each with its count, its nodes, the reason and what would help."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from building import model_of, parse
from onnx import TensorProto, helper

from dlc import DlcError

X = np.zeros((2, 3), np.float32)


def many() -> onnx.ModelProto:
    """A model with a dozen unsupported parts of all kinds between supported ones."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        *(helper.make_node("Unique", ["r"], [f"u{k}"], name=f"unique{k}") for k in range(7)),
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
