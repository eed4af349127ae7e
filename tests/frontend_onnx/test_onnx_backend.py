"""dlc as ONNX's tests drive it: its own runner on a few of its own tests, and models with open dimensions."""

from __future__ import annotations

import unittest
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.onnx_backend import DlcBackend, DlcRep
from onnx.backend.test.runner import Runner

from dlc import DlcError
from dlc.driver.program import Compiler, build

# The data of other tests of the runner overflows when it is made.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SAMPLE = (
    "test_relu",
    "test_matmul_4d",
    "test_softmax_axis_1",
    "test_gather_0",
    "test_maxpool_2d_pads",
    "test_lstm_defaults",
)
"""What the names of the tests begin with that run here; benchmarks/onnx_suite.py runs them all."""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Generator[Compiler]:
    found = Compiler.open(tmp_path_factory.mktemp("cache"), jobs=1)
    yield found
    found.cache.close()


def add(shape: tuple[int | str, ...]) -> onnx.ModelProto:
    """z = x + y with inputs of a shape."""
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xyz"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "y"], ["z"])], "add", info[:2], info[2:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_the_runner_of_onnx_passes_on_compiled_c(compiler: Compiler) -> None:
    class Chosen(DlcBackend):
        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> DlcRep:
            return super().prepare(model, device, **kwargs, compiler=compiler)

    runner: Any = Runner(Chosen, __name__)
    tests = {name: test for items in runner._test_items.values() for name, test in items.items()}
    chosen = [name for name in tests if name.endswith("_cpu") and name.startswith(SAMPLE)]
    assert len(chosen) >= len(SAMPLE)
    for name in chosen:
        tests[name].func(unittest.TestCase())


def test_a_model_with_open_dimensions_is_compiled_for_the_arrays_it_is_given(compiler: Compiler) -> None:
    rep = DlcBackend.prepare(add(("n", 3)), compiler=compiler)
    for n in (2, 5, 2):
        x = np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
        (z,) = rep.run([x, x])
        np.testing.assert_array_equal(z, x + x)
        np.testing.assert_array_equal(rep.run({"y": x, "x": 2 * x})[0], 3 * x)


def test_values_that_decide_shapes_are_those_that_a_run_gives(compiler: Compiler) -> None:
    """One program for each of them; what does not help is refused when the model is run, with dlc's own reason."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        counted (int64 first, int64 last, float[2] x) => (float[n] y, float[2] z) {
            one = Constant <value = int64 {1}> ()
            r = Range (first, last, one)
            y = Cast <to = 1> (r)
            z = Neg (x)
        }""")
    rep = DlcBackend.prepare(model, compiler=compiler)
    for first, last in ((0, 5), (3, 4), (0, 5)):
        y, z = rep.run([np.int64(first), np.int64(last), np.ones(2, np.float32)])
        np.testing.assert_array_equal(y, np.arange(first, last, dtype=np.float32))
        np.testing.assert_array_equal(z, [-1, -1])
    model.graph.node[-1].op_type = "NoSuchOperator"
    rep = DlcBackend.prepare(model, compiler=compiler)
    with pytest.raises(DlcError) as caught:
        rep.run([np.int64(0), np.int64(1), np.ones(2, np.float32)])
    assert any("NoSuchOperator" in d.message for d in caught.value.diagnostics)


def test_a_single_node_runs_with_the_types_of_its_arrays(compiler: Compiler) -> None:
    x = np.asarray([[1, -2], [3, -4]], np.float32)
    info = [(np.dtype(np.float32), (2, 2))]
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    (y,) = DlcBackend.run_node(node, [x], outputs_info=info, opset_version=17, compiler=compiler)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_what_cannot_run_is_an_error_and_no_test_that_nobody_ran(compiler: Compiler) -> None:
    with pytest.raises(DlcError, match="has 2 inputs, 1 are given"):
        DlcBackend.prepare(add((2, 3)), compiler=compiler).run([np.zeros((2, 3), np.float32)])
    with pytest.raises(DlcError, match="CPU, not on CUDA"):
        DlcBackend.prepare(add((2, 3)), "CUDA", compiler=compiler)
    unknown = add((2, 3))
    unknown.graph.node[0].op_type = "Subtract"
    assert DlcBackend.is_compatible(unknown)
    with pytest.raises(DlcError, match="Subtract"):
        DlcBackend.prepare(unknown, compiler=compiler)


def test_build_compiles_files_and_bytes_and_loads_them(tmp_path: Path) -> None:
    content = add(("n", 3)).SerializeToString()
    (tmp_path / "add.onnx").write_bytes(content)
    x = np.asarray([[1, 2, 3]], np.float32)
    cache = tmp_path / "cache"
    for model in (tmp_path / "add.onnx", content):
        program: Any = build(model, "c{cpu=generic flags=-O0}", dims={"n": 1}, cache_dir=cache)
        np.testing.assert_array_equal(program(x=x, y=x)["z"], 2 * x)
    build(content, dims={"n": 1}, output=tmp_path / "out", cache_dir=cache)
    assert (tmp_path / "out" / "manifest.json").is_file()
    with pytest.raises(DlcError, match="dimension"):
        build(add((3, "n")).SerializeToString(), cache_dir=cache)
