"""Writes what lies beside it: `python make.py`, with numpy, onnx and scikit-learn installed."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

HERE = Path(__file__).parent


def data() -> None:
    """1,797 pictures of 8 x 8 grey values from 0 to 16; every fifth is kept for the test."""
    digits = load_digits()
    x, y = digits.images.astype(np.uint8)[:, None], digits.target.astype(np.uint8)
    test = np.arange(len(x)) % 5 == 0
    np.savez_compressed(HERE / "digits_train.npz", x=x[~test], y=y[~test])
    np.savez_compressed(HERE / "digits_test.npz", x=x[test], y=y[test])


def lenet() -> onnx.ModelProto:
    """LeNet-5 (LeCun and others 1998) for pictures of 8 x 8: with ReLU, max pooling, and more but smaller filters."""
    generator = np.random.default_rng(0)
    stored: list[onnx.TensorProto] = []

    def weights(name: str, *shape: int) -> list[str]:
        """Uniform as PyTorch starts with them: within 1 / sqrt(what one output reads)."""
        bound = 1 / np.sqrt(np.prod(shape[1:]))
        for key, of in (("weight", shape), ("bias", shape[:1])):
            values = generator.uniform(-bound, bound, of).astype(np.float32)
            stored.append(numpy_helper.from_array(values, f"{name}.{key}"))
        return [f"{name}.weight", f"{name}.bias"]

    sixteenth = helper.make_tensor("", TensorProto.FLOAT, [], [1 / 16])
    nodes = [
        helper.make_node("Constant", [], ["sixteenth"], value=sixteenth),
        helper.make_node("Mul", ["x", "sixteenth"], ["grey"]),
    ]
    last = "grey"
    for name, shape in (("conv1", (16, 1, 3, 3)), ("conv2", (32, 16, 3, 3))):
        nodes += [
            helper.make_node("Conv", [last, *weights(name, *shape)], [f"{name}.sum"], name=name, pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"{name}.sum"], [f"{name}.relu"]),
            helper.make_node("MaxPool", [f"{name}.relu"], [f"{name}.pool"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        last = f"{name}.pool"
    nodes.append(helper.make_node("Flatten", [last], ["flat"]))
    last = "flat"
    for name, shape in (("fc1", (120, 128)), ("fc2", (84, 120)), ("fc3", (10, 84))):
        out = "scores" if name == "fc3" else f"{name}.sum"
        nodes.append(helper.make_node("Gemm", [last, *weights(name, *shape)], [out], name=name, transB=1))
        if name != "fc3":
            nodes.append(helper.make_node("Relu", [out], [f"{name}.relu"]))
        last = f"{name}.relu"
    graph = helper.make_graph(
        nodes,
        "lenet",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    data()
    model = lenet()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, HERE / "lenet.onnx")
