"""Branches and loops: those that are known when a model is read, and those that are not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from building import compare, model_of, parse, runtime
from onnx import TensorProto, helper, numpy_helper

from dlc import DlcError, Source
from dlc.driver.program import Compiler
from dlc.graph import Graph

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@cache
def compiler() -> Compiler:
    """One for all tests, with the cache that they share."""
    return Compiler.open()


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
    stored: dict[str, Any] = {"yes": np.array(True), "two": np.array(2), "zero": np.array(0), "six": np.array([6])}
    if count is not None:
        stored["count"] = np.array(count)
    node = helper.make_node("Loop", ["" if count is None else "count", "yes", "x"], ["last", "all"], body=body)
    return model_of([node], {"x": X}, ["last", "all"], stored, 16)


FOREVER = [helper.make_node("Identity", ["on"], ["go"])]
BEFORE_TWO = [helper.make_node("Less", ["t", "two"], ["go"])]
BY_NUMBER = [  # a shape that is computed from the number of the iteration
    helper.make_node("Mul", ["t", "zero"], ["nothing"]),
    helper.make_node("Add", ["nothing", "six"], ["shape"]),
    helper.make_node("Reshape", ["x", "shape"], ["reshaped"]),
    helper.make_node("ReduceMax", ["reshaped"], ["top"], keepdims=0),
    helper.make_node("Identity", ["on"], ["go"]),
]
BY_DATA = [
    helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
    helper.make_node("Cast", ["top"], ["go"], to=TensorProto.BOOL),
]


def kinds(graph: Graph) -> set[str]:
    """The kinds of ops that hold graphs, inside of others too."""
    return {op.text_name for each in graph.graphs for op in each.ops if op.body_names}


UNROLLED = pytest.mark.parametrize("unroll", [0, 512])


@UNROLLED
@pytest.mark.parametrize("count", [0, 1, 3, 200])
def test_a_loop_of_constant_length(count: int, unroll: int) -> None:
    graph = compare(loop(FOREVER, count), {"x": X / 2**count}, runtime, unroll=unroll)
    assert kinds(graph) == ({"scan"} if not unroll or count in (0, 200) else set())


@UNROLLED
@pytest.mark.parametrize("count", [None, 2, 9])
def test_a_loop_that_ends_by_a_constant_condition(count: int | None, unroll: int) -> None:
    """Its rows need a number that is known: it is unrolled whatever the limit."""
    compare(loop(BEFORE_TWO, count), {"x": X}, runtime, unroll=unroll)


def refused(model: onnx.ModelProto, **options: object) -> str:
    with pytest.raises(DlcError) as caught:
        parse(model, **options)
    assert all(d.help and d.location for d in caught.value.diagnostics)
    return str(caught.value)


def test_loops_that_are_not_known_are_refused() -> None:
    assert "the condition of the next iteration depends" in refused(loop(BY_DATA))
    assert "the loop never ends" in refused(loop(FOREVER, None))
    assert "26388279066624 bytes" in refused(loop(FOREVER, 1 << 40)).replace(",", "")
    assert "the loop has 1,099,511,627,776 steps; the limit is 1,024" in refused(loop(BY_NUMBER, 1 << 40))


def test_what_is_refused_in_a_body_is_reported_once() -> None:
    model = loop(FOREVER)
    model.graph.node[0].attribute[0].g.node[0].op_type = "Nothing"
    assert "Nothing, 1 node" in refused(model)


def test_loops_within_loops_are_bounded_in_all() -> None:
    model = loop(BY_NUMBER, 1000)
    text = refused(model, max_nodes=100)
    assert "with its iterations, branches and derivatives the model has 10" in text
    assert "nodes; the limit is 100" in text
    assert "--set onnx.max-nodes=" in text


def test_a_limit_on_steps_can_be_raised() -> None:
    parse(loop(BEFORE_TWO, 3), max_steps=3)
    assert "the limit is 1" in refused(loop(BY_NUMBER, 3), max_steps=1, unroll=0)


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


def counted(*, count: bool, condition: bool, rows: bool = False) -> onnx.ModelProto:
    """v = v + x / 2 while its largest element is below 4; `k` of integers goes along, `same` does not change."""
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["step"]),
        helper.make_node("Add", ["v", "step"], ["scaled"]),
        helper.make_node("Mul", ["scaled", "one"], ["next"]),
        helper.make_node("Add", ["k", "t"], ["sum"]),
        helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "four"], ["go"]),
        helper.make_node("Identity", ["one"], ["one_out"]),
        helper.make_node("Identity", ["next"], ["seen"]),
    ]
    given = [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, [])]
    results = [info("go", TensorProto.BOOL, []), info("next"), info("sum", TensorProto.INT64, []), info("one_out")]
    body = helper.make_graph(
        nodes,
        "body",
        [*given, info("v", shape=[2, 3]), info("k", TensorProto.INT64, []), info("one", shape=[])],
        [*results, info("seen")][: 4 + rows],
    )
    names = ["n" if count else "", "begin" if condition else "", "x", "zero", "same"]
    outputs = ["last", "k_out", "same_out", "all"][: 3 + rows]
    node = helper.make_node("Loop", names, outputs, body=body)
    feeds: dict[str, Any] = {"x": X, "same": np.array(1.5, np.float32)}
    feeds |= {"n": np.array(0)} if count else {}
    feeds |= {"begin": np.array(True)} if condition else {}
    stored = {"half": np.array(0.5, np.float32), "four": np.array(4, np.float32), "zero": np.array(0)}
    return model_of([node], feeds, outputs, stored, 16)


@pytest.mark.parametrize(("count", "condition"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_loop_whose_end_depends_on_data(count: bool, condition: bool) -> None:
    model = counted(count=count, condition=condition)
    program = compiler().program(Source(data=model.SerializeToString(), label="loop.onnx"))
    for n in (0, 1, 2, 100) if count else (0,):
        for go in (True, False) if condition else (True,):
            feeds = {"x": X, "same": np.array(0.75, np.float32)}
            feeds |= {"n": np.array(n)} if count else {}
            feeds |= {"begin": np.array(go)} if condition else {}
            graph = compare(model, feeds, runtime)
            assert kinds(graph) == {"loop"}
            for name, want in zip(graph.names, runtime(model, graph.names, feeds), strict=True):
                np.testing.assert_allclose(program(out=None, **feeds)[name], want, rtol=1e-6)


def test_what_does_not_change_is_computed_before_a_loop() -> None:
    graph = parse(counted(count=True, condition=True))
    (body,) = graph.bodies
    assert [op.text_name for op in body.ops if op.operands] == ["add", "mul", "reduce_max", "less", "add"]
    (loop_op,) = (op for op in graph.ops if op.body_names)
    assert sorted(str(x.type) for x in loop_op.operands[2:4]) == ["f32[2,3]", "i64[]"]  # not `same`


def test_rows_of_a_loop_whose_end_depends_on_data_are_refused() -> None:
    text = refused(counted(count=True, condition=True, rows=True))
    assert "a result has a row for every iteration" in text
    assert "constant number of iterations" in text


def test_a_value_that_changes_its_shape_is_carried_by_a_short_loop_only() -> None:
    body = helper.make_graph(
        [helper.make_node("Concat", ["v", "x"], ["next"], axis=0), helper.make_node("Identity", ["on"], ["go"])],
        "body",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("v")],
        [info("go", TensorProto.BOOL, []), info("next")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    compare(model_of([node], {"x": X}, ["y"], {"n": np.array(40)}, 16), {"x": X}, runtime, unroll=0)
    text = refused(model_of([node], {"x": X, "n": np.array(40)}, ["y"], {}, 16))
    assert "a value changes its type from one iteration to the next: f32[2,3] becomes f32[4,3]" in text


def product(weight: str) -> list[onnx.NodeProto]:
    """a = tanh(x w) twice; b = x."""
    return [
        helper.make_node("MatMul", ["x", weight], ["u"]),
        helper.make_node("Tanh", ["u"], ["a"]),
        helper.make_node("Identity", ["x"], ["b"]),
    ]


@pytest.mark.parametrize("condition", [True, False])
def test_only_the_branch_that_is_taken_runs(condition: bool) -> None:
    model = branches(product("w0"), product("w1"))
    random = np.random.default_rng(0)
    weights = {n: random.standard_normal((3, 3)).astype(np.float32) for n in ("w0", "w1")}
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    feeds = {"c": np.array(condition), "x": X}
    graph = compare(model, feeds, runtime)
    assert kinds(graph) == {"if"}
    program = compiler().program(Source(data=model.SerializeToString(), label="if.onnx"))
    for name, want in zip(graph.names, runtime(model, graph.names, feeds), strict=True):
        np.testing.assert_allclose(program(out=None, **feeds)[name], want, rtol=1e-5)


def test_a_loop_inside_of_a_branch_inside_of_a_scan() -> None:
    """Names inside of a body hide those around it."""
    inner = helper.make_graph(
        [helper.make_node("Tanh", ["state"], ["next"]), helper.make_node("Identity", ["on"], ["go"])],
        "inner",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("state", shape=[3])],
        [info("go", TensorProto.BOOL, []), info("next", shape=[3])],
    )
    then = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "state"], ["r"], body=inner)], "then", [], [info("r", shape=[3])]
    )
    otherwise = helper.make_graph(
        [helper.make_node("MatMul", ["state", "w"], ["r"])], "otherwise", [], [info("r", shape=[3])]
    )
    body = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["row"], ["total"], keepdims=0),
            helper.make_node("Greater", ["total", "zero"], ["positive"]),
            helper.make_node("If", ["positive"], ["r"], then_branch=then, else_branch=otherwise),
            helper.make_node("Add", ["r", "row"], ["new"]),
            helper.make_node("Identity", ["new"], ["y"]),
        ],
        "body",
        [info("state", shape=[3]), info("row", shape=[3])],
        [info("new", shape=[3]), info("y", shape=[3])],
    )
    node = helper.make_node("Scan", ["start", "rows"], ["end", "ys"], body=body, num_scan_inputs=1)
    random = np.random.default_rng(0)
    feeds: dict[str, Any] = {"start": random.standard_normal(3), "rows": random.standard_normal((7, 3))}
    feeds = {n: x.astype(np.float32) for n, x in feeds.items()} | {"n": np.array(2)}
    stored = {"w": random.standard_normal((3, 3)).astype(np.float32), "zero": np.array(0, np.float32)}
    model = model_of([node], feeds, ["end", "ys"], stored, 16)
    graph = compare(model, feeds, runtime, unroll=0)
    assert kinds(graph) == {"scan", "if", "loop"}
    settings = ["onnx.unroll=0"]
    program = compiler().program(Source(data=model.SerializeToString(), label="nested.onnx"), "c", settings)
    for name, want in zip(graph.names, runtime(model, graph.names, feeds), strict=True):
        np.testing.assert_allclose(program(out=None, **feeds)[name], want, rtol=1e-5)


def test_a_long_loop_makes_no_large_program() -> None:
    few, many = (parse(loop(FOREVER, n), unroll=0) for n in (5, 1000))
    assert len(few.ops) == len(many.ops)


@UNROLLED
@pytest.mark.parametrize("lengths", [None, 5])
def test_a_scan_of_a_batch_as_operator_set_8_has_it(lengths: int | None, unroll: int) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "a"], ["t"]), helper.make_node("Mul", ["t", "b"], ["y"])],
        "body",
        [info(name, shape=[3]) for name in ("s", "a", "b")],
        [info(name, shape=[3]) for name in ("t", "y")],
    )
    names = ["" if lengths is None else "lengths", "start", "p", "q"]
    node = helper.make_node("Scan", names, ["end", "ys"], body=body, num_scan_inputs=2, directions=[0, 1])
    random = np.random.default_rng(0)
    feeds = {"start": (2, 3), "p": (2, 5, 3), "q": (2, 5, 3)}
    arrays = {n: random.standard_normal(s).astype(np.float32) for n, s in feeds.items()}
    stored = {} if lengths is None else {"lengths": np.full(2, lengths)}
    compare(model_of([node], arrays, ["end", "ys"], stored, 8), arrays, runtime, unroll=unroll)
    if lengths is not None:
        assert "sequences of lengths (4, 4), of 5 steps" in refused(
            model_of([node], arrays, ["end", "ys"], {"lengths": np.full(2, 4)}, 8)
        )


def opened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with an open first dimension of x."""
    of = next(i for i in model.graph.input if i.name == "x").type.tensor_type
    of.shape.dim[0].dim_param = "rows"
    return model


def test_sizes_that_are_known_at_run_time() -> None:
    """Branches select then; short loops are unrolled; others need one size."""
    weights = [numpy_helper.from_array(np.eye(3, dtype=np.float32) * k, n) for k, n in ((2, "w0"), (3, "w1"))]
    model = branches(product("w0"), product("w1"))
    model.graph.initializer.extend(weights)
    graph = parse(opened(model), dims=("rows:1..4",))
    assert not kinds(graph)
    body = helper.make_graph(
        [helper.make_node("Tanh", ["v"], ["next"]), helper.make_node("Identity", ["on"], ["go"])],
        "body",
        [info("t", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("v")],
        [info("go", TensorProto.BOOL, []), info("next")],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    assert not kinds(parse(opened(model_of([node], {"x": X}, ["y"], {"n": np.array(3)}, 16)), dims=("rows:1..4",)))
    model = opened(model_of([node], {"x": X, "n": np.array(3)}, ["y"], {}, 16))
    assert "whose sizes are known at run time only" in refused(model, dims=("rows:1..4",))
    assert kinds(parse(model, dims=("rows:4",))) == {"loop"}
    rows = helper.make_graph([helper.make_node("Tanh", ["r"], ["y"])], "body", [info("r")], [info("y")])
    scan = helper.make_node("Scan", ["x"], ["ys"], body=rows, num_scan_inputs=1)
    text = refused(opened(model_of([scan], {"x": X}, ["ys"], {}, 16)), dims=("rows:1..4",))
    assert "a dimension whose size, rows(1,4), is known at run time only" in text
