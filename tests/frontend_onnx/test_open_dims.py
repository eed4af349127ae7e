"""Single operators on dimensions that are known when the program runs: compiled C against onnxruntime at their ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from building import QUICK, runtime
from onnx import TensorProto
from sized_models import feeds, model, n, weights

import dlc
from dlc import DlcError

HIDDEN = 5


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def made(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, Any] | None = None,
    integers: Sequence[str] = (),
    opset: int = 17,
) -> bytes:
    loaded = onnx.load_model_from_string(model(nodes, inputs, outputs, constants or {}, integers))
    loaded.opset_import[0].version = opset
    for port in loaded.graph.input:
        if port.name == "lengths":
            port.type.tensor_type.elem_type = TensorProto.INT32
    return loaded.SerializeToString()


IMAGE = {"x": ["b", 3, "h", "w"]}
SCALES = {"s": np.array([1, 1, 1.5, 0.5], np.float32)}


def resize(scales: Mapping[str, Any] = SCALES, **how: Any) -> bytes:
    return made([n("Resize", ["x", "", "s"], ["y"], **how)], IMAGE, constants=scales)


def resized_to_another(**how: Any) -> bytes:
    """To the height and width of a second image, as a feature pyramid does."""
    nodes = [
        n("Shape", ["z"], ["last"], start=2),
        n("Shape", ["x"], ["first"], end=2),
        n("Concat", ["first", "last"], ["to"], axis=0),
        n("Resize", ["x", "", "", "to"], ["y"], **how),
    ]
    return made(nodes, {**IMAGE, "z": ["b", 3, "h2", "w2"]})


def recurrent(kind: str, direction: str = "forward", lengths: bool = False) -> bytes:
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    constants = {
        "w": weights(directions, gates * HIDDEN, 3),
        "r": weights(directions, gates * HIDDEN, HIDDEN),
        "c": weights(directions, 2 * gates * HIDDEN),
    }
    results = ["y", "last", "cell"][: 3 if kind == "LSTM" else 2]
    node = n(kind, ["x", "w", "r", "c", *["lengths"] * lengths], results, hidden_size=HIDDEN, direction=direction)
    inputs: dict[str, Sequence[int | str]] = {"x": ["t", "b", 3]}
    return made([node], {**inputs, "lengths": ["b"]} if lengths else inputs, results, constants)


def padded_to_a_multiple() -> bytes:
    nodes = [
        n("Shape", ["x"], ["t"], start=2),
        n("Neg", ["t"], ["negative"]),
        n("Mod", ["negative", "four"], ["more"]),
        n("Concat", ["none", "more"], ["pads"], axis=0),
        n("Pad", ["x", "pads"], ["y"]),
    ]
    return made(nodes, {"x": ["b", 2, "t"]}, constants={"four": ints(4), "none": ints(0, 0, 0, 0, 0)})


def counted() -> bytes:
    """How many elements are above 0, and nothing of these themselves."""
    nodes = [
        n("Greater", ["x", "zero"], ["mask"]),
        n("NonZero", ["mask"], ["places"]),
        n("Shape", ["places"], ["y"], start=1),
    ]
    return made(nodes, {"x": ["b", "t"]}, constants={"zero": np.float32(0)})


def attention() -> bytes:
    inputs: dict[str, Sequence[int | str]] = {"q": ["b", 2, "t", 4], "k": ["b", 2, "u", 4], "v": ["b", 2, "u", 4]}
    return made([n("Attention", ["q", "k", "v"], ["y"], is_causal=1)], inputs, opset=23)


def rotary() -> bytes:
    tables = {"cos": weights(20, 2), "sin": weights(20, 2)}
    node = n("RotaryEmbedding", ["x", "cos", "sin", "at"], ["y"])
    return made([node], {"x": ["b", 2, "t", 4], "at": ["b", "t"]}, constants=tables, integers=["at"], opset=23)


def rows_by_number() -> bytes:
    """Rows of a table of open length, read and written at places that are inputs."""
    nodes = [n("ScatterND", ["x", "at", "u"], ["z"]), n("GatherND", ["z", "at"], ["y"])]
    return made(nodes, {"x": ["b", 4], "at": ["k", 1], "u": ["k", 4]}, ["y"], integers=["at"])


def reversed_rows() -> bytes:
    node = n("ReverseSequence", ["x", "sizes"], ["y"], batch_axis=0, time_axis=1)
    return made([node], {"x": ["b", "t", 3], "sizes": ["b"]}, integers=["sizes"])


def reflected() -> bytes:
    """Padding of the last dimension only; a batch of one element is not reflected."""
    return made(
        [n("Pad", ["x", "p"], ["y"], mode="reflect")], {"x": ["b", 2, "t"]}, constants={"p": ints(0, 0, 3, 0, 0, 3)}
    )


def backward() -> bytes:
    """Rows in opposite order, and every second one from the last but one on."""
    nodes = [
        n("Slice", ["x", "last", "before", "one", "last"], ["y"]),
        n("Slice", ["x", "second", "before", "one", "second"], ["z"]),
        n("Slice", ["x", "last", "first", "one", "last"], ["w"]),
    ]
    constants = {"last": ints(-1), "before": ints(-(1 << 63)), "one": ints(1), "second": ints(-2), "first": ints(0)}
    return made(nodes, {"x": ["b", "t"]}, ["y", "z", "w"], constants)


def eye() -> bytes:
    return made([n("EyeLike", ["x"], ["e"], k=1), n("Add", ["e", "x"], ["y"])], {"x": ["b", "t"]})


def pooled() -> bytes:
    figures: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    return made([n("AveragePool", ["x"], ["y"], **figures)], IMAGE)


SMALL = {"b": "1..2", "h": "1..6", "w": "2..6"}
STEPS = {"t": "1..6", "b": "1..3"}
CASES: Mapping[str, tuple[Callable[[], bytes], Mapping[str, str]]] = {
    "Resize nearest": (lambda: resize({"s": np.array([1, 1, 2, 2], np.float32)}, mode="nearest"), SMALL),
    "Resize linear": (lambda: resize(mode="linear"), {**SMALL, "h": "2..6"}),
    "Resize cubic": (lambda: resize(mode="cubic", exclude_outside=1), {**SMALL, "h": "2..6"}),
    "Resize to another": (
        lambda: resized_to_another(mode="linear", coordinate_transformation_mode="align_corners"),
        {**SMALL, "h2": "1..9", "w2": "1..9"},
    ),
    "Resize nearest to another": (
        lambda: resized_to_another(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        {**SMALL, "h2": "1..9", "w2": "1..9"},
    ),
    "LSTM": (lambda: recurrent("LSTM"), STEPS),
    "LSTM both": (lambda: recurrent("LSTM", "bidirectional"), STEPS),
    "LSTM lengths": (lambda: recurrent("LSTM", "bidirectional", lengths=True), {"t": "20..22", "b": "1..3"}),
    "GRU": (lambda: recurrent("GRU"), STEPS),
    "RNN backward": (lambda: recurrent("RNN", "reverse"), STEPS),
    "Pad to a multiple": (padded_to_a_multiple, {"b": "1..2", "t": "1..9"}),
    "Pad reflect": (reflected, {"b": "1..2", "t": "4..9"}),
    "NonZero counted": (counted, {"b": "1..2", "t": "1..9"}),
    "Attention": (attention, {"b": "1..2", "t": "1..9", "u": "1..9"}),
    "RotaryEmbedding": (rotary, {"b": "1..2", "t": "1..9"}),
    "ScatterND": (rows_by_number, {"b": "20..22", "k": "1..1"}),
    "ReverseSequence": (reversed_rows, {"b": "1..4", "t": "20..22"}),
    "Slice backward": (backward, {"b": "1..4", "t": "2..7"}),
    "EyeLike": (eye, {"b": "1..4", "t": "1..5"}),
    "AveragePool": (pooled, {"b": "1..2", "h": "3..9", "w": "3..9"}),
}


def sizes(dims: Mapping[str, str]) -> list[dict[str, int]]:
    """All at their smallest, all at their largest, and two mixtures."""
    ends = {name: tuple(map(int, text.split(".."))) for name, text in dims.items()}
    mixed = [{name: pair[(k + at) % 2] for k, (name, pair) in enumerate(ends.items())} for at in (0, 1)]
    return [{name: pair[end] for name, pair in ends.items()} for end in (0, 1)] + mixed


@pytest.mark.parametrize("name", CASES)
def test_an_operator_at_several_sizes(name: str, builds: Path) -> None:
    make, dims = CASES[name]
    content = make()
    program: Any = dlc.build(content, QUICK, dims=dims, cache_dir=builds)
    loaded = onnx.load_model_from_string(content)
    names = [o.name for o in loaded.graph.output]
    for at in sizes(dims):
        given = feeds(content, at)
        given |= {k: np.maximum(given[k], 1).astype(np.int32) for k in given if k == "lengths"}
        got = program(**given)
        for output, wanted in zip(names, runtime(loaded, names, given), strict=True):
            assert got[output].shape == np.shape(wanted), f"{output} at {at}"
            np.testing.assert_allclose(got[output], wanted, rtol=1e-4, atol=1e-5, err_msg=f"{output} at {at}")


def refused(content: bytes, **dims: str) -> str:
    with pytest.raises(DlcError) as caught:
        dlc.build(content, dims=dims, cache="off")
    return str(caught.value)


def test_a_shape_that_is_right_for_some_sizes_only_is_reported() -> None:
    nodes = [
        n("Shape", ["x"], ["t"], start=1),
        n("Div", ["t", "two"], ["half"]),
        n("Concat", ["three", "half", "two"], ["to"], axis=0),
        n("Reshape", ["x", "to"], ["y"]),
    ]
    content = made(nodes, {"x": [3, "t"]}, constants={"two": ints(2), "three": ints(3)})
    told = refused(content, t="2..8")
    assert "f32[3,t]" in told
    assert "/2" in told
    dlc.build(content, dims={"t": "2..8/2"}, cache="off")


def test_padding_that_depends_on_a_size_is_reported() -> None:
    node = n("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")
    content = made([node], IMAGE, constants={"w": weights(4, 3, 3, 3)})
    assert "SAME_UPPER" in refused(content, b="1..2", h="3..9", w="3..9")
    dlc.build(content, dims={"b": "1..2", "h": "4..8/2", "w": "4..8/2"}, cache="off")


@pytest.mark.parametrize(
    ("content", "dims"),
    [
        (resize({"s": np.array([1, 1, 0.7, 1], np.float32)}), {"b": "1", "h": "2..9", "w": "4"}),
        (resized_to_another(mode="linear", antialias=1), {"b": "1", "h": "2..9", "w": "4", "h2": "2", "w2": "4"}),
    ],
)
def test_what_needs_one_size_names_it(content: bytes, dims: dict[str, str]) -> None:
    told = refused(content, **dims)
    assert "Resize" in told
    assert " h" in told
    assert "Dim" not in told
