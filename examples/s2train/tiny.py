"""A small convolutional model with random weights, `tiny.onnx`, and an input, `x.npz`; docs/s2train.md uses them."""

import numpy as np
import onnx
from onnx import numpy_helper, parser

model = parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
tiny (float[2,1,8,8] x) => (float[2,5] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    n = BatchNormalization(c, scale, shift, mean, var)
    r = Relu(n)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    f = Flatten(p)
    y = Gemm<transB = 1>(f, head, bias)
}""")
random = np.random.default_rng(0)
shapes = {"w": (4, 1, 3, 3), "scale": (4,), "shift": (4,), "mean": (4,), "var": (4,), "head": (5, 64), "bias": (5,)}
for name, shape in shapes.items():
    values = random.uniform(-0.5, 0.5, shape) + (name in ("scale", "var"))
    model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
onnx.save(model, "tiny.onnx")
np.savez("x.npz", x=random.standard_normal((2, 1, 8, 8), np.float32))
