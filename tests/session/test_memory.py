"""Building takes little more memory than the model's size; `benchmarks/memory.py` measures 575 MB, this test 64 MB."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.session.building import ROOT, environment, save


def large_layer(side: int) -> onnx.ModelProto:
    """x · wᵀ, which needs the weights in another order than they are stored."""
    w = np.random.default_rng(0).standard_normal((side, side), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, side])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, side])],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_build_takes_the_size_of_the_model_and_300_megabytes(tmp_path: Path) -> None:
    model = save(large_layer(2048), tmp_path / "large" / "large.onnx")
    done = subprocess.run(
        [sys.executable, "benchmarks/memory.py", "--file", str(model)],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
