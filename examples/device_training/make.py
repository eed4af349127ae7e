"""Writes what the firmware is built from into a directory: `python make.py DIR`, with numpy and onnx installed.

`net.onnx` is a network with random weights for pictures of 8 x 8 grey values, `pictures.bin` a part of
examples/digits: 65 bytes for each picture, its grey values from 0 to 16 and the digit.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

DIGITS = Path(__file__).parents[1] / "digits"
TRAINING, TEST = 320, 100
"""Pictures. Those of the test lie behind the others."""


def network() -> onnx.ModelProto:
    """A convolution with 8 filters and a layer for 10 classes: 1,370 weights."""
    model = parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    net (float[batch,1,8,8] x) => (float[batch,10] scores) {
        grey = Mul(x, sixteenth)
        sums = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(grey, filters, shifts)
        found = Relu(sums)
        flat = Flatten(found)
        scores = Gemm<transB = 1>(flat, classes, biases)
    }""")
    random = np.random.default_rng(0)
    for name, shape, inputs in (
        ("filters", (8, 1, 3, 3), 9),
        ("shifts", (8,), 9),
        ("classes", (10, 128), 128),
        ("biases", (10,), 128),
    ):
        values = random.uniform(-1, 1, shape) / np.sqrt(inputs)
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1 / 16), "sixteenth"))
    onnx.checker.check_model(model)
    return model


def pictures() -> np.ndarray:
    """u8[420,65]."""
    parts: list[np.ndarray] = []
    for name, rows in (("train", TRAINING), ("test", TEST)):
        data = np.load(DIGITS / f"digits_{name}.npz")
        parts.append(np.hstack([data["x"].reshape(-1, 64), data["y"][:, None]])[:rows])
    return np.concatenate(parts)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(network(), place / "net.onnx")
    pictures().tofile(place / "pictures.bin")
