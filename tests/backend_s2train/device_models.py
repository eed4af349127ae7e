"""Small training programs for tests of what surrounds the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import numpy_helper, parser

from dlc.cli.frame import run

NET = """
<ir_version: 10, opset_import: ["": 21]>
net (float[2,1,8,8] x) => (float[2,5] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    n = BatchNormalization(c, scale, shift, mean, var)
    r = Relu(n)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    f = Flatten(p)
    h = Gemm<transB = 1>(f, hidden, bias)
    q = Relu(h)
    y = Gemm<transB = 1>(q, head)
}"""
SHAPES = {
    **dict.fromkeys(("scale", "shift", "mean", "var"), (4,)),
    "w": (4, 1, 3, 3),
    "hidden": (6, 64),
    "bias": (6,),
    "head": (5, 6),
}


def trained_program(folder: Path, shared: Path) -> Path:
    """The file of a training program whose loss scale changes, built in a folder; tests share what the build caches."""
    model: Any = parser.parse_model(NET)
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        # The head is so large that the first loss scale makes gradients overflow.
        values = rng.uniform(-0.5, 0.5, shape) * (16 if name == "head" else 1) + (name in ("scale", "var"))
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    line = ["build", str(folder / "net.onnx"), "-t", "s2train{simulate=bit-true}", "--train", "loss=cross-entropy"]
    line += ["--set", "s2-select.loss-scale=dynamic", "--cache-dir", str(shared / "device")]
    assert run([*line, "-q", "-o", str(folder / "out")]) == 0
    return folder / "out" / "net.s2t"
