"""Import rules against ONNX's reference implementation, over versions of the operator set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from building import Oracle, compare, model_of, parse, reference, runtime
from dlc_frontend_onnx import rules
from dlc_frontend_onnx.ops.math import BINARY, UNARY
from dlc_frontend_onnx.ops.reduce import REDUCTIONS
from onnx import AttributeProto, helper

from dlc.graph import Constant, Splat

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


@dataclass
class Case:
    """One node, its operands (constant ones by position in `fixed`), and the versions to try."""

    op: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: tuple[int, ...] = ()
    opsets: tuple[int, ...] = (13, 21)
    outputs: int = 1
    oracle: Oracle = reference
    """onnxruntime where the reference deviates from the specification; a comment at the case says how."""

    def __str__(self) -> str:
        return f"{self.op}-{'-'.join(f'{k}_{v}' for k, v in self.attributes.items() if not hasattr(v, 'name'))}"


IMAGE = f(2, 4, 7, 6)
CASES = [
    Case("Sum", (f(2, 3), f(3), f(2, 1)), opsets=(8, 13)),
    Case("Mean", (f(2, 3), f(3)), opsets=(8, 13)),
    Case("Max", (f(2, 3), f(3), f(1)), opsets=(8, 13)),
    Case("Min", (f(2, 3), f(3)), opsets=(8, 13)),
    Case("Mod", (i(5, -5, 7), i(3, 3, -4))),
    Case("Mod", (f(4), f(4)), {"fmod": 1}),
    Case("Pow", (np.abs(f(2, 3)), f(3)), opsets=(7, 13)),
    Case("Pow", (f(2, 3), np.array(2.0, np.float32)), fixed=(1,), opsets=(7, 13)),
    Case("Pow", (f(2, 3), i(3))),
    Case("Div", (i(7, -7, 9), i(2, 2, -4))),
    Case("LeakyRelu", (f(5),), {"alpha": 0.2}),
    Case("Elu", (f(5),), {"alpha": 0.5}, opsets=(7, 13)),
    Case("Celu", (f(5),), {"alpha": 0.5}),
    Case("Selu", (f(5),), {}),
    Case("HardSigmoid", (f(5),), {"alpha": 0.3}),
    Case("ThresholdedRelu", (f(5),), {"alpha": 0.3}),
    Case("Shrink", (f(9),), {"lambd": 0.4, "bias": 0.1}),
    Case("PRelu", (f(2, 3, 4), f(3, 1))),
    Case("Gelu", (f(9),), {}, opsets=(20,)),
    Case("Gelu", (f(9),), {"approximate": "tanh"}, opsets=(20,)),
    Case("Clip", (f(9),), {"min": -0.5, "max": 0.5}, opsets=(7,)),
    Case("Clip", (f(9), np.float32(-0.5), np.float32(0.5)), fixed=(1, 2), opsets=(11, 13)),
    Case("Clip", (f(9), np.float32(-0.5)), opsets=(13,)),
    Case("Cast", (f(4),), {"to": 7}, opsets=(9, 13, 19)),
    Case("Cast", (i(0, 2),), {"to": 9}),
    Case("IsInf", (np.array([np.inf, -np.inf, 1], np.float32),), {"detect_negative": 0}),
    Case("Where", (f(2, 3) > 0, f(2, 1), f(3)), opsets=(9, 16)),
    Case("ReduceSum", (f(2, 3, 4),), {"axes": [-1, 0], "keepdims": 0}, opsets=(7, 11)),
    Case("ReduceSum", (f(2, 3, 4), i(-1, 0)), {"keepdims": 0}, fixed=(1,)),
    Case("ReduceSum", (f(2, 3), i()), {"noop_with_empty_axes": 1}, fixed=(1,)),
    Case("ReduceMean", (f(2, 3, 4), i(1)), fixed=(1,), opsets=(18,)),
    Case("ArgMax", (f(3, 4),), {"axis": -1, "keepdims": 0}, opsets=(7, 13)),
    Case("ArgMin", (i(3, 1, 1),), {"select_last_index": 1}),
    Case("CumSum", (f(3, 4), np.array(-1)), {"reverse": 1, "exclusive": 1}, fixed=(1,)),
    Case("MatMul", (f(2, 3, 4), f(4, 5)), opsets=(9, 13)),
    Case("Gemm", (f(4, 3), f(5, 4), f(5)), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, opsets=(7, 13)),
    Case("Gemm", (f(3, 4), f(4, 5)), opsets=(11, 13)),
    Case("Einsum", (f(2, 3, 4), f(2, 4, 5)), {"equation": "bij, bjk -> bik"}),
    Case("Conv", (IMAGE, f(6, 2, 3, 3), f(6)), {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}, opsets=(7, 11)),
    Case("Conv", (IMAGE, f(3, 4, 3, 2)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", (IMAGE, f(3, 4, 3, 2)), {"auto_pad": "SAME_LOWER", "dilations": [1, 2]}),
    Case("ConvTranspose", (IMAGE, f(4, 3, 3, 3), f(3)), {"strides": [2, 2], "pads": [1, 1, 0, 1]}),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}, opsets=(8, 12)),
    Case("MaxPool", (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, opsets=(7, 11, 19)),
    Case("AveragePool", (IMAGE,), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    Case("GlobalAveragePool", (IMAGE,)),
    Case("GlobalMaxPool", (IMAGE,)),
    Case("LpNormalization", (f(3, 4),), {"axis": 1, "p": 2}),
    Case("BatchNormalization", (IMAGE, f(4), f(4), f(4), np.abs(f(4))), {"epsilon": 1e-3}, opsets=(14, 15)),
    # The reference normalises by the batch before version 14, although a node with one output is in test mode.
    Case("BatchNormalization", (IMAGE, f(4), f(4), f(4), np.abs(f(4))), opsets=(7, 9), oracle=runtime),
    Case("InstanceNormalization", (IMAGE, f(4), f(4))),
    Case("LayerNormalization", (f(2, 3, 4), f(4), f(4)), {"axis": -1}, opsets=(17,), outputs=3),
    Case("LayerNormalization", (f(2, 3, 4), f(3, 4)), {"axis": 1}, opsets=(17,)),
    Case("GroupNormalization", (IMAGE, f(4), f(4)), {"num_groups": 2}, opsets=(21,)),
    # The reference sums over as many channels as there are items in the batch and leaves the others alone.
    Case("LRN", (IMAGE,), {"size": 3, "alpha": 0.2}, oracle=runtime),
    Case("LRN", (f(5, 5, 3, 2),), {"size": 4}),
    # The reference applies version 13, one axis, to all versions; before, all dimensions from the axis on are one.
    Case("Softmax", (f(2, 3, 4),), {"axis": 1}, opsets=(7, 11), oracle=runtime),
    Case("Softmax", (f(2, 3, 4),), opsets=(7, 11), oracle=runtime),
    Case("LogSoftmax", (f(2, 3, 4),), {"axis": -2}, opsets=(11,), oracle=runtime),
    Case("Hardmax", (f(2, 3, 4),), opsets=(11,), oracle=runtime),
    Case("Softmax", (f(2, 3, 4),), {"axis": 1}),
    Case("Softmax", (f(2, 3, 4),)),
    Case("LogSoftmax", (f(2, 3),), {"axis": -1}),
    Case("Hardmax", (f(2, 3),), {"axis": -1}),
    Case("Reshape", (f(2, 3, 4), i(0, -1)), fixed=(1,), opsets=(7, 13)),
    Case("Flatten", (f(2, 3, 4),), {"axis": 2}, opsets=(9, 13)),
    Case("Flatten", (f(2, 3, 4),), {"axis": -1}),
    Case("Squeeze", (f(1, 3, 1),), {"axes": [0]}, opsets=(7, 11)),
    Case("Squeeze", (f(1, 3, 1), i(-1)), fixed=(1,)),
    Case("Squeeze", (f(1, 3, 1),)),
    Case("Unsqueeze", (f(3),), {"axes": [0, 2]}, opsets=(7, 11)),
    Case("Unsqueeze", (f(3), i(-1, 0)), fixed=(1,)),
    Case("Transpose", (f(2, 3, 4),), {"perm": [1, 2, 0]}),
    Case("Transpose", (f(2, 3, 4),)),
    Case("Concat", (f(2, 3), f(2, 1)), {"axis": -1}),
    Case("Split", (f(2, 6),), {"axis": 1, "split": [1, 2, 3]}, opsets=(7, 11), outputs=3),
    Case("Split", (f(2, 6), i(4, 2)), {"axis": -1}, fixed=(1,), outputs=2),
    Case("Split", (f(7, 2),), {"num_outputs": 3}, opsets=(18,), outputs=3),
    Case("Slice", (f(5, 6),), {"starts": [1, -2], "ends": [100, 6], "axes": [0, 1]}, opsets=(7, 9)),
    Case("Slice", (f(5, 6), i(4, 1), i(-100, 5), i(0, 1), i(-2, 2)), fixed=(1, 2, 3, 4), opsets=(10, 13)),
    Case("Slice", (f(5, 6), i(0), i(0)), fixed=(1, 2)),
    Case("Pad", (f(2, 3),), {"pads": [0, 1, 2, 0], "value": 1.5}, opsets=(7,)),
    Case("Pad", (f(3, 4), i(0, 1, 2, 0), np.float32(2)), fixed=(1, 2)),
    Case("Pad", (f(3, 4), i(1, 1, 2, 0)), {"mode": "reflect"}, fixed=(1,)),
    Case("Pad", (f(3, 4), i(1, 2), np.float32(0), i(-1)), fixed=(1, 2, 3), opsets=(18,)),
    Case("Expand", (f(3, 1), i(2, 1, 4)), fixed=(1,)),
    Case("Tile", (f(2, 3), i(2, 2)), fixed=(1,)),
    Case("DepthToSpace", (f(1, 8, 2, 3),), {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", (f(1, 2, 4, 6),), {"blocksize": 2}),
    Case("Shape", (f(2, 3),)),
    Case("Shape", (f(2, 3, 4),), {"start": 1, "end": -1}, opsets=(15,)),
    Case("Size", (f(2, 3),)),
    Case("Range", (np.array(1), np.array(9), np.array(3)), fixed=(0, 1, 2)),
    Case("Identity", (f(2),)),
    Case("Gather", (f(5, 3), i(0, -1)), {"axis": 0}),
    Case("GatherElements", (f(3, 3), np.array([[0, -1, 2]])), {"axis": 0}),
    Case("GatherND", (f(2, 3, 4), np.array([[0, 1], [1, 2]]))),
    Case("ScatterND", (f(4, 3), np.array([[1], [3]]), f(2, 3))),
    Case("ScatterElements", (f(3, 3), np.array([[1, 0, 2]]), f(1, 3)), {"axis": 0}),
    Case("OneHot", (i(0, 3, -1), np.array(4), f(2)), {"axis": -1}, fixed=(1,)),
    Case("Trilu", (f(4, 4), np.array(1)), {"upper": 0}, fixed=(1,), opsets=(14,)),
    Case("NonZero", (i(0, 2, 0, 3),), fixed=(0,)),
    Case("Compress", (f(4, 2), np.array([True, False, True, False])), {"axis": 0}, fixed=(1,)),
    Case("Resize", (f(1, 1, 3, 4), f(0), np.array([1, 1, 2, 1.5], np.float32)), {"mode": "linear"}, fixed=(1, 2)),
    Case("QuantizeLinear", (f(2, 3), np.float32(0.05), np.uint8(7))),
    # The reference implements DequantizeLinear from version 19 on.
    Case(
        "DequantizeLinear",
        (np.arange(6, dtype=np.uint8), np.float32(0.5), np.uint8(3)),
        opsets=(10, 13),
        oracle=runtime,
    ),
    Case("DequantizeLinear", (np.arange(6, dtype=np.uint8), np.float32(0.5), np.uint8(3)), opsets=(19, 21)),
    Case("MatMulInteger", (np.arange(6, dtype=np.uint8).reshape(2, 3), np.ones((3, 2), np.uint8), np.uint8(2))),
]
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
    x = x > 0 if op == "Not" else x
    compare(model_of([helper.make_node(op, ["x"], ["y"])], {"x": x}, ["y"], opset=18), {"x": x})


@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary(op: str) -> None:
    a, b = f(2, 3, 4), f(3, 1)
    if op in ("And", "Or", "Xor"):
        a, b = a > 0, b > 0
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


def test_functions_of_one_name_are_told_apart_by_their_overload() -> None:
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
    undocumented = [r.operator for found in rules.table().values() for r in found if not r.function.__doc__]
    assert undocumented == []
    assert len(rules.support()) > 130


def test_no_two_rules_serve_one_version() -> None:
    for found in rules.table().values():
        since = [r.since for r in found]
        assert len(set(since)) == len(since), found[0].operator
