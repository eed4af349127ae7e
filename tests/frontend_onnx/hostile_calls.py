"""Models whose functions or branches are wrong in one way each."""

from __future__ import annotations

import numpy as np
import onnx
from hostile import Change
from onnx import helper


def function_of(name: str, calls: list[str], m: onnx.ModelProto) -> None:
    """Add `name(a) = calls[…](… calls[0](a))` to the model."""
    nodes = [helper.make_node(c, [f"v{k}"], [f"v{k + 1}"], domain="own") for k, c in enumerate(calls)]
    last = helper.make_node("Neg", [f"v{len(calls)}"], ["out"])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    m.functions.append(helper.make_function("own", name, ["v0"], ["out"], [*nodes, last], imports))


def called(m: onnx.ModelProto, name: str) -> None:
    m.opset_import.append(helper.make_opsetid("own", 1))
    m.graph.node[1].CopyFrom(helper.make_node(name, ["g"], ["r"], name="call", domain="own"))


def recursive_function(m: onnx.ModelProto) -> None:
    function_of("F", ["F"], m)
    called(m, "F")


def functions_that_call_each_other(m: onnx.ModelProto) -> None:
    function_of("F", ["G"], m)
    function_of("G", ["F"], m)
    called(m, "F")


def functions_that_call_each_other_twice(m: onnx.ModelProto) -> None:
    for k in range(22):
        function_of(f"F{k}", [f"F{k + 1}"] * 2, m)
    function_of("F22", [], m)
    called(m, "F0")


def functions_in_a_long_chain(m: onnx.ModelProto) -> None:
    for k in range(2000):
        function_of(f"F{k}", [f"F{k + 1}"], m)
    function_of("F2000", [], m)
    called(m, "F0")


def function_without_its_result(m: onnx.ModelProto) -> None:
    function_of("F", [], m)
    m.functions[0].output[0] = "nowhere"
    called(m, "F")


def function_with_too_many_operands(m: onnx.ModelProto) -> None:
    function_of("F", [], m)
    called(m, "F")
    m.graph.node[1].input.append("x")


def if_of(then: onnx.GraphProto, m: onnx.ModelProto) -> None:
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
    empty = helper.make_graph([], "branch", [], [helper.make_empty_tensor_value_info("v")])
    node = helper.make_node("If", ["yes"], ["r"], name="if", then_branch=then, else_branch=empty)
    m.graph.node[1].CopyFrom(node)


def branch(inner: onnx.NodeProto, result: str) -> onnx.GraphProto:
    return helper.make_graph([inner], "branch", [], [helper.make_empty_tensor_value_info(result)])


def deep_branches(m: onnx.ModelProto) -> None:
    graph = branch(helper.make_node("Neg", ["g"], ["v"]), "v")
    for _ in range(26):
        empty = helper.make_graph([], "branch", [], [helper.make_empty_tensor_value_info("v")])
        graph = branch(helper.make_node("If", ["yes"], ["v"], then_branch=graph, else_branch=empty), "v")
    if_of(graph, m)


def branch_without_nodes(m: onnx.ModelProto) -> None:
    if_of(helper.make_graph([], "branch", [], [helper.make_empty_tensor_value_info("v")]), m)


def branch_without_its_result(m: onnx.ModelProto) -> None:
    if_of(branch(helper.make_node("Neg", ["g"], ["v"]), "nowhere"), m)


def branch_that_reads_nothing_defined(m: onnx.ModelProto) -> None:
    if_of(branch(helper.make_node("Neg", ["nowhere"], ["v"]), "v"), m)


def computed_condition(m: onnx.ModelProto) -> None:
    if_of(branch(helper.make_node("Neg", ["g"], ["v"]), "v"), m)
    m.graph.node[1].input[0] = "x"


CHANGES: list[tuple[Change, str]] = [
    (recursive_function, "recursion"),
    (functions_that_call_each_other, "recursion"),
    (functions_that_call_each_other_twice, "too-large"),
    (functions_in_a_long_chain, "unsupported-op"),
    (function_without_its_result, "unsupported-op"),
    (function_with_too_many_operands, "unsupported-op"),
    (deep_branches, "unsupported-op"),
    (branch_without_nodes, "unsupported-op"),
    (branch_without_its_result, "unsupported-op"),
    (branch_that_reads_nothing_defined, "undefined"),
    (computed_condition, "shape"),
]
