"""Models with tensors that have no elements, through the whole of `dlc build`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.frontend import Onnx

from dlc import Report, Source
from dlc.graph import evaluate
from tests.models.building import Bench
from tests.models.writing import Array, Writer

CASES: dict[str, tuple[tuple[int, ...], Callable[[Writer], str]]] = {
    "softmax": ((4, 0), lambda g: g.op("Softmax", "x")),
    "log-softmax": ((4, 0), lambda g: g.op("LogSoftmax", "x")),
    "softmax of no rows": ((0, 4), lambda g: g.op("Relu", g.op("Softmax", g.op("Relu", "x")))),
    "layer norm": ((0, 4), lambda g: g.op("LayerNormalization", "x", g.normal(4), g.normal(4))),
    "pad": ((0, 3), lambda g: g.op("Pad", "x", g.constant([0, 1, 0, 1]))),
    "pad of nothing to something": ((0, 3), lambda g: g.op("Pad", "x", g.constant([2, 0, 0, 0]))),
    "concat": ((0, 3), lambda g: g.op("Concat", g.op("Relu", "x"), g.normal(2, 3), axis=0)),
    "sum": ((3, 0), lambda g: g.op("ReduceSum", g.op("Exp", "x"), g.constant([1]), keepdims=0)),
    "maximum": ((0, 3), lambda g: g.op("ReduceMax", g.op("Exp", "x"), axes=[0])),
    "product": ((3, 0), lambda g: g.op("MatMul", g.op("Relu", "x"), g.normal(0, 5))),
    "convolution of no images": (
        (0, 3, 8, 8),
        lambda g: g.op("Relu", g.op("Conv", "x", g.normal(4, 3, 3, 3), g.normal(4), kernel_shape=[3, 3])),
    ),
    "pooling of no channels": ((1, 0, 8, 8), lambda g: g.op("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])),
}


@pytest.mark.parametrize("target", ["c{flags=-O0}", "c{cpu=generic flags=-O0}"], ids=["native", "generic"])
@pytest.mark.parametrize("name", CASES)
def test_the_outputs_are_those_of_the_reference(name: str, target: str, bench: Bench, place: Path) -> None:
    shape, write = CASES[name]
    g = Writer(0)
    output = write(g)
    model: Any = g.model("empty", {"x": (np.float32, shape)}, {})
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(output))
    built = bench.compile(model, place, target=target)
    feeds: dict[str, Array] = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    want = evaluate(Onnx().parse(Source(built.source), Report()), feeds)
    got = built(feeds)
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-5, atol=1e-6, strict=True)
