"""`dlc verify` of a program with open dimensions runs it at several sizes of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from dlc_backend_c.condition_indices import Conditions
from onnx import TensorProto, helper

from dlc.api.program import Port, Signature
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.extents import of_terms
from dlc.base.polynomials import Symbol
from dlc.base.types import Type, f32, i64
from dlc.cli.commands.verify_sizes import Runs, Sizes, size_sets
from dlc.cli.terminal import Outcome
from tests.cli.conftest import Dlc

LANES = 8
TARGET = ("-t", "c{cpu=x86-64-v3 flags=-O2,-fvect-cost-model=unlimited}", "--reference", "numpy")
"""Vectors in loops of any length, which -O3 is; that level is another one in this folder (tests/programs.py)."""


def classifier() -> onnx.ModelProto:
    """The label of the larger of two scores, as binary classifiers of scikit-learn give it."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, ["batch"])
    nodes = [
        helper.make_node("ArgMax", ["x"], ["k"], axis=1, keepdims=0),
        helper.make_node("Gather", ["labels", "k"], ["y"]),
    ]
    labels = helper.make_tensor("labels", TensorProto.INT32, [2], [10, 20])
    graph = helper.make_graph(nodes, "classifier", [x], [y], [labels])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(autouse=True)
def model() -> None:
    Path("net.onnx").write_bytes(classifier().SerializeToString())


def test_open_dimensions_have_several_sizes_within_their_bounds(dlc: Dlc) -> None:
    ran = dlc("verify", "net.onnx", *TARGET, "--dim", "batch=1..20", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [s["sizes"] for s in found["sizes"]] == [{"batch": n} for n in (20, LANES - 1, LANES, LANES + 1)]
    assert all(s["ok"] and s["outputs"] for s in found["sizes"]) and found["sizes_left_out"] == []


def is_mistaken() -> bool:
    version = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    return bool(shutil.which("gcc")) and int(re.findall(r"\d+", version)[0]) in (12, 13)


@pytest.mark.skipif(not is_mistaken(), reason="this gcc has no such fault")
def test_a_size_that_is_wrong_is_a_mismatch(dlc: Dlc, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler gets wrong from eight iterations on: the smallest size alone does not show it."""

    def nothing(*_: object) -> bool:
        return False

    monkeypatch.setattr(Conditions, "is_mask", nothing)
    monkeypatch.setenv("DLC_CACHE", "off")
    ran = dlc("verify", "net.onnx", *TARGET)
    assert ran.code == ExitCode.MISMATCH
    assert re.search(r"^sizes: batch=1 ok, .*batch=\d+ MISMATCH", ran.out, re.MULTILINE), ran.out


def test_sizes_are_multiples_within_bounds() -> None:
    n, m = Symbol("n", 1, 4, 8), Symbol("m", 2, 10)
    ports = [Port("n", Type(i64, (), symbol=n)), Port("m", Type(i64, (), symbol=m))]
    ports.append(Port("x", Type(f32, (of_terms(n.terms), of_terms(m.terms)))))
    sets = size_sets(Signature(tuple(ports), ()), (1, 7, 16, 100))
    assert sets == [{"n": 8, "m": 2}, {"n": 8, "m": 7}, {"n": 16, "m": 10}]


def test_a_file_says_the_sizes(dlc: Dlc, tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    ran = dlc("verify", "net.onnx", str(tmp_path / "x.npy"), *TARGET)
    assert ran.code == 0 and "sizes:" not in ran.out


TEXT = """graph(%0 "x": f32[batch(1,64),4], %1 "y": f32[batch(1,64),4]) {
  %2 = relu(%0)
  %3 = concat([%2,%1])
  %4 = reshape(%3) to=(<batch(1,64)>,8)
  %5 = reduce_mean(%3) axes=(0)
  %6 = sizes() dims=(<batch(1,64)>,<2*batch(1,64)>)
  return %4 "rows", %5 "mean", %6 "size"
}
"""


def test_a_graph_in_text_has_a_reference_at_every_size(dlc: Dlc) -> None:
    """Its frontend takes no sizes: the graph is evaluated with those of the inputs."""
    Path("open.dlc").write_text(TEXT)
    ran = dlc("verify", "open.dlc", "-t", "c{cpu=x86-64-v3 flags=-O0}", "--json")
    assert ran.code == 0, ran.err
    assert [s["sizes"]["batch"] for s in ran.document["sizes"]] == [64, 7, 8, 9, 32]
    assert all(s["ok"] for s in ran.document["sizes"]) and ran.document["sizes_left_out"] == []


Judged = Callable[[Sizes], Outcome]
OK = Outcome("", {"outputs": []}, ExitCode.OK)


def ok(_: Sizes) -> Outcome:
    return OK


def runs(reference: Judged, program: Judged) -> Outcome:
    return Runs(OK, {"n": 1}).run([{"n": 7}], lambda sizes: (reference(sizes), sizes)[1], program)


def failing(code: ExitCode) -> Judged:
    def judge(_: Sizes) -> Outcome:
        raise error("some-code", "it cannot", exit_code=code)

    return judge


@pytest.mark.parametrize("code", [ExitCode.MODEL, ExitCode.USAGE, ExitCode.LIMIT])
def test_sizes_without_a_reference_are_left_out(code: ExitCode) -> None:
    found = runs(failing(code), ok)
    assert found.code == ExitCode.OK and found.data["sizes_left_out"] == [{"sizes": {"n": 7}, "reason": "it cannot"}]


@pytest.mark.parametrize("code", [ExitCode.BUG, ExitCode.TOOL, ExitCode.MISMATCH])
def test_an_internal_error_at_a_size_fails(code: ExitCode) -> None:
    for reference, program in ((failing(code), ok), (ok, failing(code))):
        with pytest.raises(DlcError, match="it cannot") as caught:
            runs(reference, program)
        assert caught.value.exit_code == code and "n=7" in caught.value.diagnostics[0].notes[-1]


def test_a_program_that_refuses_a_size_that_the_model_has_fails() -> None:
    with pytest.raises(DlcError, match="it cannot"):
        runs(ok, failing(ExitCode.USAGE))
