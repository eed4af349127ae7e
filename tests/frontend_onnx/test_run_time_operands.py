"""Operands that decide shapes and are known when a program runs: compiled C against onnxruntime, and refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import runtime
from onnx import helper

import dlc
from dlc import DlcError

Array = Any
RNG = np.random.default_rng(11)
X = np.arange(6 * 5 * 4, dtype=np.float32).reshape(6, 5, 4)


def ints(*values: int) -> Array:
    return np.asarray(values, np.int64)


def model(
    op: str,
    given: Mapping[str, Array],
    declared: Sequence[Any] | None,
    constants: Mapping[str, Array] | None = None,
    opset: int = 20,
    after: Sequence[onnx.NodeProto] = (),
    **attributes: Any,
) -> bytes:
    """y = op(…) of inputs and constants, in their order; `None` among them is left out."""
    constants = constants or {}
    names = [name if value is not None else "" for name, value in {**given, **constants}.items()]
    node = helper.make_node(op, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in given.items()
        if v is not None
    ]
    dtype = next(helper.np_dtype_to_tensor_dtype(v.dtype) for v in given.values() if v is not None)
    outputs = [helper.make_tensor_value_info("z" if after else "y", dtype, declared)]
    stored = [onnx.numpy_helper.from_array(v, name) for name, v in constants.items() if v is not None]
    graph = helper.make_graph([node, *after], "g", inputs, outputs, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return made.SerializeToString()


def agrees(content: bytes, program: Any, feeds: Mapping[str, Array]) -> None:
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    got = program(**feeds)
    assert list(got) == names
    for name, want in zip(names, runtime(loaded, names, dict(feeds)), strict=True):
        assert got[name].shape == np.shape(want)
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


SLICES = [
    (ints(0, 1, 0), ints(6, 4, 4), ints(0, 1, 2), ints(1, 1, 1)),
    (ints(-2, 9, 0), ints(1 << 62, -9, 4), ints(0, -2, 2), ints(1, -1, 2)),
    (ints(5, -1, 3), ints(0, -6, -(1 << 63)), ints(2, 1, 0), ints(-2, -3, -1)),
    (ints(-99, 0, 2), ints(99, 0, 1), ints(1, 2, 0), ints(7, 1, 1)),
    (ints(4, 4, 4), ints(-9, -9, -9), ints(-1, -2, -3), ints(-1 - (1 << 40), -2, -1)),
]


def test_a_slice_is_as_large_as_its_bounds_say(tmp_path: Path) -> None:
    names = ["starts", "ends", "axes", "steps"]
    content = model("Slice", {"x": X, **dict(zip(names, SLICES[0], strict=True))}, [None, None, None])
    program: Any = dlc.build(content, cache_dir=tmp_path)
    for values in SLICES:
        agrees(content, program, {"x": X, **dict(zip(names, values, strict=True))})


def test_what_follows_a_slice_has_its_size(tmp_path: Path) -> None:
    """A window of a sequence at a place that is an input, as caches are read, and a sum over it."""
    after = [helper.make_node("ReduceSum", ["y", "one"], ["z"], keepdims=0)]
    content = model(
        "Slice",
        {"x": X, "starts": ints(1), "ends": ints(3)},
        [None, None],
        {"axes": ints(1), "one": ints(1)},
        after=after,
    )
    # The constant `one` is read by the second node.
    loaded = onnx.load_model_from_string(content)
    del loaded.graph.node[0].input[4:]
    content = loaded.SerializeToString()
    program: Any = dlc.build(content, cache_dir=tmp_path)
    for start, end in ((0, 5), (1, 3), (-2, 9), (4, 2)):
        agrees(content, program, {"x": X, "starts": ints(start), "ends": ints(end)})


def test_a_declared_size_is_relied_on_and_checked(tmp_path: Path) -> None:
    given = {"x": X, "starts": ints(1), "ends": ints(3)}
    content = model("Slice", given, [2, 5, 4], {"axes": ints(0)})
    program: Any = dlc.build(content, cache_dir=tmp_path, output=tmp_path / "p")
    assert program.outputs[0].shape == (2, 5, 4)
    for start, end in ((0, 2), (-2, 9), (4, -0 + 6), (2, -2)):
        agrees(content, program, {"x": X, "starts": ints(start), "ends": ints(end)})
    for start, end, found in ((0, 3, 3), (4, 2, 0), (-99, 99, 6)):
        with pytest.raises(DlcError, match=rf"y_dim0_size.* is {found} .* compiled for 2"):
            program(x=X, starts=ints(start), ends=ints(end))
    header = next((tmp_path / "p").glob("*.h")).read_text()
    assert "_ERROR_SIZE 8" in header and "y_dim0_size" in header
