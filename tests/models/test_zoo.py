"""Models of the zoo that torch's old exporter and onnxruntime's quantisers write: they build, and match onnxruntime.

`benchmarks/model_zoo.py` has the others, which need packages that are no dependencies of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.zoo import check, layers, narrow, vision
from benchmarks.zoo.entry import Feeds

MODELS: dict[str, tuple[Callable[[Path], Feeds], float]] = {
    "boolean masks": (partial(layers.masks, opset=14, new=False), 1e-4),
    "slices and gathered rows": (partial(layers.indexing, opset=17, new=False), 1e-4),
    "activations": (partial(layers.activations, opset=13, new=False), 1e-4),
    "graph": (partial(layers.gnn, opset=16, new=False), 1e-4),
    "lstm": (partial(layers.seq2seq, kind="LSTM", opset=14, new=False), 1e-4),
    "speech": (partial(layers.speech, opset=17, new=False), 1e-3),
    "speech in ONNX": (layers.onnx_speech, 1e-3),
    "detector": (partial(vision.detector, opset=13, nms=False, new=False), 1e-4),
    "script": (partial(layers.scripted, opset=16), 1e-4),
    "float16": (partial(narrow.convnet, dtype="float16"), 2e-2),
    "dynamic int8": (partial(narrow.dynamic, what="convnet", weights="QUInt8"), 2e-2),
}
NUMBERS = ("--target", "c{flags=-O0}")
"""They are compared, and nothing is timed."""
QDQ = {"form": "QDQ", "per_channel": True, "what": "convnet"}
for activations, weights in (("QUInt8", "QInt8"), ("QInt16", "QInt8")):
    MODELS[f"{activations} {weights}"] = (partial(narrow.static, activations=activations, weights=weights, **QDQ), 2e-2)


@pytest.mark.parametrize("name", MODELS)
def test_it_matches_onnxruntime(name: str, tmp_path: Path) -> None:
    make, tolerance = MODELS[name]
    path = tmp_path / "model.onnx"
    feeds: Any = make(path)
    np.savez(path.with_suffix(".npz"), **feeds)
    found = check.check(path, "plain onnxruntime", tolerance, options=NUMBERS)
    assert found["result"] == "matches", found["detail"]


def test_a_difference_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    feeds: Any = layers.onnx_speech(path)
    np.savez(path.with_suffix(".npz"), **feeds)
    assert check.check(path, "plain onnxruntime", 0.0, options=NUMBERS)["result"] == "differs"
    assert check.error(np.array([1.0, 2.0]), np.array([1.0, np.nan])) == np.inf
    assert check.error(np.array([1, 2]), np.array([1, 3])) == np.inf
    assert check.error(np.zeros((2, 1)), np.zeros(2)) == np.inf
