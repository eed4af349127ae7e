"""Shapes given by the user, shapes that follow from them, and operator sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from building import IR_VERSIONS, compare, model_of, parse
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dlc import DlcError
from dlc.base.diagnostics import ExitCode
from dlc.graph import Input, Splat, evaluate
from dlc.graph.input_ranges import input_ranges
from dlc.ops.shape import Reshape

NEWEST = onnx.defs.onnx_opset_version()


def open_model(*shapes: list[int | str | None] | None) -> onnx.ModelProto:
    """Inputs x0, x1, … with these shapes, each negated."""
    nodes = [helper.make_node("Neg", [f"x{k}"], [f"y{k}"], name=f"neg{k}") for k in range(len(shapes))]
    model = model_of(nodes, {}, [f"y{k}" for k in range(len(shapes))])
    infos = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, s) for k, s in enumerate(shapes)]
    model.graph.input.extend(infos)
    return model


def shapes_of(model: onnx.ModelProto, dims: tuple[str, ...] = (), input: tuple[str, ...] = ()) -> list[tuple[int, ...]]:
    return [i.shape for i in parse(model, dims=dims, input=input).inputs]


def refused(model: onnx.ModelProto, dims: tuple[str, ...] = (), input: tuple[str, ...] = ()) -> DlcError:
    with pytest.raises(DlcError) as caught:
        parse(model, dims=dims, input=input)
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value


def test_a_symbol_has_its_size_in_all_inputs() -> None:
    model = open_model(["batch", 3], [2, "batch", "seq"])
    assert shapes_of(model, ("batch:5", "seq=7")) == [(5, 3), (2, 5, 7)]


def test_an_input_has_the_shape_that_is_given() -> None:
    model = open_model(["batch", None], None, [])
    assert shapes_of(model, input=("x0:4x6", "x1:2x2x2")) == [(4, 6), (2, 2, 2), ()]
    assert shapes_of(model, ("batch:4",), ("x0:4x6", "x1:scalar", "x2:scalar")) == [(4, 6), (), ()]


def test_names_of_symbols_and_inputs_may_hold_colons_and_equals_signs() -> None:
    model = open_model(["a:b", "c=d"])
    assert shapes_of(model, ("a:b:2", "c=d:3")) == [(2, 3)]
    model.graph.input[0].name = "serving_default:0"
    model.graph.node[0].input[0] = "serving_default:0"
    assert shapes_of(model, input=("serving_default:0:5x6",)) == [(5, 6)]


def test_all_dimensions_without_a_size_are_reported_at_once() -> None:
    model = open_model(["batch", 3, "seq"], ["batch"], [None, 2], None)
    (found,) = refused(model).diagnostics
    assert found.code == "unbound-dimension"
    assert "4 dimensions of the inputs have no size" in found.message
    assert found.notes == ("batch: of x0, x1", "seq: of x0", "without a name: of x2, x3")
    example = "--dim batch=1 --dim seq=1 --input x2:1x… --input x3:1x…"
    assert found.help == f"give sizes, or ranges such as 1..8, for example {example}"


def test_names_that_the_model_does_not_have_are_reported_with_those_it_has() -> None:
    found = refused(open_model(["batch"]), ("btach:1",), ("x9:1",)).diagnostics
    assert [(d.message, d.help) for d in found] == [
        ("the model has no dimension btach", "did you mean batch?"),
        ("the model has no input x9", "inputs: x0"),
    ]


@pytest.mark.parametrize(
    ("dims", "input", "words"),
    [
        (("batch",), (), "batch is not a dimension and its size"),
        (("batch:-1",), (), "batch:-1 is not a dimension and its size"),
        (("batch:x",), (), "the model has no dimension x"),
        ((), ("x0",), "x0 is not an input and its shape"),
        ((), ("x0:1x-2",), "x0:1x-2 is not an input and its shape"),
        ((), ("x0:4x3x1",), "--input gives x0 3 dimensions, the model 2"),
        ((), ("x0:4x5",), "--input gives dimension 1 of x0 as 5, the model as 3"),
        (("batch:2",), ("x0:4x3",), "--input gives dimension 0 of x0 as 4, --dim batch as 2"),
    ],
)
def test_sizes_that_contradict_the_model_or_each_other(
    dims: tuple[str, ...], input: tuple[str, ...], words: str
) -> None:
    assert words in str(refused(open_model(["batch", 3]), dims, input))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=3), st.lists(st.text(max_size=12), max_size=3))
def test_any_text_for_shapes_is_read_or_refused(dims: list[str], inputs: list[str]) -> None:
    try:
        parse(open_model(["batch", 3]), dims=tuple(dims), input=tuple(inputs))
    except DlcError as problem:
        assert problem.exit_code == ExitCode.USAGE


def test_an_initializer_among_the_inputs_is_a_constant() -> None:
    x = np.ones((2, 2), np.float32)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": x, "w": x}, ["y"], {"w": x}, opset=7)
    assert [i.name for i in parse(model).inputs] == ["x"]


def test_an_input_that_nothing_reads_stays_an_input() -> None:
    model = open_model([2], [3])
    del model.graph.output[1:]
    assert shapes_of(model) == [(2,), (3,)]


# ---- shapes that follow


def flattened(opset: int = 17) -> onnx.ModelProto:
    """x[batch, seq, 8] to [batch, seq · 8], as exporters write `x.view(x.size(0), -1)`."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    stored = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    model = model_of(nodes, {}, ["y"], stored, opset)
    model.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "seq", 8]))
    return model


def test_a_computed_shape_follows_from_the_sizes_of_symbols() -> None:
    graph = parse(flattened(), dims=("batch:3", "seq:5"))
    (y,) = graph.outputs
    assert isinstance(y, Reshape)
    assert y.to == (3, 40)
    assert [type(op) for op in graph.ops] == [Input, Reshape]


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_a_mask_of_a_computed_shape_takes_no_memory(dtype: type) -> None:
    value = helper.make_tensor("v", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1], [1])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["mask"], value=value),
        helper.make_node("Cast", ["mask"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "cast"], ["y"]),
    ]
    x = np.ones((3, 4), np.float32)
    graph = compare(model_of(nodes, {"x": x}, ["y"]), {"x": x})
    assert any(isinstance(op, Splat) for op in graph.ops)


def test_a_shape_that_depends_on_data_is_refused_with_its_reason() -> None:
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    model = model_of(nodes, {"x": np.ones(4, np.float32), "to": np.array([2, 2])}, ["y"])
    with pytest.raises(DlcError, match="the shape is computed from the model's inputs"):
        parse(model)


# ---- operator sets and names


@pytest.mark.parametrize("opset", range(6, NEWEST + 1))
def test_every_operator_set_is_read(opset: int) -> None:
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    squeezed: dict[str, Any] = {"axes": [0]} if opset < 13 else {}
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Concat", ["t", "t"], ["c"], axis=-1),
        helper.make_node("Unsqueeze", ["c"] if opset < 13 else ["c", "axes"], ["u"], **squeezed),
        helper.make_node("ReduceSum", ["u"], ["r"], keepdims=0),
        helper.make_node("Softplus", ["r"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], {"axes": np.array([0])}, opset)
    model.ir_version = IR_VERSIONS.get(opset, onnx.IR_VERSION)
    graph = parse(model)
    got = evaluate(graph, {"x": x})["y"]
    np.testing.assert_allclose(got, np.log1p(np.exp(2 * np.abs(x).sum())), rtol=1e-5)


def test_every_rule_is_of_a_version_that_the_standard_has() -> None:
    from dlc_frontend_onnx.rules import own_rules

    wrong: list[str] = []
    for domain, operator, versions in own_rules().support():
        if domain or not onnx.defs.has(operator):
            continue
        latest = onnx.defs.get_schema(operator).since_version
        wrong += [f"{operator} {v}" for v in versions if v > latest]
    assert wrong == []


def test_ops_go_by_the_names_of_their_nodes() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], name="fc/MatMul:0"),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("Shrink", ["r"], ["s"], name="many ops"),
        helper.make_node("Identity", ["s"], ["y"], name="no op"),
    ]
    x = np.ones((2, 2), np.float32)
    graph = parse(model_of(nodes, {"x": x}, ["y"], {"w": x}))
    report = {type(op).__name__: graph.origins.get(op.digest) for op in graph.ops if not isinstance(op, Input)}
    assert report["Gemm"] == ("fc/MatMul:0",)
    assert report["Relu"] == ("Relu_1",)
    assert report["Where"] == ("many ops",)
    assert report["Constant"] is None


def test_equal_nodes_become_one_op_with_both_names() -> None:
    nodes = [helper.make_node("Neg", ["x"], [y], name=f"node {y}") for y in "ab"]
    graph = parse(model_of([*nodes, helper.make_node("Mul", ["a", "b"], ["y"])], {"x": np.ones(2, np.float32)}, ["y"]))
    assert ("node a", "node b") in graph.origins.values()


def test_nodes_of_a_branch_go_by_its_name_too() -> None:
    inner = helper.make_node("Neg", ["x"], ["v"], name="inner")
    then = helper.make_graph([inner], "then", [], [helper.make_empty_tensor_value_info("v")])
    node = helper.make_node("If", ["yes"], ["y"], name="outer", then_branch=then, else_branch=then)
    graph = parse(model_of([node], {"x": np.ones(2, np.float32)}, ["y"], {"yes": np.array(True)}))
    assert ("outer/inner",) in graph.origins.values() or ("outer/inner", "outer") in graph.origins.values()


def test_order_of_nodes_does_not_matter() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Exp", ["x"], ["a"])]
    graph = parse(model_of(nodes, {"x": np.ones(2, np.float32)}, ["y"]))
    assert [type(op).__name__ for op in graph.ops] == ["Input", "Exp", "Neg"]
    assert set(graph.origins.values()) == {("Exp_1",), ("Neg_0",)}


def test_a_length_that_every_step_chooses_by_has_one_range() -> None:
    """All 2,000 steps of a sequence say what its length may be; what they say has few ends, and takes no minutes."""
    node = helper.make_node("ReverseSequence", ["x", "l"], ["y"], batch_axis=0, time_axis=1)
    model = model_of([node], {"x": np.zeros((3, 2000), np.float32), "l": np.zeros(3, np.int64)}, ["y"], opset=10)
    assert [p.intervals for p in input_ranges(parse(model))["l"].parts] == [((0, 2000),)]
