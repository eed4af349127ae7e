"""Ops that the host computes between instructions, against onnxruntime and torch; and what selection makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from dlc_backend_s2train import dlc_pipelines
from dlc_backend_s2train.codes import Arena, Element
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.instruction import S2Host
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.simulator.operands import encode
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from dlc import DlcError
from dlc.base.types import Array, i32
from dlc.cli.frame import run
from dlc.driver.state_text import op_classes
from dlc.graph import Constant, Graph, Input, Op, Tensor, evaluate, parse_graph
from dlc.ops.elementwise import Add, Cast, Mul, Relu, Sigmoid
from dlc.ops.index import Gather
from dlc.ops.linear import Conv, MatMul
from dlc.ops.normalize import Lrn, Softmax
from dlc.ops.pool import MaxPool
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from dlc.plugins.discovery import load_registry
from tests.backend_s2train.machines import machine_of
from tests.backend_s2train.numerics_cases import halves
from tests.backend_s2train.page_simulator import Simulator
from tests.backend_s2train.selected import Model, instructions, planned, program, select, training
from tests.models.building import Bench, reference
from tests.models.zoo import image, light

TOLERANCE = 5e-3
"""The backend's."""


def hosted(graph: Graph) -> Program:
    """The program of a graph with the host as the fallback."""
    return program(select(graph, fallback="host"))


def close(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * float(np.abs(wanted).max()))


def calls(of: Program) -> list[tuple[int, int]]:
    """How many tensors each host function reads and writes, in the order of the program."""
    return [(len(f.reads), len(f.writes)) for f in of.functions]


# ---- whole models ----
MIXED = """
<ir_version: 10, opset_import: ["": 21]>
mixed (float[2,4,8,8] x) => (float[2,6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w1)
    n = LRN<size = 3, alpha = 0.5, beta = 0.75, bias = 1.5>(a)
    g = Conv<pads = [1, 1, 1, 1], group = 2>(n, w2)
    s = Sigmoid(g)
    i = Identity(a)
    c = Concat<axis = 1>(s, i)
    r = Reshape(c, split)
    t = Transpose<perm = [0, 2, 1, 3, 4]>(r)
    f = Reshape(t, joined)
    d = Conv<group = 16>(f, w3)
    p = GlobalAveragePool(d)
    v = Flatten(p)
    z = Gemm(v, w4, b4)
    y = Softmax(z)
}"""


def mixed() -> onnx.ModelProto:
    model = parser.parse_model(MIXED)
    random = np.random.default_rng(3)
    shapes = {"w1": (8, 4, 3, 3), "w2": (8, 4, 3, 3), "w3": (16, 1, 1, 1), "w4": (16, 6), "b4": (6,)}
    for name, shape in shapes.items():
        values = random.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    for name, shape in (("split", (2, 4, 4, 8, 8)), ("joined", (2, 16, 8, 8))):
        model.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), name))
    return model


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("cache"))


def test_a_network_with_real_weights(bench: Bench, tmp_path: Path) -> None:
    built = bench.compile(mixed(), tmp_path, target="s2train")
    feeds = {"x": halves(0, 2, 4, 8, 8)}
    close(built(feeds)["y"], reference(built.source, feeds)["y"])
    assert built.memory["host"] == "lrn x 1, sigmoid x 1"
    # Two convolutions of 3 x 3, one of them in two groups, one by channel, and the linear layer.
    macs = 2 * 8 * 8 * (8 * 4 * 9 + 8 * 4 * 9 + 16) + 2 * 16 * 6
    assert (built.memory["device_macs"], built.memory["host_macs"]) == (macs, 0)
    assert str(built.memory["coverage"]).startswith("8 of 10 ops (80.0 %)")


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_light_models(name: str, bench: Bench, tmp_path: Path) -> None:
    model = light(name, 1)
    built = bench.compile(model, tmp_path, target="s2train")
    feeds = image(model)
    (found,), (wanted,) = built(feeds).values(), reference(built.source, feeds).values()
    close(found, wanted)
    assert (built.memory["host_ops"], built.memory["host_macs"], built.memory["host"]) == (0, 0, "")


@pytest.fixture
def building(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """`dlc build` of the mixed model with flags: exit code and document."""
    (tmp_path / "mixed.onnx").write_bytes(mixed().SerializeToString())

    def build(*flags: str) -> tuple[int, dict[str, Any]]:
        line = ["build", str(tmp_path / "mixed.onnx"), "--target", "s2train", "--cache", "off", "--json"]
        code = run([*line, "-o", str(tmp_path / "out"), *flags])
        return code, json.loads(capsys.readouterr().out)

    return build


Building = Callable[..., tuple[int, dict[str, Any]]]


@pytest.mark.parametrize("name", sorted(dlc_pipelines()))
def test_every_pipeline_leaves_to_the_host_what_the_device_does_not_do(name: str, building: Building) -> None:
    code, found = building("-p", name)
    assert code == 0, found
    assert "sigmoid x 1" in str(found["memory"]["host"]).split(", ")


def test_without_a_host_everything_that_has_no_instruction_is_refused(building: Building) -> None:
    code, found = building("--set", "s2-select.fallback=none")
    assert code == 1
    assert [d["message"].split(":")[0] for d in found["diagnostics"]] == ["lrn", "sigmoid"]
    assert all("fallback=none" in d["help"] for d in found["diagnostics"])


@pytest.mark.parametrize("asked", ["80", "80%", "ops=80,macs=100%", "macs=100", "ops=0"])
def test_as_much_offload_as_there_is(asked: str, building: Building) -> None:
    assert building("--min-offload", asked)[0] == 0


@pytest.mark.parametrize("asked", ["80.1", "100%", "ops=95", "macs=100,ops=81"])
@pytest.mark.parametrize("train", [(), ("--train", "loss=cross-entropy")], ids=["inference", "training"])
def test_less_offload_than_asked_for(asked: str, train: tuple[str, ...], building: Building) -> None:
    """Exit code 4, with the shares, and every node that the host computes with the reason."""
    code, found = building("--min-offload", asked, *train)
    assert code == 4
    (report,) = found["diagnostics"]
    assert report["code"] == "offload-limit"
    assert "% of the ops is asked for" in report["message"] and "ops (" in report["message"]
    assert "macs" not in report["message"].lower().partition("at least")[2]
    assert {"LRN_1", "Sigmoid_3"} <= {note.split('"')[1] for note in report["notes"]}
    assert any(note.startswith('left to the host: node "Sigmoid_3": sigmoid') for note in report["notes"])


@pytest.mark.parametrize(
    "asked", ["", "all", "101", "-1", "nan", "macs=", "weights=3", "ops=1,ops=2", "5,macs=5", "ops=1,"]
)
def test_offload_that_is_no_percentage(asked: str, building: Building) -> None:
    code, found = building("--min-offload", asked)
    assert (code, found["diagnostics"][0]["code"]) == (2, "bad-option")


@pytest.mark.parametrize("flags", [("--target", "c"), ("-p", "infer")], ids=["target", "pipeline"])
def test_offload_where_there_is_none(flags: tuple[str, ...], building: Building) -> None:
    code, found = building("--min-offload", "95", *flags)
    assert (code, found["diagnostics"][0]["code"]) == (2, "no-effect")


def test_what_is_left_to_the_host_is_explained(building: Building, tmp_path: Path, capsys: Any) -> None:
    del building
    line = ["build", str(tmp_path / "mixed.onnx"), "--target", "s2train", "--cache", "off", "-q"]
    assert run([*line, "-o", str(tmp_path / "out"), "--explain", "s2-select"]) == 0
    assert "LRN_1: is left to the host: lrn: it has no instruction" in capsys.readouterr().out


# ---- what runs together ----
def test_ops_that_read_each_other_are_one_function() -> None:
    model = Model()
    x = model.x(1, 4, 2, 3)
    y = Transpose(Sigmoid(Lrn(model.relu(x), 3)), (0, 1, 3, 2))
    made = hosted(model.graph(model.relu(y)))
    assert calls(made) == [(1, 1)]
    assert [i.opcode for i in made.instructions] == [Opcode.ELTWISE, Opcode.HOST, Opcode.ELTWISE]


def test_functions_are_convex() -> None:
    """The second op of the host reads the first one, and what the device made of it: two calls."""
    model = Model()
    a = Sigmoid(model.relu(model.x(1, 4, 3, 3)))
    b = Mul(a, model.conv(a, 4))
    made = hosted(model.graph(model.relu(b), names=("y",)))
    assert calls(made) == [(1, 1), (2, 1)]
    x = halves(1, 1, 4, 3, 3)
    a_ = torch.sigmoid(torch.tensor(x).relu())
    weight = torch.tensor(model.weights["conv1.w"])
    wanted = (a_ * torch.nn.functional.conv2d(a_, weight, padding=1)).relu()
    close(machine_of(made, checked=True).run("step", {"x": x})["y"], wanted.numpy())


def test_branches_that_nothing_joins_are_functions_of_their_own() -> None:
    model = Model()
    x = model.relu(model.x(1, 4, 3, 3))
    made = hosted(model.graph(model.relu(Sigmoid(x)), model.relu(Transpose(x, (0, 1, 3, 2))), names=("a", "b")))
    assert calls(made) == [(1, 1), (1, 1)]


def test_values_that_several_read_are_stored_once() -> None:
    model = Model()
    a = Sigmoid(model.x(2, 4))
    made = hosted(model.graph(model.relu(a), model.linear(a, 3), Mul(a, a), names=("a", "b", "c")))
    assert calls(made) == [(1, 2)]


def test_integers_and_truth_values_are_int32() -> None:
    """A table is looked up by integers that the host is given; a comparison crosses the device in between."""
    from dlc.ops.elementwise import Greater, Where

    model = Model()
    x = model.x(2, 3)
    above = Greater(Sigmoid(x), Constant(Tensor.of(np.full((1, 1), 0.5, np.float32))))
    kept = Where(above, model.linear(Sigmoid(x), 3, bias=False), model.relu(x))
    made = hosted(model.graph(kept, names=("y",)))
    assert {made.tensors[n].element for f in made.functions for n in f.writes} >= {Element.INT32, Element.FP16}
    values = halves(2, 2, 3)
    linear = 1 / (1 + np.exp(-values)) @ model.weights["linear1.w"].T
    close(
        machine_of(made, checked=True).run("step", {"x": values})["y"],
        np.where(values > 0, linear, np.maximum(values, 0)),
    )


def _integer_ops(x: Op, y: Op) -> dict[str, Op]:
    """Ops that the device has for floats, of integers [1, 2, 4, 4]."""
    w = Constant(Tensor.of(np.arange(-8, 8, dtype=np.int32).reshape(2, 2, 2, 2)))
    return {
        "sum": Add(x, y),
        "conv": Conv(x, w, None),
        "product": MatMul(x, y),
        "pool": MaxPool(x, window=(2, 2), stride=(2, 2)),
        "relu": Relu(x),
        "turned": Transpose(x, perm=(0, 1, 3, 2)),
        "joined": Concat((x, y), axis=1),
        "part": Slice(x, starts=(0, 0, 1, 1), sizes=(1, 2, 2, 3), steps=(1, 1, 1, 1)),
    }


@pytest.mark.parametrize("name", ["sum", "conv", "product", "pool", "relu", "turned", "joined", "part"])
def test_integers_are_computed_by_the_host(name: str) -> None:
    """The device would take them for fp16, which 4001 is not."""
    model = Model()
    shape = (1, 2, 4, 4)
    by = Constant(Tensor.of(np.int32(4001)))
    x, y = (Mul(Cast(model.x(*shape, name=n), to=i32), by) for n in "xy")
    values = {n: np.random.default_rng(k).integers(-3, 4, shape).astype(np.float32) for k, n in enumerate("xy")}
    graph = model.graph(_integer_ops(x, y)[name], names=("z",))
    given = {n: values[n] for n in "xy" if n in {i.name for i in graph.ops if isinstance(i, Input)}}
    found = machine_of(hosted(graph), checked=True).run("step", given)["z"]
    np.testing.assert_array_equal(found, evaluate(graph, values)["z"])


def test_large_constants_are_weights() -> None:
    model = Model()
    table, places = halves(0, 40, 3), np.arange(39, -1, -1).reshape(20, 2)
    found = Gather(Constant(Tensor.of(table)), Constant(Tensor.of(places)), axis=0)
    y = Mul(Sigmoid(model.x(20, 2, 3)), found)
    made = hosted(model.graph(model.relu(y), names=("y",)))
    (function,) = made.functions
    kinds = [(made.storages[t.storage].arena, t.element) for t in (made.tensors[n] for n in function.reads)]
    assert (Arena.WEIGHTS, Element.FP32) in kinds
    x = halves(1, 20, 2, 3)
    close(machine_of(made, checked=True).run("step", {"x": x})["y"], np.maximum(table[places] / (1 + np.exp(-x)), 0))


def test_constants_without_dimensions_stay_so() -> None:
    model = Model()
    row = Gather(Sigmoid(model.x(2, 5, 8)), Constant(Tensor.of(np.int64(3))), axis=1)
    made = hosted(model.graph(model.linear(row, 4), names=("y",)))
    x = halves(1, 2, 5, 8)
    wanted = 1 / (1 + np.exp(-x[:, 3])) @ model.weights["linear1.w"].T + model.weights["linear1.b"]
    close(machine_of(made, checked=True).run("step", {"x": x})["y"], wanted)


def test_products_of_the_host_count() -> None:
    """A product whose items are not those of its weights: 2 x 3 x 4 by 1 x 4 x 5."""
    model = Model()
    x, w = model.x(2, 3, 4), model.x(1, 4, 5, name="w")
    graph = select(model.graph(MatMul(x, w), names=("y",)), fallback="host")
    from dlc_backend_s2train.select.coverage import coverage_facts

    plan = planned(graph)
    facts = coverage_facts(plan.graph, plan.steps)
    assert (facts["device_macs"], facts["host_macs"], facts["host"]) == (0, 2 * 3 * 4 * 5, "mat_mul x 1")
    told = "0 of 1 ops (0.0 %), 0 of 120 MACs (0.0 %) on the accelerator; host: mat_mul x 1 in 1 call, 148 B to and fro"
    assert facts["coverage"] == told


OPS: dict[str, Callable[[Op], Op]] = {
    "lrn": lambda x: Lrn(x, 3, 0.5),
    "sigmoid": Sigmoid,
    "softmax": lambda x: Softmax(x, axis=1),
    "turned": lambda x: Reshape(Transpose(Reshape(x, (1, 2, 2, 3, 3)), (0, 2, 1, 3, 4)), (1, 4, 3, 3)),
    "relu": Relu,
    "twice": lambda x: Add(x, x),
    "joined": lambda x: Concat((x, Relu(x)), axis=1),
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9))
def test_random_graphs(steps: list[tuple[str, int, int]]) -> None:
    """Every value reads any earlier one, or the sum of two: the program gives what the graph says."""
    model = Model()
    values: list[Op] = [model.x(1, 4, 3, 3)]
    for kind, first, second in steps:
        a, b = values[first % len(values)], values[second % len(values)]
        x = Add(a, b) if a.shape == b.shape and a is not b else a
        made = OPS[kind](x if kind != "turned" or x.shape[1] == 4 else values[0])
        values.append(made if made.shape[1] <= 16 else Relu(x))
    ends = list(dict.fromkeys((values[-1], *values[1:3])))
    graph = model.graph(*ends, names=[f"y{k}" for k in range(len(ends))])
    given_x = {"x": halves(len(steps), 1, 4, 3, 3)}
    found = machine_of(hosted(graph), checked=True).run("step", given_x)
    for name, wanted in evaluate(graph, given_x).items():
        close(found[name], wanted)


# ---- training ----
def test_gradients_through_the_host() -> None:
    """Two steps of a network with an LRN, a sigmoid and a transposition: weights move as torch moves them."""
    model = Model(5)
    x = model.x(4, 2, 6, 6)
    a = Lrn(model.relu(model.conv(x, 4)), 3, 0.5)
    b = Sigmoid(model.conv(Transpose(a, (0, 1, 3, 2)), 4))
    made = program(select(training(model.graph(model.linear(model.flat(b), 3))), fallback="host"))
    assert made.functions
    machine = machine_of(made, checked=True)
    weights = {k: torch.tensor(v, requires_grad=True) for k, v in model.weights.items()}
    moving: Any = torch.optim.SGD(list(weights.values()), 0.25, 0.5)
    F: Any = torch.nn.functional
    for seed in range(2):
        images, labels = halves(seed, 4, 2, 6, 6), np.arange(4) % 3
        a_ = F.local_response_norm(F.conv2d(torch.tensor(images), weights["conv1.w"], padding=1).relu(), 3, 0.5)
        b_ = torch.sigmoid(F.conv2d(a_.transpose(2, 3), weights["conv2.w"], padding=1))
        loss = F.cross_entropy(
            F.linear(b_.flatten(1), weights["linear1.w"], weights["linear1.b"]), torch.tensor(labels)
        )
        moving.zero_grad()
        loss.backward()
        moving.step()
        (label,) = (name for name, _ in made.entries[0].labels)
        found = machine.run("step", {"x": images, label: labels})
        assert float(found["loss"].reshape(())) == pytest.approx(float(loss.detach()), rel=TOLERANCE)
    for name in ("conv1.w", "conv2.w", "linear1.w"):
        close(machine.read(name), weights[name].detach().numpy())


def test_training_by_another_loss_is_refused() -> None:
    """Gradients in memory are scaled by the device's loss; those of another one would not be."""
    model = Model()
    graph = model.graph(model.linear(Sigmoid(model.linear(model.x(4, 3), 5)), 2))
    with pytest.raises(DlcError, match="loss=cross-entropy"):
        select(training(graph, loss="mse"), fallback="host")


# ---- ways to hold it wrong ----
def test_gradients_that_are_clipped_on_the_host_are_refused() -> None:
    """They would be clipped with the loss scale in them."""
    model = Model()
    x = model.x(4, 3)
    graph = model.graph(model.linear(Mul(Sigmoid(x), model.weight("gain", 4, 3)), 2))
    with pytest.raises(DlcError, match=r"gain: its new value is no SGD step"):
        select(training(graph, more="clip=1.0"), fallback="host")


def test_nothing_is_left_to_the_host_that_is_not_allowed() -> None:
    model = Model()
    graph = model.graph(model.relu(Sigmoid(model.x(2, 3))))
    with pytest.raises(DlcError, match="sigmoid: it has no instruction") as refused:
        select(graph)
    assert "fallback=none" in refused.value.diagnostics[0].help


def test_the_host_takes_no_more_than_it_has_to() -> None:
    model = Model()
    graph = model.graph(model.relu(model.conv(model.x(1, 2, 4, 4), 3)))
    assert not any(isinstance(op, S2Host) for op in select(graph, fallback="host").ops)
    assert select(graph, fallback="host") == select(graph)
    assert len(instructions(select(graph))) == 1


def test_results_are_rounded_once() -> None:
    """The host computes in fp32 what the device then holds as fp16, with ops between that are stored nowhere."""
    model = Model()
    graph = model.graph(Sigmoid(Lrn(model.x(1, 4, 2, 2), 3, 0.5)), names=("y",))
    made = hosted(graph)
    x = halves(4, 1, 4, 2, 2)
    (wanted,) = evaluate(graph, {"x": x}).values()
    found = machine_of(read(memoryview(write(made)), "again"), checked=True).run("step", {"x": x})["y"]
    np.testing.assert_array_equal(encode(found, Element.FP16), encode(wanted, Element.FP16))


def test_a_simulator_made_from_the_page_gives_the_same_bits() -> None:
    """Only the text of a function is dlc's to compute; what it reads and writes is as the page says."""

    def host(text: str, operands: list[Array]) -> list[Array]:
        graph = parse_graph(text, op_classes(load_registry(kinds=("ops",))))
        found = evaluate(graph, dict(zip((i.name for i in graph.inputs), operands, strict=True)))
        return [found[name] for name in graph.names]

    model = Model()
    a = Lrn(model.relu(model.conv(model.x(2, 3, 4, 4), 4)), 3, 0.5)
    made = hosted(model.graph(model.conv(a, 2), Transpose(a, (0, 1, 3, 2)), names=("y", "z")))
    x = {"x": halves(0, 2, 3, 4, 4)}
    found = Simulator(write(made), host).run("step", **x)
    wanted = machine_of(made, "bit-true").run("step", x)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
