"""`dlc debug bisect-passes` and `first-divergence`: faults that are put in are named, each by its place."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.ops import math
from onnx import helper, numpy_helper

from dlc.base.diagnostics import ExitCode
from dlc.base.types import Array, Type, f32
from dlc.debug.bisect import halves
from dlc.debug.divergence import first_divergence, numpy_run
from dlc.debug.states import Closeness
from dlc.graph import Graph, Input, Op, make_graph
from dlc.ops.elementwise import Add, Tanh
from dlc.verify.reference import onnxruntime
from tests.cli.conftest import Dlc, Install
from tests.cli.models import model, small
from tests.conftest import Golden

TARGET = ("-t", "c{cpu=generic flags=-O0}")
BISECT = ("debug", "bisect-passes", "deep.onnx", *TARGET)
DIVERGE = ("debug", "first-divergence", "deep.onnx", *TARGET)
PIPELINE = "fold-constants,simplify,lower,fuse,order,plan-memory"
PASSES = (Path(__file__).parents[1] / "data" / "plugins" / "miscompiling.txt").read_text()
RULE = '''
from dlc import equation, hookimpl
from dlc.ops.elementwise import Sigmoid, Tanh

@equation(Sigmoid)
def sigmoid_is_tanh(op):
    """sigmoid(x) → tanh(x)"""
    return Tanh(op.operands[0])

@hookimpl
def dlc_rules():
    return [sigmoid_is_tanh]
'''
SCHEDULE = '''
from dataclasses import dataclass
from dlc import hookimpl
from dlc.schedules import Applied, Axis, Choice, Load, Store, Unfit, loop

@dataclass(frozen=True)
class Through(Choice):
    """Copies where a relu is to be computed."""
    name = "through"

    def apply(self, place):
        if len(place.kernel.params) != 1 or place.kernel.results[0].shape != (2, 3):
            raise Unfit("it is not the relu")
        i = Axis("i", 6)
        return Applied(self, (loop(i, Store("r0", i, Load("p0", (i,)))),), ())

@hookimpl
def dlc_schedules():
    return [Through]
'''


def deep() -> onnx.ModelProto:
    """Two sigmoids, a relu and three products."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Sigmoid", ["a"], ["b"], name="bent"),
        helper.make_node("MatMul", ["b", "v"], ["c"], name="back"),
        helper.make_node("Relu", ["c"], ["d"], name="positive"),
        helper.make_node("MatMul", ["d", "w"], ["e"], name="again"),
        helper.make_node("Sigmoid", ["e"], ["f"], name="bent again"),
        helper.make_node("Add", ["f", "a"], ["y"], name="sum"),
    ]
    generator = np.random.default_rng(0)
    stored = {"w": generator.standard_normal((3, 4)), "v": generator.standard_normal((4, 3))}
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in stored.items()]
    return model(nodes, [("x", [2, 3])], [("y", [2, 4])], tensors)


@pytest.fixture(autouse=True)
def models() -> None:
    Path("deep.onnx").write_bytes(deep().SerializeToString())
    Path("small.onnx").write_bytes(small().SerializeToString())


def test_a_build_without_a_fault(dlc: Dlc) -> None:
    for command in (BISECT, DIVERGE):
        ran = dlc(*command, "--json")
        assert (ran.code, ran.document["found"], ran.document["reference"]) == (0, False, "onnxruntime")


def test_a_rule(dlc: Dlc, install: Install, golden: Golden) -> None:
    install("wrong", RULE)
    ran = dlc(*BISECT)
    assert ran.code == ExitCode.MISMATCH
    golden("debug/bisect-passes.txt", ran.transcript())
    found = dlc(*BISECT, "--json").document["application"]
    assert (found["what"], found["nodes"], found["number"]) == ("sigmoid_is_tanh", ["bent"], 1)
    tensor = dlc(*DIVERGE, "--json").document
    assert tensor["step"].startswith("simplify")
    assert tensor["tensor"]["nodes"] == ["bent"]


@pytest.mark.parametrize("fault", ["swap", "scale"])
def test_a_pass(dlc: Dlc, install: Install, fault: str) -> None:
    install("wrong", PASSES)
    at = "positive" if fault == "swap" else "first"
    place = "simplify" if fault == "swap" else "fuse"
    pipeline = ("-p", PIPELINE.replace(place, f"{place},{fault}"))
    found = dlc(*BISECT, *pipeline, "--json").document
    assert found["step"].partition("{")[0] == fault
    assert at in found["nodes"]
    tensor = dlc(*DIVERGE, *pipeline, "--json").document
    assert tensor["step"].partition("{")[0] == fault
    assert at in tensor["tensor"]["nodes"]
    assert tensor["function"].startswith("dlc_k_")
    assert tensor["held_bytes"] <= tensor["bound_bytes"]


def test_a_plan(dlc: Dlc, install: Install) -> None:
    install("wrong", PASSES)
    found = dlc(*BISECT, "-p", f"{PIPELINE},overlap", "--json").document
    assert (found["step"], found["previous"].partition("{")[0]) == ("overlap", "plan-memory")
    tensor = dlc(*DIVERGE, "-p", f"{PIPELINE},overlap")
    assert tensor.code == ExitCode.MISMATCH
    assert tensor.out.startswith("overlap makes the result wrong, but no single tensor of it can be compared")


def test_a_schedule(dlc: Dlc, install: Install, golden: Golden) -> None:
    install("wrong", SCHEDULE)
    alone = ("-p", PIPELINE.replace("fuse,", ""))
    found = dlc(*BISECT, *alone, "--json").document
    assert (found["step"], found["schedule"], found["nodes"]) == ("schedule-kernels", "through", ["positive"])
    ran = dlc(*DIVERGE, *alone)
    assert ran.code == ExitCode.MISMATCH
    golden("debug/first-divergence.txt", ran.transcript())
    tensor = dlc(*DIVERGE, *alone, "--json").document
    assert tensor["tensor"]["nodes"] == ["positive"]
    assert 0 < tensor["held_bytes"] <= tensor["bound_bytes"]


def test_an_import_rule(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast("dict[str, object]", math.UNARY), "Relu", Tanh)
    found = dlc(*BISECT, "--json").document
    assert (found["step"].partition("{")[0], found["previous"]) == ("onnx", "")
    assert found["nodes"] == ["positive"]
    tensor = dlc(*DIVERGE, "--json").document
    assert tensor["tensor"]["nodes"] == ["positive"]
    assert tensor["tensor"]["op"] == "tanh"
    # The graph as it was read is no judge of how it was read.
    assert dlc(*BISECT, "--against", "reference").code == 0


CHECK = """
import sys
import dlc, numpy
found = dlc.load(sys.argv[1])(x=numpy.load("x.npy"))["y"]
sys.exit(int(abs(found - numpy.load("y.npy")).max() < 1e-3))
"""


def test_a_check_of_the_users_own(dlc: Dlc, install: Install) -> None:
    install("wrong", RULE)
    Path("check.py").write_text(CHECK)
    x = np.ones((2, 3), np.float32)
    np.save("x.npy", x)
    np.save("y.npy", onnxruntime(Path("deep.onnx")).evaluate({"x": x})["y"])
    ran = dlc(*BISECT, "--check", f"{sys.executable} check.py", "-p", "simplify,lower,fuse,order,plan-memory", "--json")
    found = ran.document
    assert (ran.code, found["step"].partition("{")[0], found["number"]) == (ExitCode.MISMATCH, "simplify", 1)
    assert found["application"]["nodes"] == ["bent"]
    never = dlc(*BISECT, "--check", "false", "--json")
    assert (never.code, never.document["found"]) == (0, False)


WRONG = {
    "no such reference": ("--against", "torch"),
    "a check and a reference": ("--check", "true", "--against", "reference"),
    "no program to check with": ("--check", "absent-program"),
    "an input that there is not": ("z=x.npy",),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_asked_for(dlc: Dlc, wrong: str) -> None:
    np.save("x.npy", np.zeros((2, 3), np.float32))
    ran = dlc(*BISECT, *WRONG[wrong])
    assert ran.code == ExitCode.USAGE
    assert "error[" in ran.err
    assert "help  " in ran.err
    if "--check" not in WRONG[wrong]:
        assert dlc(*DIVERGE, *WRONG[wrong]).code == ExitCode.USAGE


def test_sizes_that_are_open(dlc: Dlc) -> None:
    Path("open.onnx").write_bytes(small("batch").SerializeToString())
    for command in ("bisect-passes", "first-divergence"):
        ran = dlc("debug", command, "open.onnx", *TARGET, "--dim", "batch=1..4")
        assert ran.code == ExitCode.USAGE
        assert "give single sizes" in ran.err
    assert dlc("debug", "bisect-passes", "open.onnx", *TARGET, "--dim", "batch=3").code == 0
    assert dlc("debug", "bisect-passes", "absent.onnx").code == ExitCode.USAGE


def test_a_training_program(dlc: Dlc, install: Install) -> None:
    install("wrong", PASSES)
    train = ("--train", "loss=mse", "-p", PIPELINE.replace("fuse", "fuse,scale"))
    found = dlc("debug", "bisect-passes", "small.onnx", *TARGET, *train, "--json").document
    assert (found["step"].partition("{")[0], found["function"]) == ("scale", "gradients")


def test_a_target_without_kernels(dlc: Dlc) -> None:
    """Its numbers have 16 bits, which no tolerance of nothing forgives."""
    found = dlc("debug", "first-divergence", "small.onnx", "-t", "s2train", "--rtol", "0", "--atol", "0", "--json")
    tensor = found.document["tensor"]
    assert (found.code, tensor["op"], tensor["nodes"]) == (ExitCode.MISMATCH, "mat_mul", ["product"])
    assert 0 < tensor["max_abs"] < 0.02


def test_what_cannot_be_judged_is_left_out() -> None:
    asked: list[int] = []

    def shows(k: int) -> bool | None:
        asked.append(k)
        return None if k in (3, 4) else k >= 5

    assert halves(9, shows) == (2, 5)
    assert sorted(asked) == sorted(set(asked))
    assert halves(2, lambda _: True) == (0, 1)


def sums(length: int) -> Graph:
    """x + x + x …, a link for each addition."""
    x = value = Input("x", Type(f32, (4,)))
    for _ in range(length):
        value = Add(value, x)
    return make_graph((x,), {"y": value})


@pytest.mark.parametrize("at", [1, 2, 17, 40])
def test_the_first_wrong_tensor_is_found_with_few_of_them_held(at: int) -> None:
    graph = sums(40)
    feeds = {"x": np.ones(4, np.float32)}
    right = numpy_run(graph, feeds)
    wrong_op = graph.ops[at]

    def wrong(known: Mapping[Op, Array], wanted: Sequence[Op]) -> Sequence[Array]:
        if wrong_op in known:
            return right(known, wanted)
        (value,) = right(known, [wrong_op])
        return right({**known, wrong_op: value + 1}, wanted)

    found = first_divergence(graph, right, wrong, feeds, Closeness())
    assert found is not None
    assert (found.op, found.position, found.accumulated) == (wrong_op, at + 1, False)
    assert found.parts <= 8
    assert found.held <= found.bound == 3 * 2 * 16


def test_errors_that_add_up_are_no_fault_of_one() -> None:
    graph = sums(40)
    feeds = {"x": np.ones(4, np.float32)}
    right = numpy_run(graph, feeds)

    def rough(known: Mapping[Op, Array], wanted: Sequence[Op]) -> Sequence[Array]:
        """Each addition is off by a little."""
        start = max((graph.ops.index(op) for op in known), default=0)
        off = [np.float32(1e-4) * (graph.ops.index(op) - start) for op in wanted]
        return [a + o for a, o in zip(right(known, wanted), off, strict=True)]

    found = first_divergence(graph, right, rough, feeds, Closeness(0.0, 1e-3))
    assert found is not None
    assert found.accumulated
    assert first_divergence(graph, right, right, feeds, Closeness()) is None
