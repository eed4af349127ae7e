"""`dlc debug reduce`: a model that shows a fault gets smaller, and still shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from dlc.base.diagnostics import ExitCode
from dlc.debug.onnx_cut import Case, reads, tensor_values
from dlc.debug.reduce import Reducer, minimised
from tests.cli.conftest import Dlc, Install
from tests.cli.models import model
from tests.cli.test_debug import PASSES, PIPELINE, TARGET, deep

REDUCE = ("debug", "reduce", "deep.onnx", *TARGET)


library: Any = onnx


@pytest.fixture(autouse=True)
def models() -> None:
    Path("deep.onnx").write_bytes(deep().SerializeToString())


def feeds() -> dict[str, Any]:
    return {"x": np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)}


def reduced(shows: Callable[[Case], bool]) -> Reducer:
    found = Reducer(Case.read(Path("deep.onnx"), feeds()), shows, str)
    found.run()
    return found


@pytest.mark.parametrize("wanted", [{3}, {0, 9}, {2, 3, 7}, set(range(10))])
def test_no_part_can_be_left_out(wanted: set[int]) -> None:
    assert minimised(10, lambda kept: wanted <= set(kept)) == sorted(wanted)


def test_nodes_outputs_sizes_and_values() -> None:
    def shows(case: Case) -> bool:
        return {"Relu", "Sigmoid"} <= {n.op_type for n in case.nodes} and max(a.size for a in case.feeds.values()) >= 2

    found = reduced(shows)
    assert sorted(n.op_type for n in found.best.nodes) == ["Relu", "Sigmoid"]
    assert max(a.size for a in found.best.feeds.values()) == 2
    assert all(not a.any() for a in found.best.feeds.values())
    library.checker.check_model(found.best.model(), full_check=True)
    again = reduced(shows)
    assert again.best.to_bytes() == found.best.to_bytes()
    assert again.tested == found.tested


def test_values_of_a_cut_are_those_of_the_model() -> None:
    whole = Case.read(Path("deep.onnx"), feeds())
    case = whole.keeping([2], lambda names: tensor_values(whole, names))
    assert case is not None
    assert (list(case.feeds), list(case.constants), case.outputs) == (["b"], ["v"], ("c",))
    x, w = whole.feeds["x"], whole.constants["w"]
    np.testing.assert_allclose(case.feeds["b"], 1 / (1 + np.exp(-x @ w)), rtol=1e-5)


def test_what_a_branch_takes_from_around_is_read() -> None:
    inside = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"])], "g", [], [helper.make_empty_tensor_value_info("c")]
    )
    node = helper.make_node("If", ["condition"], ["y"], then_branch=inside, else_branch=inside)
    assert set(reads(node)) == {"condition", "a", "b"}


def test_time_ends_the_search() -> None:
    found = Reducer(Case.read(Path("deep.onnx"), feeds()), lambda _: True, str, is_over=lambda: True)
    assert not found.run()
    assert len(found.best.nodes) == 7


def test_a_result_that_differs(dlc: Dlc, install: Install) -> None:
    install("wrong", PASSES)
    swapped = ("-p", PIPELINE.replace("simplify", "simplify,swap"))
    ran = dlc(*REDUCE, *swapped, "--json")
    found = ran.document
    assert (ran.code, found["operators"], found["elements"]) == (0, ["Relu"], 1)
    assert found["fault"] == "dlc verify: exit code 3"
    assert dlc("verify", "reduced.onnx", "reduced.npz", *TARGET, *swapped, "-q").code == ExitCode.MISMATCH


def test_a_build_that_fails(dlc: Dlc) -> None:
    unknown = deep()
    unknown.graph.node[3].domain = "org.example"
    unknown.opset_import.append(helper.make_opsetid("org.example", 1))
    Path("deep.onnx").write_bytes(unknown.SerializeToString())
    found = dlc(*REDUCE, "--json").document
    assert (found["nodes"], found["operators"]) == (1, ["Relu"])
    assert found["fault"] == "dlc verify: exit code 1 (unsupported-op)"


def test_a_check_of_the_users_own(dlc: Dlc) -> None:
    Path("check.sh").write_text('grep -q Sigmoid "$1" && test -s "$2"')
    found = dlc(*REDUCE, "--check", "sh check.sh", "-o", "small.onnx", "--json").document
    assert found["operators"] == ["Sigmoid"]
    # It goes on from its own result.
    assert dlc("debug", "reduce", "small.onnx", "small.npz", "--check", "sh check.sh").code == 0
    assert Path("reduced.onnx").read_bytes() == Path("small.onnx").read_bytes()
    assert set(np.load("small.npz")) == {i.name for i in library.load("small.onnx").graph.input}


def test_an_interruption_keeps_the_best(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Reducer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reducer, "_dimensions", stop)
    ran = dlc(*REDUCE, "--check", "grep -q Sigmoid", "--json")
    assert (ran.code, ran.document["ended"]) == (ExitCode.INTERRUPTED, "interrupted")
    assert len(library.load("reduced.onnx").graph.node) == 1


WRONG = {
    "no fault": (),
    "a check that fails": ("--check", "false"),
    "no program to check with": ("--check", "absent-program"),
    "not an ONNX model": ("-o", "reduced.txt"),
    "no such target": ("-t", "absent"),
    "over the model": ("-o", "deep.onnx"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_asked_for(dlc: Dlc, wrong: str) -> None:
    before = Path("deep.onnx").read_bytes()
    ran = dlc(*REDUCE, *WRONG[wrong])
    assert ran.code == ExitCode.USAGE
    assert "help  " in ran.err
    assert Path("deep.onnx").read_bytes() == before
    assert not Path("reduced.onnx").exists()


def test_sizes_that_are_open(dlc: Dlc) -> None:
    open_model = model([helper.make_node("Relu", ["x"], ["y"])], [("x", ["n", 3])], [("y", ["n", 3])])
    Path("open.onnx").write_bytes(open_model.SerializeToString())
    ran = dlc("debug", "reduce", "open.onnx", "--check", "true")
    assert ran.code == ExitCode.USAGE
    assert "--dim NAME=N" in ran.err
    assert dlc("debug", "reduce", "open.onnx", "--check", "true", "--dim", "n=4").code == 0
    assert np.load("reduced.npz")["x"].shape == (1, 1)
    Path("broken.onnx").write_bytes(b"nothing")
    assert dlc("debug", "reduce", "broken.onnx", "--check", "true").code == ExitCode.USAGE
