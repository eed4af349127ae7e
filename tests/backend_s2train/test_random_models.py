"""Models whose values are read several times at once: what they compute is what onnxruntime says, on any plan."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from dlc.verify.reference import onnxruntime
from tests.backend_s2train.random_models import CASES, judged, judged_file


@pytest.mark.parametrize("seed", [1, 7, 38, 12])
def test_random_models(seed: int) -> None:
    """Seeds 7 and 38 had operands that a result was written over while they were read, 1 an output in another shape."""
    verdict = judged(seed)
    assert verdict.what == "same", verdict


@pytest.mark.parametrize("path", sorted(CASES.glob("*.onnx")), ids=lambda p: p.stem)
def test_cases(path: Path) -> None:
    verdict = judged_file(path)
    assert verdict.what == "same", verdict


def test_the_reference_takes_inputs_that_programs_do_not_have(tmp_path: Path) -> None:
    """Nothing reads `unused`, so a program for S2Train has no such input."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "unused", "y")]
    made = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:2], ports[2:])
    path = tmp_path / "model.onnx"
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    got = onnxruntime(path).evaluate({"x": np.array([-1, 2], np.float32)})
    assert got["y"].tolist() == [0, 2]
