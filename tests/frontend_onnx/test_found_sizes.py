"""Results whose size depends on data: compiled C against onnxruntime, from nothing found to everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, parse, runtime
from onnx import TensorProto, helper
from sized_models import model, n, weights

import dlc
from dlc import DlcError
from dlc.graph import evaluate

Array = Any
RNG = np.random.default_rng(3)


def chosen(*shape: int, part: float = 0.5) -> Array:
    return np.where(RNG.random(shape) < part, RNG.standard_normal(shape), 0).astype(np.float32)


def filled(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def masked() -> bytes:
    """x[x > 0] by subscripts, computed with and put back, as exporters write boolean masks."""
    nodes = [
        n("Greater", ["x", "zero"], ["m"]),
        n("NonZero", ["m"], ["at"]),
        n("Transpose", ["at"], ["places"], perm=[1, 0]),
        n("GatherND", ["x", "places"], ["found"]),
        n("Mul", ["found", "two"], ["doubled"]),
        n("ScatterND", ["x", "places", "doubled"], ["y"]),
        n("ReduceSum", ["doubled"], ["total"], keepdims=0),
        n("Shape", ["found"], ["count"]),
    ]
    outputs = ["at", "found", "y", "total", "count"]
    return model(nodes, {"x": [5, 7]}, outputs, {"zero": np.float32(0), "two": np.float32(2)})


def rows() -> bytes:
    """Rows that a condition on their sums keeps, through a layer."""
    nodes = [
        n("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
        n("Greater", ["s", "zero"], ["m"]),
        n("Compress", ["x", "m"], ["kept"], axis=0),
        n("MatMul", ["kept", "w"], ["h"]),
        n("Softmax", ["h"], ["y"], axis=0),
        n("Concat", ["kept", "x"], ["all"], axis=0),
    ]
    constants = {"axis": np.array([1]), "zero": np.float32(0), "w": weights(4, 3)}
    return model(nodes, {"x": ["batch", 4]}, ["kept", "y", "all"], constants)


def twice() -> bytes:
    """What is found among what was found."""
    nodes = [
        n("Greater", ["x", "zero"], ["m"]),
        n("Compress", ["x", "m"], ["a"], axis=0),
        n("Less", ["a", "one"], ["m2"]),
        n("Compress", ["a", "m2"], ["b"], axis=0),
        n("NonZero", ["b"], ["c"]),
    ]
    return model(nodes, {"x": [40]}, ["a", "b", "c"], {"zero": np.float32(0), "one": np.float32(1)})


def large() -> bytes:
    """More elements than are counted one by one."""
    return model([n("NonZero", ["x"], ["y"])], {"x": [7, 100]}, ["y"], {})


def detection() -> bytes:
    """Boxes of the highest scores, gathered, as heads of detectors end."""
    nodes = [
        n("NonMaxSuppression", ["boxes", "x", "most", "overlap", "least"], ["chosen"]),
        n("Gather", ["chosen", "two"], ["box"], axis=1),
        n("Gather", ["boxes", "box"], ["kept"], axis=1),
    ]
    corners = RNG.uniform(0, 1, (1, 30, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + RNG.uniform(0.1, 0.5, (1, 30, 2)).astype(np.float32)], 2)
    constants = {"boxes": boxes, "most": np.array([6]), "two": np.int64(2)}
    constants |= {"overlap": np.array([0.3], np.float32), "least": np.array([0.2], np.float32)}
    return model(nodes, {"x": [1, 3, 30]}, ["chosen", "kept"], constants)


def mask_twice() -> bytes:
    """Values and places of one mask, which are as many, joined and sorted, at most five of them."""
    nodes = [
        n("Greater", ["x", "zero"], ["m"]),
        n("NonZero", ["m"], ["a"]),
        n("NonZero", ["m"], ["b"]),
        n("Transpose", ["a"], ["at"], perm=[1, 0]),
        n("GatherND", ["x", "at"], ["found"]),
        n("Squeeze", ["b", "first"], ["places"]),
        n("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        n("Add", ["found", "numbers"], ["sum"]),
        n("Shape", ["sum"], ["count"]),
        n("Concat", ["count", "five"], ["both"], axis=0),
        n("ReduceMin", ["both"], ["k"], axes=[0], keepdims=1),
        n("TopK", ["sum", "k"], ["y", "order"], axis=0),
        n("Gather", ["sum", "order"], ["again"], axis=0),
    ]
    constants = {"zero": np.float32(0), "first": np.array([0]), "five": np.array([5])}
    return model(nodes, {"x": [23]}, ["y", "order", "again"], constants)


def detection_of_found() -> bytes:
    """Boxes of which some are sure, at most four that do not overlap, and whether there is one at all."""
    nodes = [
        n("Greater", ["x", "zero"], ["m"]),
        n("Compress", ["x", "m"], ["sure"], axis=0),
        n("Compress", ["boxes", "m"], ["kept"], axis=0),
        n("Unsqueeze", ["sure", "front"], ["scores"]),
        n("Unsqueeze", ["kept", "batch"], ["several"]),
        n("NonMaxSuppression", ["several", "scores", "most", "overlap"], ["chosen"]),
        n("Gather", ["chosen", "two"], ["column"], axis=1),
        n("Squeeze", ["column", "last"], ["box"]),
        n("Slice", ["box", "zeros", "four"], ["top"]),
        n("Gather", ["kept", "top"], ["y"], axis=0),
    ]
    corners = RNG.uniform(0, 1, (20, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + RNG.uniform(0.1, 0.5, (20, 2)).astype(np.float32)], 1)
    constants = {"boxes": boxes, "most": np.array([12]), "two": np.array([2]), "overlap": np.array([0.3], np.float32)}
    constants |= {"zero": np.float32(0), "front": np.array([0, 1]), "batch": np.array([0]), "last": np.array([1])}
    return model(nodes, {"x": [20]}, ["chosen", "y"], {**constants, "zeros": np.array([0]), "four": np.array([4])})


def rest() -> bytes:
    """What is left after as many rows as a mask keeps, and an image of those."""
    nodes = [
        n("ReduceSum", ["x", "columns"], ["s"], keepdims=0),
        n("Greater", ["s", "zero"], ["m"]),
        n("Compress", ["x", "m"], ["kept"], axis=0),
        n("Shape", ["kept"], ["count"], end=1),
        n("Slice", ["x", "count", "end", "rows"], ["rest"]),
        n("Exp", ["rest"], ["e"]),
        n("MatMul", ["e", "w"], ["y"]),
        n("Concat", ["y", "kept"], ["all"], axis=0),
    ]
    constants = {"zero": np.float32(0), "columns": np.array([1]), "rows": np.array([0]), "w": weights(4, 4)}
    return model(nodes, {"x": ["batch", 4]}, ["rest", "all"], {**constants, "end": np.array([(1 << 63) - 1])})


def unlike_branches() -> bytes:
    """Nothing, or all that a mask keeps: results of an If that differ in size."""
    many = helper.make_graph(
        [n("Mul", ["kept", "two"], ["p"])], "many", [], [helper.make_tensor_value_info("p", TensorProto.FLOAT, None)]
    )
    none = helper.make_graph(
        [n("Identity", ["nothing"], ["q"])], "none", [], [helper.make_tensor_value_info("q", TensorProto.FLOAT, None)]
    )
    nodes = [
        n("Greater", ["x", "zero"], ["m"]),
        n("Compress", ["x", "m"], ["kept"], axis=1),
        n("ReduceMax", ["x"], ["largest"], keepdims=0),
        n("Greater", ["largest", "two"], ["c"]),
        n("If", ["c"], ["y"], then_branch=many, else_branch=none),
        n("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    nodes[0:1] = [n("ReduceSum", ["x", "rows"], ["s"], keepdims=0), n("Greater", ["s", "zero"], ["m"])]
    constants = {"zero": np.float32(0), "two": np.float32(2), "nothing": np.zeros((4, 0), np.float32)}
    return model(nodes, {"x": [4, 9]}, ["y", "total"], {**constants, "rows": np.array([0])})


CASES: Mapping[str, tuple[Callable[[], bytes], Mapping[str, str], Callable[[], list[Array]]]] = {
    "masked": (masked, {}, lambda: [chosen(5, 7), np.zeros((5, 7), "f4"), np.ones((5, 7), "f4")]),
    "rows": (rows, {"batch": "1..9"}, lambda: [chosen(9, 4), chosen(1, 4), chosen(6, 4), np.ones((4, 4), "f4")]),
    "twice": (twice, {}, lambda: [chosen(40), chosen(40, part=1.0), -np.ones(40, "f4")]),
    "detection": (detection, {}, lambda: [chosen(1, 3, 30), chosen(1, 3, 30, part=0.0), chosen(1, 3, 30, part=1.0)]),
    "mask_twice": (mask_twice, {}, lambda: [chosen(23), chosen(23, part=0.1), chosen(23, part=0.0)]),
    "detection_of_found": (
        detection_of_found,
        {},
        lambda: [chosen(20), chosen(20, part=0.2), chosen(20, part=1.0), chosen(20, part=0.0)],
    ),
    "rest": (
        rest,
        {"batch": "1..9"},
        lambda: [chosen(9, 4), -np.ones((9, 4), "f4"), chosen(6, 4), np.ones((4, 4), "f4")],
    ),
    "unlike_branches": (unlike_branches, {}, lambda: [chosen(4, 9) * 5, chosen(4, 9) / 9, chosen(4, 9, part=1.0) * 4]),
    "large": (large, {}, lambda: [chosen(7, 100), chosen(7, 100, part=0.0), chosen(7, 100, part=1.0)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_onnxruntime_finds(name: str, builds: Path) -> None:
    make, dims, several = CASES[name]
    content = make()
    program: Any = dlc.build(content, QUICK, dims=dims, cache_dir=builds)
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    for x in several():
        got = program(x=x)
        assert list(got) == names
        for output, wanted in zip(names, runtime(loaded, names, {"x": x}), strict=True):
            assert got[output].shape == np.shape(wanted)
            np.testing.assert_allclose(got[output], wanted, rtol=1e-4, atol=1e-5, err_msg=output)


FOUND = [n("NonZero", ["x"], ["at"])]
SHAPE = [*FOUND, n("Shape", ["at"], ["shape"])]
COUNT = [*SHAPE, n("Gather", ["shape", "one"], ["count"])]
ROWS = [n("Cast", ["x"], ["m2"], to=9), n("Squeeze", ["m2"], ["m"]), n("Compress", ["x", "m"], ["kept"], axis=1)]
ONLY_SIZES: Mapping[str, list[onnx.NodeProto]] = {
    "shape": [*FOUND, n("Shape", ["at"], ["y"])],
    "number": [*FOUND, n("Size", ["at"], ["y"])],
    "zeros": [*SHAPE, n("ConstantOfShape", ["shape"], ["y"])],
    "expanded": [*COUNT, n("Expand", ["half", "count"], ["y"])],
    "range": [*COUNT, n("Squeeze", ["count"], ["n"]), n("Range", ["zero", "n", "step"], ["y"])],
    "difference": [*FOUND, n("Sub", ["at", "at"], ["y"])],
    "equal": [*FOUND, n("Equal", ["at", "at"], ["y"])],
    "of ones": [*FOUND, n("Transpose", ["at"], ["places"]), n("GatherND", ["ones", "places"], ["y"])],
    "product": [*ROWS, n("Mul", ["kept", "nothing"], ["y"])],
    "of found": [*ROWS, n("NonZero", ["kept"], ["inner"]), n("Shape", ["inner"], ["y"])],
}


@pytest.mark.parametrize("name", ONLY_SIZES)
def test_sizes_are_found_where_nothing_else_is_read(name: str, builds: Path) -> None:
    constants = {"one": np.array([1]), "half": np.array([0.5], np.float32), "nothing": np.float32(0)}
    constants |= {"zero": np.int64(0), "step": np.int64(1), "ones": np.ones((1, 9), np.float32)}
    content = model(ONLY_SIZES[name], {"x": [1, 9]}, ["y"], constants)
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    loaded = onnx.load_model_from_string(content)
    for x in (chosen(1, 9), np.zeros((1, 9), np.float32), np.ones((1, 9), np.float32)):
        (wanted,) = runtime(loaded, ["y"], {"x": x})
        got = program(x=x)["y"]
        assert got.shape == np.shape(wanted)
        np.testing.assert_array_equal(got, wanted)


def test_the_reference_says_that_it_needs_sizes() -> None:
    count = model([n("NonZero", ["x"], ["y"]), n("Size", ["y"], ["z"])], {"x": [7, 100]}, ["z"], {})
    for content in (large(), count):
        graph = parse(onnx.load_model_from_string(content))
        with pytest.raises(DlcError, match="do not depend on data: y_size"):
            evaluate(graph, {"x": np.ones((7, 100), np.float32)})


def test_sizes_that_are_found_are_outputs_of_c(tmp_path: Path, builds: Path) -> None:
    dlc.build(rows(), dims={"batch": "1..9"}, cache_dir=builds, output=tmp_path / "p")
    header = next((tmp_path / "p").glob("*.h")).read_text()
    assert "output 0: f32[kept_size,4] kept" in header
    assert "output 3: i64[] kept_size" in header
