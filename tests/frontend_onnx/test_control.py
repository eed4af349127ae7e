"""Branches, and loops that are known when a model is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from building import compare, model_of, parse, runtime
from onnx import TensorProto, helper

from dlc import DlcError

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def info(name: str, kind: int = TensorProto.FLOAT, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def loop(condition: list[onnx.NodeProto], count: int | None = 3) -> onnx.ModelProto:
    """state = 2·state + x, the states stacked; `condition` makes `go` from the iteration's number `t`."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("Add", ["twice", "x"], ["next"]),
            helper.make_node("Identity", ["next"], ["seen"]),
            *condition,
        ],
        "body",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("v", shape=[2, 3])],
        [info("go", TensorProto.BOOL, []), info("next", shape=[2, 3]), info("seen", shape=[2, 3])],
    )
    stored: dict[str, Any] = {"yes": np.array(True), "two": np.array(2)}
    if count is not None:
        stored["count"] = np.array(count)
    node = helper.make_node("Loop", ["" if count is None else "count", "yes", "x"], ["last", "all"], body=body)
    return model_of([node], {"x": X}, ["last", "all"], stored, 16)


FOREVER = [helper.make_node("Identity", ["on"], ["go"])]
BEFORE_TWO = [helper.make_node("Less", ["t", "two"], ["go"])]
BY_DATA = [
    helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
    helper.make_node("Cast", ["top"], ["go"], to=TensorProto.BOOL),
]


@pytest.mark.parametrize("count", [1, 3])
def test_a_loop_of_constant_length(count: int) -> None:
    compare(loop(FOREVER, count), {"x": X}, runtime)


@pytest.mark.parametrize("count", [None, 2, 9])
def test_a_loop_that_ends_by_a_constant_condition(count: int | None) -> None:
    compare(loop(BEFORE_TWO, count), {"x": X}, runtime)


def refused(model: onnx.ModelProto, **options: object) -> str:
    with pytest.raises(DlcError) as caught:
        parse(model, **options)
    assert all(d.help and d.location for d in caught.value.diagnostics)
    return str(caught.value)


def test_loops_that_are_not_known_are_refused() -> None:
    assert "the condition of the next iteration depends" in refused(loop(BY_DATA))
    assert "the loop has more than 1,024 steps; the limit is 1,024" in refused(loop(FOREVER, None))
    assert "the loop has 1,099,511,627,776 steps; the limit is 1,024" in refused(loop(FOREVER, 1 << 40))
    assert "a loop without iterations" in refused(loop(FOREVER, 0))


def test_what_is_refused_in_a_body_is_reported_once() -> None:
    model = loop(FOREVER)
    model.graph.node[0].attribute[0].g.node[0].op_type = "Nothing"
    assert "Nothing, 1 node" in refused(model)


def test_loops_within_loops_are_bounded_in_all() -> None:
    model = loop(FOREVER, 1000)
    text = refused(model, max_nodes=100)
    assert "with its iterations, branches and derivatives the model has 10" in text
    assert "nodes; the limit is 100" in text
    assert "--set onnx.max-nodes=" in text


def test_a_limit_on_steps_can_be_raised() -> None:
    parse(loop(BEFORE_TWO, 3), max_steps=3)
    assert "the limit is 1" in refused(loop(FOREVER, 3), max_steps=1)


@pytest.mark.parametrize("directions", [{}, {"scan_input_directions": [0, 1], "scan_output_directions": [1, 0]}])
@pytest.mark.parametrize("axes", [{}, {"scan_input_axes": [1, -1], "scan_output_axes": [1, -1]}])
def test_a_scan(directions: dict[str, Any], axes: dict[str, Any]) -> None:
    shape = [4] if axes else [5]
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "b"], ["product"]),
            helper.make_node("Add", ["state", "product"], ["sum"]),
            helper.make_node("Neg", ["sum"], ["other"]),
            helper.make_node("Identity", ["product"], ["one"]),
        ],
        "body",
        [info(name, shape=shape) for name in ("state", "a", "b")],
        [info(name, shape=shape) for name in ("sum", "one", "other")],
    )
    names = ["start", "p", "q"]
    node = helper.make_node("Scan", names, ["end", "y", "z"], body=body, num_scan_inputs=2, **axes, **directions)
    random = np.random.default_rng(0)
    feeds = {"start": random.standard_normal(shape).astype(np.float32)}
    feeds |= {name: random.standard_normal((4, 5)).astype(np.float32) for name in names[1:]}
    compare(model_of([node], feeds, ["end", "y", "z"], opset=16), feeds, runtime)


@pytest.mark.parametrize(
    ("count", "words"), [(2, "inputs of [3, 4] slices"), (1 << 62, "scanned inputs of 2"), (0, "0 scanned inputs")]
)
def test_a_scan_whose_inputs_do_not_fit_is_refused(count: int, words: str) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "body", [info("a", shape=[]), info("b", shape=[])], [info("c")]
    )
    feeds = {"p": np.zeros(3, np.float32), "q": np.zeros(4, np.float32)}
    node = helper.make_node("Scan", ["p", "q"], ["y"], body=body, num_scan_inputs=count)
    assert words in refused(model_of([node], feeds, ["y"]))


def branches(then: list[onnx.NodeProto], otherwise: list[onnx.NodeProto]) -> onnx.ModelProto:
    """y, z = If(c) with the results a and b of each branch."""
    graphs = [helper.make_graph(nodes, "branch", [], [info("a"), info("b")]) for nodes in (then, otherwise)]
    node = helper.make_node("If", ["c"], ["y", "z"], then_branch=graphs[0], else_branch=graphs[1])
    return model_of([node], {"c": np.array(True), "x": X}, ["y", "z"], {}, 16)


LOGS = [helper.make_node("Log", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
SUMS = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("Identity", ["x"], ["b"])]
ROWS = [helper.make_node("ReduceSum", ["x"], ["a"], keepdims=0), helper.make_node("Identity", ["x"], ["b"])]


@pytest.mark.parametrize("condition", [True, False])
def test_a_condition_that_is_computed_selects_at_run_time(condition: bool) -> None:
    """What the other branch gives does not matter, not even where it is NaN."""
    compare(branches(LOGS, SUMS), {"c": np.array(condition), "x": X}, runtime)
    compare(branches(SUMS, LOGS), {"c": np.array(condition), "x": X}, runtime)


def test_branches_that_cannot_be_selected_from_are_refused() -> None:
    with pytest.raises(DlcError, match=r"the branches give f32\[2,3\] and f32\[\]"):
        parse(branches(SUMS, ROWS))
    several = branches(SUMS, LOGS)
    several.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 2
    with pytest.raises(DlcError, match="which is not one truth value"):
        parse(several)
    fewer = branches(SUMS, LOGS)
    del fewer.graph.node[0].attribute[1].g.output[1]
    with pytest.raises(DlcError, match=r"branches with \d and \d results"):
        parse(fewer)
