"""Models as onnxruntime's own tools leave them: its optimiser, and its quantisers, on small networks."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.models.transformers import bert, gpt
from tests.models.writing import Array, Writer

ort: Any = import_module("onnxruntime")  # it has no types to check against
Feeds = dict[str, Array]


def convolutions(act: str = "Relu", seed: int = 3) -> onnx.ModelProto:
    """A residual network: convolutions, pools, a join of parts, an activation of each kind, and two dense layers."""
    w = Writer(seed)

    def conv(x: str, inner: int, outer: int, kernel: int = 3, stride: int = 1, activate: bool = True) -> str:
        weight = w.weight(outer, inner, kernel, kernel, fan_in=inner * kernel * kernel, gain=2)
        pad = kernel // 2
        shape: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        y = w.op("Conv", x, weight, w.normal(outer, scale=0.1), **shape)
        return w.op(act, y) if activate else y

    x = conv("image", 3, 8, stride=2)
    x = w.op(act, w.op("Add", conv(conv(x, 8, 8), 8, 8, activate=False), x))
    x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    left, right = conv(x, 8, 6, 1), w.op("Sigmoid", conv(x, 8, 6, 1, activate=False))
    x = w.op("Concat", w.op("Mul", left, right), w.op("LeakyRelu", conv(x, 8, 4, activate=False), alpha=0.1), axis=1)
    x = w.op("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1])
    x = w.op("Flatten", w.op("GlobalAveragePool", x), axis=1)
    x = w.op("Relu", w.op("Gemm", x, w.weight(16, 10, fan_in=10, gain=2), w.normal(16, scale=0.1), transB=1))
    x = w.op("MatMul", x, w.weight(16, 12, fan_in=16))
    y = w.op("Softmax", w.op("Add", x, w.normal(12, scale=0.1)), axis=-1, name="y")
    return w.model("convolutions", {"image": (np.float32, (1, 3, 16, 16))}, {y: (np.float32, (1, 12))})


def recurrent(seed: int = 4) -> onnx.ModelProto:
    """An LSTM in both directions, its last states joined, and a dense layer."""
    w = Writer(seed)
    weights = w.weight(2, 4 * 8, 6, fan_in=6), w.weight(2, 4 * 8, 8, fan_in=8), w.normal(2, 8 * 8, scale=0.1)
    _, last, _ = w.ops("LSTM", "x", *weights, count=3, direction="bidirectional", hidden_size=8)
    flat = w.reshape(w.op("Transpose", last, perm=[1, 0, 2]), 2, 16)
    y = w.op("MatMul", flat, w.weight(16, 5, fan_in=16), name="y")
    return w.model("recurrent", {"x": (np.float32, (5, 2, 6))}, {y: (np.float32, (2, 5))})


def read(path: Path) -> onnx.ModelProto:
    """A model that a tool wrote."""
    model = onnx.ModelProto()
    model.ParseFromString(path.read_bytes())
    return model


def feeds_of(model: onnx.ModelProto, seed: int = 0) -> Feeds:
    """Inputs: normal floats, tokens of a small vocabulary, masks of which every row has a one."""
    random = np.random.default_rng(seed)
    found: Feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            found[value.name] = random.standard_normal(shape).astype(np.float32)
        else:
            most = 2 if "mask" in value.name or "type" in value.name else 50
            found[value.name] = random.integers(0, most, shape)
            if "mask" in value.name:
                found[value.name][:, 0] = 1
    return found


class _Calibration:
    """What quantize_static asks for: some inputs, one after the other."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds = iter([feeds_of(model, seed) for seed in range(4)])

    def get_next(self) -> Feeds | None:
        """The next input."""
        return next(self._feeds, None)


def optimised(model: onnx.ModelProto, path: Path) -> None:
    """By the optimiser of a session, its extended fusions included."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(path)
    settings.log_severity_level = 4
    ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


def fused_transformer(kind: str, hidden: int, heads: int) -> Callable[[onnx.ModelProto, Path], None]:
    """By the optimiser for transformers, which recognises the layers of a family."""

    def write(model: onnx.ModelProto, path: Path) -> None:
        optimizer: Any = import_module("onnxruntime.transformers.optimizer")
        path.write_bytes(model.SerializeToString())
        found = optimizer.optimize_model(str(path), kind, num_heads=heads, hidden_size=hidden, opt_level=0)
        found.save_model_to_file(str(path))

    return write


def statically_quantised(form: str, **options: Any) -> Callable[[onnx.ModelProto, Path], None]:
    """With scales from a few inputs; `form` is "QOperator" or "QDQ"."""

    def write(model: onnx.ModelProto, path: Path) -> None:
        q: Any = import_module("onnxruntime.quantization")
        source = path.with_suffix(".float.onnx")
        q.quant_pre_process(model, str(source))
        q.quantize_static(str(source), str(path), _Calibration(model), quant_format=q.QuantFormat[form], **options)

    return write


def dynamically_quantised(model: onnx.ModelProto, path: Path) -> None:
    """Weights in 8 bits, activations quantised by their own range, then fused by the optimiser."""
    q: Any = import_module("onnxruntime.quantization")
    source, middle = path.with_suffix(".float.onnx"), path.with_suffix(".plain.onnx")
    source.write_bytes(model.SerializeToString())
    q.quantize_dynamic(str(source), str(middle))
    optimised(read(middle), path)


def in_blocks(bits: int, symmetric: bool) -> Callable[[onnx.ModelProto, Path], None]:
    """Weights of matrix products in blocks of few bits."""

    def write(model: onnx.ModelProto, path: Path) -> None:
        module: Any = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
        quantizer = module.MatMulNBitsQuantizer(model, bits=bits, block_size=16, is_symmetric=symmetric)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))

    return write


def operators(model: onnx.ModelProto) -> set[str]:
    """Operators of onnxruntime's domain, and the quantised ones of the standard."""
    return {n.op_type for n in model.graph.node if n.domain == "com.microsoft" or n.op_type.startswith(("Q", "Deq"))}


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutions": convolutions,
    "recurrent": recurrent,
    "bert": lambda: bert(batch=2, length=6, hidden=32, heads=4),
    "bert, parts": lambda: bert(batch=2, length=6, hidden=32, heads=4, norm="decomposed"),
    "gpt": lambda: gpt(batch=2, length=5, hidden=32, heads=4, past=3),
}
