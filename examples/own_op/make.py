"""Writes a model with ops of layers.ops.yaml, and an input with its output: `python make.py DIR`, with numpy and onnx.

`net.onnx` has the operators Swish and RmsPool of the domain org.example.layers between a convolution and a layer for
four classes. `x.npy` is a picture, `scores.npy` what numpy computes of it, without dlc.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

MODEL = """
<ir_version: 10, opset_import: ["": 21, "org.example.layers": 1]>
net (float[1,3,8,8] x) => (float[1,4] scores) {
    sums = Conv<pads = [1, 1, 1, 1]>(x, filters)
    pooled = org.example.layers.RmsPool<window = 4>(sums)
    flat = Flatten(pooled)
    active = org.example.layers.Swish(flat, beta)
    scores = MatMul(active, classes)
}"""
SHAPES = {"filters": (6, 3, 3, 3), "beta": (24,), "classes": (24, 4)}


def scores(x: np.ndarray, filters: np.ndarray, beta: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The network in numpy: f32[1,3,8,8] → f32[1,4]."""
    patches = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    sums = np.einsum("nchwij,fcij->nfhw", patches, filters)
    windows = sums.reshape(1, 6, 2, 4, 2, 4)
    flat = np.sqrt((windows**2).mean(axis=(3, 5)) + 1e-6).reshape(1, 24)
    return flat / (1 + np.exp(-beta * flat)) @ classes


def main(place: Path) -> None:
    """Write the three files."""
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal(shape, np.float32) / 3 for name, shape in SHAPES.items()}
    x = random.standard_normal((1, 3, 8, 8), np.float32)
    model = parser.parse_model(MODEL)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(model, place / "net.onnx")
    np.save(place / "x.npy", x)
    np.save(place / "scores.npy", scores(x, **weights))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
