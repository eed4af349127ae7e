"""Heads of detectors: indices found by one op move data for the next, behind values stored with channels innermost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models.building import Bench, reference
from tests.models.writing import Array, Writer

X = {"x": (np.float32, (2, 8, 12, 10))}


def _convolution(g: Writer) -> str:
    return g.op("Conv", "x", g.weight(24, 8, 3, 3, fan_in=72), g.normal(24), kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def _pooling(g: Writer) -> str:
    return g.op("MaxPool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def _pooled_convolution(g: Writer) -> str:
    return g.op("AveragePool", _convolution(g), kernel_shape=[2, 2], strides=[2, 2])


def _top(g: Writer, x: str) -> list[str]:
    return g.ops("TopK", x, g.constant([4]), count=2, axis=1)


def _top_of_the_flat(g: Writer, x: str) -> list[str]:
    """CenterNet: a peak stays where pooling does not change it, then the best places of each class."""
    peaks = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    kept = g.op("Mul", x, g.op("Cast", g.op("Equal", x, peaks), to=onnx.TensorProto.FLOAT))
    flat = g.reshape(kept, 2, -1)
    return g.ops("TopK", flat, g.constant([9]), count=2, axis=1)


def _places_of_the_largest(g: Writer, x: str) -> list[str]:
    best = g.op("ArgMax", x, axis=1, keepdims=1)
    updates = g.op("Cast", g.op("Add", best, g.constant(1)), to=onnx.TensorProto.FLOAT)
    return [g.op("ScatterElements", x, best, updates, axis=1)]


def _taken_by_the_smallest(g: Writer, x: str) -> list[str]:
    return [g.op("GatherElements", x, g.op("ArgMin", x, axis=1, keepdims=1), axis=1)]


def _sorted_rows(g: Writer, x: str) -> list[str]:
    return g.ops("TopK", g.op("Transpose", x, perm=[0, 2, 3, 1]), g.constant([5]), count=2, axis=-1, largest=0)


BODIES: tuple[Callable[[Writer], str], ...] = (_convolution, _pooling, _pooled_convolution)
HEADS: tuple[Callable[[Writer, str], list[str]], ...] = (
    *(_top, _top_of_the_flat, _places_of_the_largest, _taken_by_the_smallest, _sorted_rows),
)


@pytest.mark.parametrize("target", ["c{flags=-O0}", "c{cpu=generic flags=-O0}"], ids=["native", "generic"])
@pytest.mark.parametrize("head", HEADS, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__.strip("_"))
def test_the_outputs_are_those_of_onnxruntime(
    body: Callable[[Writer], str], head: Callable[[Writer, str], list[str]], target: str, bench: Bench, place: Path
) -> None:
    g = Writer(3)
    outputs = head(g, body(g))
    model = g.model("head", X, {})
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs)
    model = onnx.shape_inference.infer_shapes(model)
    built = bench.compile(model, place, target=target)
    feeds: dict[str, Array] = {"x": np.random.default_rng(5).standard_normal(X["x"][1]).astype(np.float32)}
    want = reference(built.source, feeds)
    for name, got in built(feeds).items():
        assert got.dtype == want[name].dtype
        np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-5)
