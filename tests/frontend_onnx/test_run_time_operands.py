"""Operands that decide shapes and are known when a program runs: compiled C against onnxruntime, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, reference, runtime
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


def agrees(content: bytes, program: Any, feeds: Mapping[str, Array], oracle: Callable[..., Any] = runtime) -> None:
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    feeds = {name: np.asarray(value) for name, value in feeds.items()}
    got = program(**feeds)
    assert list(got) == names
    for name, want in zip(names, oracle(loaded, names, feeds), strict=True):
        assert got[name].shape == np.shape(want)
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


SLICES = [
    (ints(0, 1, 0), ints(6, 4, 4), ints(0, 1, 2), ints(1, 1, 1)),
    (ints(-2, 9, 0), ints(1 << 62, -9, 4), ints(0, -2, 2), ints(1, -1, 2)),
    (ints(5, -1, 3), ints(0, -6, -(1 << 63)), ints(2, 1, 0), ints(-2, -3, -1)),
    (ints(-99, 0, 2), ints(99, 0, 1), ints(1, 2, 0), ints(7, 1, 1)),
    (ints(4, 4, 4), ints(-9, -9, -9), ints(-1, -2, -3), ints(-1 - (1 << 40), -2, -1)),
]


def test_a_slice_is_as_large_as_its_bounds_say(builds: Path) -> None:
    names = ["starts", "ends", "axes", "steps"]
    content = model("Slice", {"x": X, **dict(zip(names, SLICES[0], strict=True))}, [None, None, None])
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for values in SLICES:
        agrees(content, program, {"x": X, **dict(zip(names, values, strict=True))})


def test_what_follows_a_slice_has_its_size(builds: Path) -> None:
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
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for start, end in ((0, 5), (1, 3), (-2, 9), (4, 2)):
        agrees(content, program, {"x": X, "starts": ints(start), "ends": ints(end)})


def test_a_declared_size_is_relied_on_and_checked(tmp_path: Path, builds: Path) -> None:
    given = {"x": X, "starts": ints(1), "ends": ints(3)}
    content = model("Slice", given, [2, 5, 4], {"axes": ints(0)})
    program: Any = dlc.build(content, QUICK, cache_dir=builds, output=tmp_path / "p")
    assert program.outputs[0].shape == (2, 5, 4)
    for start, end in ((0, 2), (-2, 9), (4, -0 + 6), (2, -2)):
        agrees(content, program, {"x": X, "starts": ints(start), "ends": ints(end)})
    for start, end, found in ((0, 3, 3), (4, 2, 0), (-99, 99, 6)):
        with pytest.raises(DlcError, match=rf"y_dim0_size.* is {found} .* compiled for 2"):
            program(x=X, starts=ints(start), ends=ints(end))
    header = next((tmp_path / "p").glob("*.h")).read_text()
    assert "_ERROR_SIZE 8" in header and "y_dim0_size" in header


PADS = [ints(1, 0, 2, 0, 2, 0), ints(0, 1, 1, 1, 1, 1), ints(2, -1, 3, -1, 3, -1), ints(-2, 3, 1, 3, -1, 1)]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_padding_may_be_anything_of_the_declared_sum(mode: str, builds: Path) -> None:
    content = model("Pad", {"x": X, "pads": PADS[0]}, [7, 7, 6], mode=mode)
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for pads in PADS:
        if mode == "constant" or (pads >= 0).all():  # onnxruntime repeats what negative figures leave
            agrees(content, program, {"x": X, "pads": pads})
    with pytest.raises(DlcError, match=r"y_dim2_size.* is 5 .*compiled for 6"):
        program(x=X, pads=ints(1, 0, 2, 0, 2, -1))
    huge = ints(1 << 62, 0, 2, -(1 << 62), 2, 0)
    with pytest.raises(DlcError, match="y_dim0_size"):
        program(x=X, pads=huge)


def test_the_value_and_the_axes_of_padding_may_be_inputs(builds: Path) -> None:
    given = {"x": X, "pads": ints(0, 2, 1, 0), "value": np.asarray(2.5, np.float32), "axes": ints(2, 0)}
    content = model("Pad", given, [8, 5, 5])
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for pads, value, axes in (((0, 2, 1, 0), 2.5, (2, 0)), ((1, 1, 1, 0), -1.0, (-3, -1))):
        agrees(content, program, {"x": X, "pads": ints(*pads), "value": np.float32(value), "axes": ints(*axes)})
    with pytest.raises(DlcError, match="possible are"):
        program(x=X, pads=ints(0, 2, 1, 0), value=np.asarray(0, np.float32), axes=ints(3, 0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int16"])
def test_a_range_of_the_declared_length(dtype: str, builds: Path) -> None:
    def numbers(*values: float) -> dict[str, Array]:
        return {n: np.asarray(v, dtype) for n, v in zip(("start", "limit", "step"), values, strict=True)}

    content = model("Range", numbers(0, 4, 1), [4], opset=11)
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for values in (
        ((0, 4, 1), (10, -1, -3), (-7, 0, 2), (5, 6, 1 / 4)) if "float" in dtype else ((0, 4, 1), (9, -2, -3))
    ):
        agrees(content, program, numbers(*values))
    for values, found in (((0, 5, 1), 5), ((0, -4, 1), 0), ((0, 4, 0), -1)):
        with pytest.raises(DlcError, match=rf"y_size.* is {found} "):
            program(**numbers(*values))
    if "float" in dtype:
        for values in ((np.nan, 4, 1), (0, np.inf, 1), (0, 4, np.nan)):
            with pytest.raises(DlcError, match="y_size"):
                program(**numbers(*values))


def test_a_loop_runs_as_often_as_its_rows_are_declared(builds: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["again"]),
            helper.make_node("Mul", ["c", "by"], ["d"]),
            helper.make_node("Add", ["d", "x"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("going", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("again", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", onnx.TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, [3]),
        ],
        [onnx.numpy_helper.from_array(np.asarray(0.5, np.float32), "by")],
    )
    inputs = [
        helper.make_tensor_value_info("m", onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info("b", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3]),
    ]
    outputs = [
        helper.make_tensor_value_info("last", onnx.TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, [4, 3]),
    ]
    node = helper.make_node("Loop", ["m", "b", "x"], ["last", "rows"], name="steps", body=body)
    graph = helper.make_graph([node], "g", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content = made.SerializeToString()
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    x = np.asarray([1, 2, -3], np.float32)
    agrees(content, program, {"m": np.int64(4), "b": np.bool_(True), "x": x})
    for m, b, found in ((5, True, 5), (0, True, 0), (-3, True, 0), (4, False, 0)):
        with pytest.raises(DlcError, match=rf"steps_iterations_size.* is {found} .* compiled for 4"):
            program(m=np.asarray(m), b=np.asarray(b), x=x)


IMAGE = RNG.standard_normal((1, 2, 6, 5)).astype(np.float32)
NEAREST: list[dict[str, Any]] = [
    {"nearest_mode": n, "coordinate_transformation_mode": c}
    for n, c in (("floor", "asymmetric"), ("ceil", "align_corners"), ("round_prefer_ceil", "half_pixel"))
]
CURVES: list[dict[str, Any]] = [
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
]


@pytest.mark.parametrize("attributes", [*NEAREST, *CURVES], ids=lambda a: "-".join(map(str, a.values())))
def test_scales_may_be_any_that_lead_to_the_declared_sizes(attributes: dict[str, Any], builds: Path) -> None:
    given = {"x": IMAGE, "roi": None, "scales": np.asarray([1, 1, 0.7, 1.5], np.float32)}
    content = model("Resize", given, [1, 2, 4, 7], opset=18, **attributes)
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for scales in ((1, 1, 0.7, 1.5), (1.1, 1, 0.8, 1.41), (1, 1.3, 0.67, 1.59)):
        # onnxruntime takes fewer scales, and aligns corners of the rounded sizes.
        agrees(content, program, {"x": IMAGE, "scales": np.asarray(scales, np.float32)}, reference)
    for scales, d, found in (((1, 1, 1.0, 1.5), 2, 6), ((2, 1, 0.7, 1.5), 0, 2), ((1, 1, 0.7, np.nan), 3, -1)):
        with pytest.raises(DlcError, match=rf"y_dim{d}_size.* is {found} "):
            program(x=IMAGE, scales=np.asarray(scales, np.float32))


def test_a_region_of_interest_may_be_an_input(builds: Path) -> None:
    given = {"x": IMAGE, "roi": np.asarray([0.1, 0.2, 0.8, 0.9], np.float32)}
    constants = {"scales": np.zeros(0, np.float32), "sizes": ints(4, 3)}
    crop: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    crop["axes"] = [2, 3]
    content = model("Resize", given, [1, 2, 4, 3], constants, opset=18, mode="linear", **crop)
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    for roi in ((0.1, 0.2, 0.8, 0.9), (-0.3, 0, 1.2, 1), (1, 1, 0, 0), (0.5, -2, 0.5, 9)):
        agrees(content, program, {"x": IMAGE, "roi": np.asarray(roi, np.float32)})


@pytest.mark.parametrize(("policy", "shape"), [("not_larger", [1, 2, 7, 6]), ("not_smaller", [1, 2, 10, 8])])
def test_sizes_with_a_policy(policy: str, shape: list[int], builds: Path) -> None:
    given = {"x": IMAGE, "sizes": ints(7, 8)}
    content = model("Resize", given, shape, opset=18, axes=[2, 3], keep_aspect_ratio_policy=policy)
    loaded = onnx.load_model_from_string(content)
    loaded.graph.node[0].input[:] = ["x", "", "", "sizes"]
    content = loaded.SerializeToString()
    program: Any = dlc.build(content, QUICK, cache_dir=builds)
    agrees(content, program, {"x": IMAGE, "sizes": ints(7, 8)})
    with pytest.raises(DlcError, match="y_dim2_size"):
        program(x=IMAGE, sizes=ints(3, 3))
