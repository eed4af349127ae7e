"""Import rules against ONNX's reference implementation, over versions of the operator set."""

from __future__ import annotations

import numpy as np
import pytest
from building import compare, model_of, parse
from cases import CASES, RNG, Case, f, i
from dlc_frontend_onnx.ops.math import BINARY, UNARY
from dlc_frontend_onnx.ops.reduce import REDUCTIONS
from dlc_frontend_onnx.rules import own_rules
from onnx import AttributeProto, helper

from dlc.graph import Constant, Splat

FLAT = [(case, opset) for case in CASES for opset in case.opsets]


@pytest.mark.parametrize(("case", "opset"), FLAT, ids=[f"{c}-{o}-{k}" for k, (c, o) in enumerate(FLAT)])
def test_a_rule_equals_the_reference(case: Case, opset: int) -> None:
    arrays = {f"x{k}": np.asarray(v) for k, v in enumerate(case.operands)}
    outputs = [f"y{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, list(arrays), outputs, **case.attributes)
    fixed = {k: v for n, (k, v) in enumerate(arrays.items()) if n in case.fixed}
    feeds = {k: v for k, v in arrays.items() if k not in fixed}
    compare(model_of([node], feeds, outputs, fixed, opset), feeds, case.oracle)


DOMAIN = {"Acos": (-0.9, 0.9), "Asin": (-0.9, 0.9), "Atanh": (-0.9, 0.9), "Acosh": (1.1, 3), "Log": (0.1, 3)}


@pytest.mark.parametrize("op", sorted(UNARY))
def test_unary(op: str) -> None:
    low, high = DOMAIN.get(op, (0.1, 2) if op == "Sqrt" else (-2, 2))
    x = RNG.uniform(low, high, (3, 4)).astype(np.float32)
    x = x > 0 if op == "Not" else x.astype(np.int32) if op == "BitwiseNot" else x
    compare(model_of([helper.make_node(op, ["x"], ["y"])], {"x": x}, ["y"], opset=18), {"x": x})


@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary(op: str) -> None:
    a, b = f(2, 3, 4), f(3, 1)
    if op in ("And", "Or", "Xor"):
        a, b = a > 0, b > 0
    if op.startswith("Bitwise"):
        a, b = (a * 100).astype(np.int16), (b * 100).astype(np.int16)
    compare(model_of([helper.make_node(op, ["a", "b"], ["y"])], {"a": a, "b": b}, ["y"]), {"a": a, "b": b})


@pytest.mark.parametrize("op", sorted(REDUCTIONS))
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(op: str, keep: int) -> None:
    x = np.abs(f(2, 3, 4)) + np.float32(0.1)
    old = helper.make_node(op, ["x"], ["y"], axes=[1], keepdims=keep)
    compare(model_of([old], {"x": x}, ["y"], opset=11), {"x": x})
    new = helper.make_node(op, ["x", "axes"], ["y"], keepdims=keep)
    compare(model_of([new], {"x": x}, ["y"], {"axes": i(0, -1)}, opset=18), {"x": x})


@pytest.mark.parametrize("op", ["HardSwish", "MeanVarianceNormalization", "CenterCropPad", "Attention"])
def test_operators_without_a_rule_are_read_as_the_function_of_their_schema(op: str) -> None:
    x = f(2, 3, 4, 5)
    if op == "CenterCropPad":
        node = helper.make_node(op, ["x", "to"], ["y"])
        compare(model_of([node], {"x": x}, ["y"], {"to": i(2, 4, 4, 2)}, opset=18), {"x": x})
    elif op == "Attention":
        feeds = {"q": f(1, 2, 3, 4), "k": f(1, 2, 5, 4), "v": f(1, 2, 5, 4)}
        compare(model_of([helper.make_node(op, list(feeds), ["y"])], feeds, ["y"], opset=23), feeds)
    else:
        compare(model_of([helper.make_node(op, ["x"], ["y"])], {"x": x}, ["y"], opset=18), {"x": x})


def test_a_shape_that_is_computed_from_shapes_is_known() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "zeros"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {"zero": np.array(0), "zeros": i(0), "minus": i(-1)}
    x = f(2, 3, 4)
    graph = compare(model_of(nodes, {"x": x}, ["y"], constants), {"x": x})
    assert len(graph.ops) == 2


def test_a_constant_of_a_shape_is_never_stored() -> None:
    shape = i(1 << 20, 1 << 14)
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["c"]),
        helper.make_node("Expand", ["one", "shape"], ["e"]),
        helper.make_node("Slice", ["c", "start", "end"], ["y"]),
        helper.make_node("Slice", ["e", "start", "end"], ["z"]),
    ]
    constants = {"shape": shape, "one": np.array([1], np.float32), "start": i(0, 0), "end": i(1, 2)}
    graph = parse(model_of(nodes, {}, ["y", "z"], constants), max_tensor_bytes=1 << 20)
    assert sorted(type(op) is Splat for op in graph.ops) == [False, False, True, True]
    assert not any(isinstance(op, Constant) for op in graph.ops)


def test_branches_with_a_constant_condition() -> None:
    then = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["t"])], "t", [], [helper.make_empty_tensor_value_info("t")]
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["e"])], "e", [], [helper.make_empty_tensor_value_info("e")]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    x = f(3)
    for condition in (True, False):
        compare(model_of([node], {"x": x}, ["y"], {"c": np.array(condition)}), {"x": x})


def test_functions_of_the_model_itself() -> None:
    node = helper.make_node("Scale", ["x"], ["y"], domain="own", by=3.0)
    model = model_of([node], {"x": f(3)}, ["y"], domains=["own"])
    constant = helper.make_node("Constant", [], ["k"])
    constant.attribute.add(name="value_float", ref_attr_name="by", type=AttributeProto.FLOAT)
    body = [constant, helper.make_node("Mul", ["a", "k"], ["b"])]
    model.functions.append(
        helper.make_function("own", "Scale", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["by"])
    )
    graph = compare(model, {"x": f(3)})
    assert set(graph.origins.values()) == {("Scale_0",)}


def test_functions_of_one_name_are_distinguished_by_their_overload() -> None:
    model = model_of([], {"x": f(3)}, ["y"], opset=21, domains=["own"])
    imports = [helper.make_opsetid("ai.onnx", 21)]
    for overload, op in (("one", "Neg"), ("two", "Abs")):
        node = helper.make_node("F", ["x"], [overload], domain="own", overload=overload)
        model.graph.node.append(node)
        body = [helper.make_node(op, ["a"], ["b"])]
        model.functions.append(helper.make_function("own", "F", ["a"], ["b"], body, imports, overload=overload))
    model.graph.node.append(helper.make_node("Sub", ["one", "two"], ["y"]))
    assert [type(op).__name__ for op in parse(model).ops] == ["Input", "Neg", "Abs", "Sub"]


def test_every_rule_says_what_it_does() -> None:
    undocumented = [r.operator for _, _, found in own_rules().all() for r in found if not r.function.__doc__]
    assert undocumented == []
    assert len(own_rules().support()) > 130
