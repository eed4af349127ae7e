"""Operands that decide shapes and are inputs of the model: the declared shapes say what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx import implied
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dlc import DlcError, Source
from dlc.base.allowed import Allowed
from dlc.driver.program import Compiler
from dlc.graph import Graph, evaluate
from dlc.graph.input_ranges import with_ranges
from tests.frontend_onnx.building import parse, reference

Array = Any
RNG = np.random.default_rng(5)
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def model(
    op: str,
    shapes: Sequence[Sequence[int]],
    operand: Array,
    after: str = "",
    opset: int = 18,
    x: Array = X,
    **attributes: Any,
) -> onnx.ModelProto:
    """y = op(x, s) with s as an input and declared shapes of the results; `after` is applied to the result."""
    outputs = [f"y{k}" for k in range(len(shapes))]
    inner = [f"{o}_inner" for o in outputs] if after else outputs
    nodes = [helper.make_node(op, ["x", "s"], inner, **attributes)]
    nodes += [helper.make_node(after, [a], [b]) for a, b in zip(inner, outputs, strict=True) if after]
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in (("x", x), ("s", operand))
    ]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, s) for o, s in zip(outputs, shapes, strict=True)]
    graph = helper.make_graph(nodes, "g", given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def allowed(graph: Graph) -> Allowed:
    (text,) = [i.allowed for i in graph.inputs if i.name == "s"]
    return Allowed.parse(text)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


SAME: Mapping[str, tuple[str, list[list[int]], list[Array], list[Array], dict[str, Any]]] = {
    "reshape": ("Reshape", [[6, 4]], [ints(6, 4), ints(-1, 4), ints(6, -1)], [ints(4, 6), ints(0, 4)], {}),
    "reshape-zero": ("Reshape", [[2, 12]], [ints(0, -1), ints(2, 12)], [ints(3, 8), ints(2, 0)], {}),
    "expand": (
        "Expand",
        [[5, 2, 3, 4]],
        [ints(5, 2, 3, 4), ints(5, 1, 1, 1), ints(5, 2, 1, 4)],
        [ints(5, 2, 3, 5)],
        {},
    ),
    "tile": ("Tile", [[2, 6, 12]], [ints(1, 2, 3)], [ints(1, 2, 2), ints(2, 2, 3)], {}),
    "split": ("Split", [[2, 1, 4], [2, 2, 4]], [ints(1, 2)], [ints(2, 1), ints(3, 0)], {"axis": 1}),
    "unsqueeze": ("Unsqueeze", [[1, 2, 3, 4, 1]], [ints(0, 4), ints(-1, 0), ints(4, -5)], [ints(0, 1)], {}),
    "reduce-kept": ("ReduceSum", [[2, 1, 4]], [ints(1), ints(-2)], [ints(0), ints(2)], {}),
    "reduce-two": ("ReduceMax", [[3]], [ints(0, 2), ints(2, 0), ints(-1, -3)], [ints(1, 2)], {"keepdims": 0}),
    "reduce-nothing": ("ReduceMean", [[1, 1, 1]], [np.zeros(0, np.int64)], [], {}),
    "center": ("CenterCropPad", [[4, 3, 1]], [ints(4, 1)], [ints(4, 2), ints(1, 4)], {"axes": [0, 2]}),
    "sum-along": (
        "CumSum",
        [[2, 3, 4]],
        [np.asarray(d) for d in (0, 1, 2, -1, -3)],
        [np.asarray(3), np.asarray(-4)],
        {},
    ),
}
"""Operator, declared shapes, values that lead to them, values that do not, attributes."""


@pytest.mark.parametrize("name", SAME)
def test_every_value_that_leads_to_the_declared_shape_gives_what_the_standard_says(name: str) -> None:
    op, shapes, good, bad, attributes = SAME[name]
    proto = model(op, shapes, good[0], **attributes)
    graph = parse(proto)
    for value in good:
        if value.size:
            allowed(graph).check("s", value)
        outputs = [o.name for o in proto.graph.output]
        got = evaluate(graph, {"x": X, "s": value})
        for o, want in zip(outputs, reference(proto, outputs, {"x": X, "s": value}), strict=True):
            np.testing.assert_allclose(got[o], want, rtol=1e-6)
    for value in bad:
        with pytest.raises(DlcError, match="possible are"):
            allowed(graph).check("s", value)


def test_a_float_may_decide_a_shape_and_some_elements_may_be_anything() -> None:
    """The depth of OneHot, and the number of channels in the size of AffineGrid."""
    one_hot = model("OneHot", [[2, 3, 4, 5]], np.asarray(5, np.float32), x=X.astype(np.int64))
    one_hot.graph.node[0].input.append("values")
    one_hot.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray([0, 1], np.float32), "values"))
    found = allowed(parse(one_hot))
    found.check("s", np.asarray(5, np.float32))
    for wrong in (4, 4.5, np.nan, np.inf):
        assert found.wrong(np.asarray(wrong, np.float32)) is not None
    theta = RNG.standard_normal((2, 2, 3)).astype(np.float32)
    grid = model("AffineGrid", [[2, 4, 5, 2]], ints(2, 3, 4, 5), opset=20, x=theta)
    found = allowed(parse(grid))
    for channels in (0, 3, -7, 1 << 40):
        found.check("s", ints(2, channels, 4, 5))
    assert found.wrong(ints(2, 3, 5, 4)) is not None
    feeds = {"x": theta, "s": ints(2, 3, 4, 5)}
    np.testing.assert_allclose(
        evaluate(parse(grid), feeds)["y0"], reference(grid, ["y0"], feeds)[0], rtol=1e-5, atol=1e-6
    )


def test_equal_dimensions_leave_the_axis_to_the_run() -> None:
    """[3,3] reduced to [3] by one axis: which one is known when the program runs."""
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    proto = model("ReduceSum", [[3]], ints(0), x=x, keepdims=0)
    graph = parse(proto)
    for axis in (0, 1, -1, -2):
        np.testing.assert_array_equal(evaluate(graph, {"x": x, "s": ints(axis)})["y0"], x.sum(axis))
    two = np.zeros((2, 2, 2), np.float32)
    with pytest.raises(DlcError, match="several lead to the declared shape"):
        parse(model("ReduceSum", [[2]], ints(0, 1), x=two, keepdims=0))


def test_declared_shapes_reach_through_elementwise_operators() -> None:
    graph = parse(model("ReduceSum", [[2, 1, 4]], ints(1), after="Sqrt"))
    np.testing.assert_allclose(evaluate(graph, {"x": X, "s": ints(1)})["y0"], np.sqrt(X.sum(1, keepdims=True)))


def test_the_axis_of_a_transform_is_known_at_run_time() -> None:
    """Along two axes of one extent, and along the only one that gives the declared number of bins."""
    x = RNG.standard_normal((2, 4, 4, 1)).astype(np.float32)
    cases: list[tuple[list[int], dict[str, Any], tuple[int, ...]]] = [
        ([2, 4, 4, 2], {}, (0, 1, 2, -2)),
        ([2, 3, 4, 2], {"onesided": 1}, (1, -3)),
    ]
    for shape, attributes, axes in cases:
        proto = model("DFT", [shape], np.asarray(1), opset=20, x=x, **attributes)
        proto.graph.node[0].input[:] = ["x", "", "s"]
        for axis in axes:
            feeds = {"x": x, "s": np.asarray(axis)}
            allowed(parse(proto)).check("s", feeds["s"])
            got, want = evaluate(parse(proto), feeds)["y0"], reference(proto, ["y0"], feeds)[0]
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert allowed(parse(proto)).wrong(np.asarray(3)) is not None


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_are_told_where_they_are_whole(mode: str) -> None:
    x, scales = X.reshape(1, 2, 3, 4), np.asarray([1, 1, 2, 3], np.float32)
    proto = model("Resize", [[1, 2, 6, 12]], scales, opset=19, x=x, mode=mode)
    proto.graph.node[0].input[:] = ["x", "", "s"]
    graph = parse(proto)
    got, want = evaluate(graph, {"x": x, "s": scales})["y0"], reference(proto, ["y0"], {"x": x, "s": scales})[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for wrong in ([1, 1, 2, 3.1], [1, 1, 2, np.nan], [1, 1, 3, 2]):
        assert allowed(graph).wrong(np.asarray(wrong, np.float32)) is not None
    proto.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 5
    graph, scales = parse(proto), np.asarray([1, 1, 1.7, 3], np.float32)
    assert not any(i.allowed for i in graph.inputs)
    got, want = evaluate(graph, {"x": x, "s": scales})["y0"], reference(proto, ["y0"], {"x": x, "s": scales})[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(DlcError, match="is 6 for these inputs"):
        evaluate(graph, {"x": x, "s": np.asarray([1, 1, 2, 3], np.float32)})


def test_pieces_of_a_signal_are_told_by_their_number_and_bins() -> None:
    x = RNG.standard_normal((1, 128, 1)).astype(np.float32)
    proto = model("STFT", [[1, 15, 9, 2]], np.asarray(8), opset=17, x=x)
    proto.graph.node[0].input[:] = ["x", "s", "", "length"]
    proto.graph.input.append(helper.make_tensor_value_info("length", TensorProto.INT64, []))
    feeds = {"x": x, "s": np.asarray(8), "length": np.asarray(16)}
    graph = parse(proto)
    np.testing.assert_allclose(evaluate(graph, feeds)["y0"], reference(proto, ["y0"], feeds)[0], rtol=1e-3, atol=1e-4)
    assert {i.name: i.allowed.partition(" ")[2] for i in graph.inputs if i.allowed} == {"s": "8..8", "length": "16..16"}


def test_the_block_of_windows_is_told_where_only_one_fits() -> None:
    x = np.arange(36, dtype=np.float32).reshape(1, 9, 4)
    proto = model("Col2Im", [[1, 1, 5, 5]], ints(5, 5), x=x, strides=[2, 2])
    proto.graph.node[0].input.append("block")
    proto.graph.input.append(helper.make_tensor_value_info("block", TensorProto.INT64, [2]))
    feeds = {"x": x, "s": ints(5, 5), "block": ints(3, 3)}
    np.testing.assert_allclose(evaluate(parse(proto), feeds)["y0"], reference(proto, ["y0"], feeds)[0])
    either = model("Col2Im", [[1, 1, 5, 5]], ints(5, 5), x=np.zeros((1, 5, 5), np.float32))  # 1 x 5 or 5 x 1
    either.graph.node[0].input.append("block")
    either.graph.input.append(helper.make_tensor_value_info("block", TensorProto.INT64, [2]))
    with pytest.raises(DlcError, match="the shape of the windows is computed"):
        parse(either)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [2, 7])
def test_the_size_of_a_window_is_that_of_its_result(op: str, periodic: int, size: int) -> None:
    proto = model(op, [[size]], np.asarray(size), opset=17, periodic=periodic)
    proto.graph.node[0].input[:] = ["s"]
    feeds = {"x": X, "s": np.asarray(size)}
    np.testing.assert_allclose(
        evaluate(parse(proto), feeds)["y0"], reference(proto, ["y0"], feeds)[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("training", [False, True])
def test_dropout_whose_mode_and_ratio_are_computed(training: bool) -> None:
    """Nothing is dropped at inference or at a ratio of 0; else about as much as the ratio says, and the rest grows."""
    x = np.ones((40, 50), np.float32)
    nodes = [helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"], seed=3)]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    given += [
        helper.make_tensor_value_info("r", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("t", TensorProto.BOOL, []),
    ]
    results = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape),
        helper.make_tensor_value_info("mask", TensorProto.BOOL, x.shape),
    ]
    graph = parse(
        helper.make_model(helper.make_graph(nodes, "g", given, results), opset_imports=[helper.make_opsetid("", 22)])
    )
    for ratio in (0.0, 0.25):
        found = evaluate(graph, {"x": x, "r": np.asarray(ratio, np.float32), "t": np.asarray(training)})
        kept = found["mask"].mean()
        assert kept == 1 if not (training and ratio) else abs(kept - 0.75) < 0.05
        scale = np.float32(1 / (1 - ratio)) if training else np.float32(1)
        np.testing.assert_allclose(found["y"], np.where(found["mask"], scale, 0), rtol=1e-6)


def test_an_early_operator_set_is_read_where_its_operators_are_the_same_still() -> None:
    x = np.asarray([True, False])
    info = helper.make_tensor_value_info("x", TensorProto.BOOL, [2])
    graph = helper.make_graph(
        [helper.make_node("Not", ["x"], ["y"])],
        "g",
        [info],
        [helper.make_tensor_value_info("y", TensorProto.BOOL, [2])],
    )
    early = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=3)
    np.testing.assert_array_equal(evaluate(parse(early), {"x": x})["y"], ~x)
    early.graph.node[0].op_type = "Abs"
    with pytest.raises(DlcError, match="operator set 1, in which Abs differ from 6"):
        parse(early)


def test_what_the_declared_shapes_do_not_tell_is_unsupported_as_before() -> None:
    undeclared = model("Reshape", [[6, 4]], ints(6, 4))
    undeclared.graph.output[0].type.tensor_type.ClearField("shape")
    contradicting = model("Reshape", [[5, 5]], ints(5, 5))
    computed = model("Reshape", [[6, 4]], ints(6, 4))
    computed.graph.node.insert(0, helper.make_node("Neg", ["s"], ["t"]))
    computed.graph.node[1].input[1] = "t"
    for proto in (undeclared, contradicting, computed):
        with pytest.raises(DlcError, match="computed from the model's inputs"):
            parse(proto)
    with pytest.raises(DlcError, match="the declared shape asks for 2"):
        parse(model("Reshape", [[6, 4]], ints(6, 4, 1)))


def test_one_input_for_two_shapes_must_lead_to_both() -> None:
    proto = model("Reshape", [[6, 4]], ints(6, 4))
    proto.graph.node.append(helper.make_node("Reshape", ["x", "s"], ["z"]))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [6, 4]))
    assert allowed(parse(proto)).words
    proto.graph.output[1].type.tensor_type.shape.dim[0].dim_value = 4
    proto.graph.output[1].type.tensor_type.shape.dim[1].dim_value = 6
    graph = parse(proto)  # (-1, -1) is no shape, yet what every single element may be
    assert allowed(graph).wrong(ints(6, 4)) is not None


def test_a_program_refuses_other_values_and_draws_fitting_ones(tmp_path: Path) -> None:
    compiler = Compiler.open(tmp_path / "cache", jobs=1)
    content = model("Reshape", [[6, 4]], ints(6, 4)).SerializeToString()
    program: Any = compiler.program(Source(data=content, label="reshape.onnx"), "c{check=inputs flags=-O0}")
    np.testing.assert_array_equal(program(x=X, s=ints(6, -1))["y0"], X.reshape(6, 4))
    with pytest.raises(DlcError) as problem:
        program(x=X, s=ints(4, 6))
    assert problem.value.diagnostics[0].code == "other-shape"
    assert '"s": 4 at [0] leads to another shape than the model declares' in problem.value.diagnostics[0].message
    assert "6, or -1" in problem.value.diagnostics[0].message
    port = next(p for p in program.signature.inputs if p.name == "s")
    np.testing.assert_array_equal(port.allowed.draw(np.random.default_rng(0), port.type), [6, 4])
    compiler.cache.close()


def test_ranges_of_other_inputs_are_derived_beside() -> None:
    proto = model("Reshape", [[6, 4]], ints(6, 4))
    proto.graph.node.append(helper.make_node("Gather", ["y0", "rows"], ["z"]))
    proto.graph.input.append(helper.make_tensor_value_info("rows", TensorProto.INT64, [2]))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4]))
    found = {i.name: i.allowed for i in with_ranges(parse(proto)).inputs}
    assert found["rows"].startswith("index ") and found["s"].startswith("shape ")


@given(st.lists(st.integers(1, 3), max_size=4), st.integers(0, 3))
def test_axes_are_those_that_insert_and_remove(shape: list[int], count: int) -> None:
    """Every choice for one element occurs in a set that leads to the shape, and the first ones together do."""
    x = tuple(shape)
    for axes in permutations(range(len(x) + count), count):
        out = list(x)
        for d in sorted(axes):
            out.insert(d, 1)
        found, back = implied.inserted_axes(x, tuple(out), count), implied.removed_axes(tuple(out), x, count)
        assert found is not None and back is not None
        rank = len(out)
        for k, d in enumerate(axes):
            assert d in found[k] and d - rank in found[k] and d in back[k]
        assert implied.without_dims(tuple(out), [choice[0] for choice in found]) == x


@given(st.lists(st.integers(0, 4), max_size=4), st.lists(st.integers(0, 4), max_size=4))
def test_what_is_implied_leads_there_or_nothing_is(shape: list[int], other: list[int]) -> None:
    x, out = np.zeros(shape), tuple(other)
    if (sizes := implied.new_shape(x.shape, out, False)) is not None:
        assert x.reshape([s[0] for s in sizes]).shape == out
    for count in range(5):
        if (sizes := implied.broadcast_shape(x.shape, out, count)) is not None:
            for pick in (0, -1):
                assert np.broadcast_shapes(x.shape, tuple(s[pick] for s in sizes)) == out
    if (times := implied.repeat_counts(x.shape, out)) is not None:
        assert np.tile(x, [t[0] for t in times]).shape == out
