"""Element types of ONNX that numpy does not have: data in every form, and conversions as the standard defines them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import model_of, parse, reference
from dlc_frontend_onnx.frontend import Onnx
from dlc_frontend_onnx.tensors import code_of
from onnx import helper, numpy_helper

from dlc import DlcError, Report, Source
from dlc.base.types import DTYPES, NARROW, Array, DType, f16, f32
from dlc.graph import Graph, evaluate
from dlc.runtime.tensor_proto import read_tensor
from tests.kernel.narrow_values import same, values_of

ONNX: Any = onnx
FORMS = ("raw", "listed", "external")
EIGHT = [t for t in NARROW if t.bits == 8 and t.name != "f8e8m0"]


def some(dtype: DType, shape: tuple[int, ...]) -> Array:
    every = values_of(dtype)
    return every[np.random.default_rng(1).integers(0, every.size, shape)]


def stored(value: Array, form: str) -> onnx.TensorProto:
    """A tensor with its data as bytes, or as a list of numbers, as the standard stores them."""
    proto = numpy_helper.from_array(value, "w")
    if form == "listed":
        size = 2 if value.dtype.itemsize == 2 else 1
        listed = np.frombuffer(proto.raw_data, f"<u{size}").astype(int).tolist()
        proto.ClearField("raw_data")
        proto.int32_data.extend(listed)
    return proto


def evaluated(graph: Graph, *args: Array) -> list[Any]:
    found = evaluate(graph, {i.name: a for i, a in zip(graph.inputs, args, strict=True)})
    return [found[name] for name in graph.names]


def test_every_type_of_the_core_has_its_code() -> None:
    for dtype in DTYPES.values():
        assert helper.tensor_dtype_to_np_dtype(code_of(dtype)) == dtype.numpy


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [f16, *NARROW], ids=str)
def test_constants_are_read_in_every_form(dtype: DType, form: str, tmp_path: Path) -> None:
    value = some(dtype, (3, 7))  # the last byte of packed data is not full
    model = model_of([helper.make_node("Flatten", ["w"], ["y"], axis=0)], {}, ["y"], opset=25)
    model.graph.initializer.append(stored(value, form))
    path = tmp_path / "m.onnx"
    ONNX.save(model, path, save_as_external_data=form == "external", location="m.data", size_threshold=0)
    for source in (Source(path), *([] if form == "external" else [Source(data=path.read_bytes(), label="m.onnx")])):
        (found,) = evaluated(Onnx().parse(source, Report()))
        assert found.dtype == dtype.numpy
        assert same(found.reshape(value.shape), value)


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("dtype", [f16, *NARROW], ids=str)
def test_test_data_is_read_in_every_form(dtype: DType, form: str) -> None:
    value = some(dtype, (3, 7))
    name, found = read_tensor(stored(value, form).SerializeToString())
    assert name == "w"
    assert found.dtype == dtype.numpy
    assert same(found, value)


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("name", ["i4", "u2", "bf16", "f8e5m2"])
def test_data_of_another_length_is_refused(name: str, form: str) -> None:
    proto = stored(some(DTYPES[name], (3, 7)), form)
    proto.dims[0] = 9
    model = model_of([helper.make_node("Flatten", ["w"], ["y"])], {}, ["y"], opset=25)
    model.graph.initializer.append(proto)
    with pytest.raises(DlcError, match=r"9,7"):
        parse(model)
    with pytest.raises(ValueError, match=r"9,7"):
        read_tensor(proto.SerializeToString())


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("to", EIGHT, ids=str)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16", "i32", "f8e4m3fn", "i4"])
def test_conversions_to_8_bits_saturate_as_told(source: str, to: DType, saturate: int) -> None:
    x = values_of(DTYPES[source])
    x = x[np.isfinite(x.astype(np.float64))] if not saturate else x
    for operator, inputs in (("Cast", ["x"]), ("CastLike", ["x", "like"])):
        attributes: dict[str, Any] = {"to": code_of(to)} if operator == "Cast" else {}
        node = helper.make_node(operator, inputs, ["y"], saturate=saturate, **attributes)
        feeds = {"x": x, "like": np.zeros(1, to.numpy)}
        model = model_of([node], {name: feeds[name] for name in inputs}, ["y"], opset=25)
        (found,) = evaluated(parse(model), *(feeds[name] for name in inputs))
        wide = x if source in ("f32", "f16") else x.astype(np.float32)
        given = model_of(
            [helper.make_node("Cast", ["x"], ["y"], saturate=saturate, to=code_of(to))], {"x": wide}, ["y"], opset=25
        )
        (expected,) = reference(given, ["y"], {"x": wide})
        assert same(found, expected)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_scales_are_rounded_as_told(mode: str, saturate: int) -> None:
    x = values_of(f32)
    x = x[(x >= 2.0**-126) & (x <= 2.0**127)]  # elsewhere the reference differs from the standard's table
    node = helper.make_node("Cast", ["x"], ["y"], to=code_of(DTYPES["f8e8m0"]), saturate=saturate, round_mode=mode)
    model = model_of([node], {"x": x}, ["y"], opset=25)
    (found,) = evaluated(parse(model), x)
    (expected,) = reference(model, ["y"], {"x": x})
    assert same(found, expected)


def test_what_no_scale_can_be_is_the_nearest_one_or_nan() -> None:
    x = np.array([0.0, np.inf, 1e-45, 3e38, np.nan], np.float32)
    for saturate, expected in ((1, [2.0**-127, 2.0**127, 2.0**-127, 2.0**127, np.nan]), (0, [np.nan] * 2)):
        mode = "up" if saturate else "nearest"
        node = helper.make_node("Cast", ["x"], ["y"], to=code_of(DTYPES["f8e8m0"]), saturate=saturate, round_mode=mode)
        (found,) = evaluated(parse(model_of([node], {"x": x}, ["y"], opset=25)), x)
        assert np.array_equal(found.astype(np.float64)[: len(expected)], expected, equal_nan=True)


def test_an_unknown_round_mode_is_refused() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=code_of(DTYPES["f8e8m0"]), round_mode="sideways")
    with pytest.raises(DlcError, match="sideways"):
        parse(model_of([node], {"x": np.ones(2, np.float32)}, ["y"], opset=25))


QUANTIZED = [t for t in NARROW if t.name not in ("bf16", "f8e8m0")]


@pytest.mark.parametrize("scale", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("of", QUANTIZED, ids=str)
@pytest.mark.parametrize("block", [0, 2])
def test_quantisation(of: DType, scale: str, block: int) -> None:
    """With a scale and a zero point for each column, or for blocks of two rows."""
    random = np.random.default_rng(0)
    kind, shape = DTYPES[scale].numpy, (2, 3) if block else (3,)
    x = (random.standard_normal((4, 3)) * 4).astype(kind)
    scales = (random.random(shape) + 0.5).astype(kind)
    zeros = np.ones(shape, of.numpy) if of.is_integer else np.zeros(shape, of.numpy)
    attributes: dict[str, Any] = {"axis": 0, "block_size": block} if block else {"axis": 1}
    feeds = {"x": x, "s": scales, "z": zeros}
    model = model_of([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], **attributes)], feeds, ["y"], opset=25)
    (found,) = evaluated(parse(model), *feeds.values())
    (expected,) = reference(model, ["y"], feeds)
    assert same(found, expected)
    feeds["x"] = found
    model = model_of(
        [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **attributes)], feeds, ["y"], opset=25
    )
    (found,) = evaluated(parse(model), *feeds.values())
    (expected,) = reference(model, ["y"], feeds)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0 if scale == "f32" else 1e-2)


def test_division_has_the_precision_that_is_asked_for() -> None:
    x, scale = np.array([1.0], np.float32), np.array(3.0, np.float16)
    y = np.array([1.0 / 3], np.float32).astype(np.float16)  # rounded before it is multiplied
    node = helper.make_node(
        "QuantizeLinear", ["x", "s"], ["q"], precision=code_of(f16), output_dtype=code_of(DTYPES["f8e4m3fn"])
    )
    (found,) = evaluated(parse(model_of([node], {"x": x, "s": scale}, ["q"], opset=25)), x, scale)
    assert same(found, y.astype(DTYPES["f8e4m3fn"].numpy))
