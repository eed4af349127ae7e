"""Models for the command line: a small good one, one with a symbolic dimension, and the bad ones."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EVIL = '*/ int injected; /* "quoted"\nnext\u202eline \\'
"""Ends a C comment, a C string, a line, and the direction of text."""


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, Sequence[int | str]]],
    outputs: Sequence[tuple[str, Sequence[int | str] | None]],
    stored: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """A model of 32-bit floats."""

    def infos(found: Sequence[tuple[str, Sequence[int | str] | None]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in found]

    graph = helper.make_graph(list(nodes), "g", infos(list(inputs)), infos(outputs), list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def small(batch: int | str = 2) -> onnx.ModelProto:
    """y = relu(x · w + b) with whole numbers, so that every machine computes the same."""
    w = np.array([[1, -2, 3, 0], [0, 1, -1, 2], [2, 0, 1, -3]], np.float32)
    b = np.array([1, 0, -2, 5], np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="product"),
        helper.make_node("Add", ["xw", "b"], ["sum"], name="bias"),
        helper.make_node("Relu", ["sum"], ["y"], name="positive"),
    ]
    return model(
        nodes,
        [("x", [batch, 3])],
        [("y", [batch, 4])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )


def with_external_data(location: str) -> onnx.ModelProto:
    """y = x + w, where w lies in another file."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    w.external_data.add(key="location", value=location)
    return model([helper.make_node("Add", ["x", "w"], ["y"], name="add")], [("x", [2, 3])], [("y", [2, 3])], [w])


def cyclic() -> onnx.ModelProto:
    """Two nodes that read each other's results."""
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
    ]
    return model(nodes, [("x", [2, 3])], [("b", [2, 3])])


def negative() -> onnx.ModelProto:
    """An input with a negative dimension."""
    return model([helper.make_node("Relu", ["x"], ["y"], name="relu")], [("x", [2, -3])], [("y", [2, -3])])


def enormous() -> onnx.ModelProto:
    """300 bytes that ask for a tensor of 40 GB."""
    shape = numpy_helper.from_array(np.array([100_000, 100_000], np.int64), "shape")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["c"], name="fill"),
        helper.make_node("Add", ["x", "c"], ["y"], name="add"),
    ]
    return model(nodes, [("x", [1])], [("y", None)], [shape])


def evil(operator: str = "Exp") -> onnx.ModelProto:
    """Names that try to leave wherever they are written to."""
    nodes = [
        helper.make_node("Relu", [f"{EVIL}x"], [f"{EVIL}t"], name=f"{EVIL}1"),
        helper.make_node(operator, [f"{EVIL}t"], [f"{EVIL}y"], name=f"{EVIL}2"),
    ]
    made = model(nodes, [(f"{EVIL}x", [2, 3])], [(f"{EVIL}y", [2, 3])])
    made.producer_name, made.doc_string = EVIL, EVIL
    return made
