"""What onnxruntime refuses of indices, a call of a compiled program refuses; what it takes gives the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_frontend_onnx.frontend import Onnx
from onnx import TensorProto, helper

from dlc import DlcError, Report
from dlc.api.program import Port
from dlc.api.source import Source
from dlc.runtime.feeds import random_feeds
from tests.backend_c.conftest import Compile

Feeds = Mapping[str, Any]
X = np.arange(12, dtype=np.float32).reshape(4, 3)
SPAN = range(-6, 7)


def model(operator: str, feeds: Feeds, attributes: Mapping[str, Any]) -> bytes:
    """A model of one operator."""
    types = {name: (helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, *of) for name, of in types.items()]
    node = helper.make_node(operator, list(feeds), ["result"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def full(*shape: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.zeros(shape, np.int64)


ROWS = np.arange(-12, 0, dtype=np.float32).reshape(4, 3)
CASES: dict[str, tuple[str, Feeds, Mapping[str, Any]]] = {
    "gather": ("Gather", {"x": X, "i": full(2)}, {}),
    "gather_columns": ("Gather", {"x": X, "i": full(2, 2)}, {"axis": 1}),
    "gather_elements": ("GatherElements", {"x": X, "i": full(2, 3)}, {}),
    "gather_nd": ("GatherND", {"x": X, "i": full(2, 1)}, {}),
    "scatter_elements": ("ScatterElements", {"x": X, "i": full(1, 3), "u": ROWS[:1]}, {}),
    "scatter_nd": ("ScatterND", {"x": X, "i": full(1, 1), "u": ROWS[:1]}, {}),
    "reverse_sequence": ("ReverseSequence", {"x": X, "i": full(3)}, {}),
    "cross_entropy": ("SoftmaxCrossEntropyLoss", {"x": X, "i": full(4)}, {"ignore_index": 1}),
    "nll": ("NegativeLogLikelihoodLoss", {"x": X, "i": full(4)}, {"ignore_index": 5}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_refuses_what_onnxruntime_refuses(name: str, compile_model: Compile, tmp_path: Path) -> None:
    operator, feeds, attributes = CASES[name]
    content = model(operator, feeds, attributes)
    runtime: Any = import_module("onnxruntime")  # it has no types
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    reference = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    compile_model(Onnx().graph(Source(data=content, label="m.onnx"), Report()), "c{}", tmp_path)
    program = C().load(tmp_path)
    for value in SPAN:
        given = {**feeds, "i": feeds["i"] + value}
        try:
            want = reference.run(None, given)[0]
        except Exception:  # noqa: BLE001  # onnxruntime's own, of which there are several
            with pytest.raises(DlcError, match=f"{value} at .* (is out of range|is not a valid label)"):
                program(given)
        else:
            # Of labels onnxruntime counts negative ones from the end, or not at all; the standard has no such labels.
            if "Loss" in operator and value < 0:
                continue
            np.testing.assert_allclose(program(given)["result"], want, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_random_inputs_are_in_range_and_reach_both_ends(name: str) -> None:
    operator, feeds, attributes = CASES[name]
    graph = Onnx().graph(Source(data=model(operator, feeds, attributes), label="m.onnx"), Report())
    (port,) = (i for i in graph.inputs if i.name == "i")
    assert port.range is not None
    drawn = np.concatenate([random_feeds([Port("i", port.of, port.range)], seed)["i"].ravel() for seed in range(60)])
    low, high = max(port.range.parts[0].intervals, key=lambda i: i[1] - i[0])
    assert (drawn.min(), drawn.max()) == (low, high)


def test_an_index_that_says_nothing_where_it_is_out_of_range_may_be_anything(
    compile_model: Compile, tmp_path: Path
) -> None:
    """OneHot of an index out of range is all off, in the standard, in onnxruntime and here."""
    node = helper.make_node("OneHot", ["i", "d", "v"], ["result"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)],
        [helper.make_tensor("d", TensorProto.INT64, [1], [4]), helper.make_tensor("v", TensorProto.FLOAT, [2], [0, 1])],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    compile_model(Onnx().graph(Source(data=content, label="m.onnx"), Report()), "c{}", tmp_path)
    np.testing.assert_array_equal(C().load(tmp_path)(i=full(2) + 9)["result"], np.zeros((2, 4), np.float32))
