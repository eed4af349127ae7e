"""Tokens outside of the vocabulary: refused before the first step, at a step, and in a prediction; nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dlc as compiler
from dlc import DlcError
from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import Dlc
from tests.training.linear import save

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture
def data(dlc: Dlc) -> dict[str, Array]:
    """A program in `out` that learns from three tokens of ten, and rows for it."""
    random = np.random.default_rng(0)
    weights = {"table": random.standard_normal((10, 4)), "w": random.standard_normal((12, 5))}
    shape = numpy_helper.from_array(np.array([-1, 12]), "shape")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Reshape", ["rows", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["scores"]),
    ]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", 3])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 5])]
    stored = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "tokens", inputs, outputs, [*stored, shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path("tokens.onnx").write_bytes(model.SerializeToString())
    assert dlc("build", "tokens.onnx", "--dim", "n=4", "-q", "-o", "out", "--train", "loss=cross-entropy").code == 0
    return {"ids": random.integers(-10, 10, (12, 3)), "y": random.integers(0, 5, 12)}


@pytest.mark.parametrize("token", [10, -11, 2**40, -(2**63)])
def test_training_ends_before_the_first_step(dlc: Dlc, data: dict[str, Array], token: int) -> None:
    save("good.npz", **data)
    data["ids"][7, 1] = token
    save("bad.npz", **data)
    for line in ("--data bad.npz", "--data good.npz --validation-data bad.npz"):
        ran = dlc("train", "out", *line.split())
        assert ran.code == ExitCode.USAGE
        assert f'error[bad-index]: "ids", row 7: {token} at [7, 1] is out of range: indices are -10 to 9' in ran.err
        assert 'bad.npz: "ids"' in ran.err
        assert not Path("out/checkpoint.ckpt").exists()
    assert dlc("train", "out", "--data", "good.npz", "--epochs", 1, "-q").code == 0


def test_a_step_and_a_prediction_refuse_them(data: dict[str, Array]) -> None:
    program: Any = compiler.load("out")
    before = program.checkpoint()
    ids, labels = data["ids"][:4].copy(), data["y"][:4]
    ids[2, 0] = 10
    for call in (lambda: program.train_step(ids=ids, y=labels), lambda: program.evaluate(ids=ids, y=labels)):
        with pytest.raises(DlcError, match=r'"ids": 10 at \[2,0\] is out of range: indices are -10 to 9'):
            call()
    with pytest.raises(DlcError, match="is out of range"):
        program(ids=ids)
    assert program.checkpoint() == before
    ids[2, 0] = 9
    assert np.isfinite(program.train_step(ids=ids, y=labels))


def test_the_range_is_part_of_the_interface(dlc: Dlc, data: dict[str, Array]) -> None:
    del data
    for subject in ("tokens.onnx", "out"):
        more = ("--dim", "n=4") if subject.endswith("onnx") else ()
        assert '"ids": i64[4,3], indices -10 to 9' in dlc("show", subject, *more).out
        (found,) = dlc("show", subject, *more, "--json").document["inputs"]
        assert found["allowed"] == {"what": "index", "parts": [{"intervals": [[-10, 9]]}]}
    assert dlc("verify", "tokens.onnx", "--dim", "n=4", "-q").code == 0
