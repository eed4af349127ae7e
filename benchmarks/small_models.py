"""Models for small processors, with random weights: those of MLPerf Tiny and their like, batch 1, float and quantised.

Quantised models are those that onnxruntime's static quantiser makes of the float ones: QDQ, weights of i8 with a scale
for each output channel, activations of i8, as runtimes for microcontrollers have them, or of u8.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.frontend_onnx.quantising import statically_quantised
from tests.models.writing import Writer
from tests.models.zoo import mlp, mobilenet_v2


def _conv(
    w: Writer,
    x: str,
    inner: int,
    outer: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    group: int = 1,
    pads: Sequence[int] | None = None,
    relu: bool = True,
) -> str:
    """A convolution, batch normalisation, and ReLU."""
    weight = w.weight(outer, inner // group, *kernel, fan_in=inner // group * int(np.prod(kernel)), gain=2)
    around = list(pads) if pads is not None else [k // 2 for k in kernel] * 2
    x = w.op("Conv", x, weight, group=group, kernel_shape=list(kernel), strides=list(stride), pads=around)
    shift, mean = w.normal(outer, scale=0.1), w.normal(outer, scale=0.1)
    x = w.op("BatchNormalization", x, w.normal(outer, scale=0.1, around=1), shift, mean, w.positive(outer))
    return w.op("Relu", x) if relu else x


def _separable(w: Writer, x: str, inner: int, outer: int, stride: int = 1) -> str:
    """A depthwise convolution of 3 x 3, then one of 1 x 1."""
    x = _conv(w, x, inner, inner, (3, 3), (stride, stride), group=inner)
    return _conv(w, x, inner, outer, (1, 1), (1, 1))


def _head(w: Writer, x: str, inner: int, classes: int, shape: Sequence[int], title: str) -> onnx.ModelProto:
    """Mean over space, a dense layer, softmax."""
    x = w.op("Flatten", w.op("GlobalAveragePool", x), axis=1)
    return _classes(w, x, inner, classes, shape, title)


def _classes(w: Writer, x: str, inner: int, classes: int, shape: Sequence[int], title: str) -> onnx.ModelProto:
    x = w.op("Gemm", x, w.weight(classes, inner, fan_in=inner), w.normal(classes, scale=0.1), transB=1)
    y = w.op("Softmax", x, axis=-1, name="probabilities")
    return w.model(title, {"x": (np.float32, (1, *shape))}, {y: (np.float32, (1, classes))})


def ds_cnn() -> onnx.ModelProto:
    """Keyword spotting of MLPerf Tiny: Zhang et al. (2017), DS-CNN-S with 64 channels."""
    w = Writer(0)
    x = _conv(w, "x", 1, 64, (10, 4), (2, 2), pads=(4, 1, 5, 1))
    for _ in range(4):
        x = _separable(w, x, 64, 64)
    return _head(w, x, 64, 12, (1, 49, 10), "ds_cnn")


def mobilenet_v1(size: int = 96) -> onnx.ModelProto:
    """Visual wake words of MLPerf Tiny: Howard et al. (2017), a quarter of the channels."""
    w = Writer(0)
    x, now = _conv(w, "x", 3, 8, (3, 3), (2, 2)), 8
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    channels = (16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)
    for stride, after in zip(strides, channels, strict=True):
        x, now = _separable(w, x, now, after, stride), after
    return _head(w, x, now, 2, (3, size, size), "mobilenet_v1")


def resnet_8() -> onnx.ModelProto:
    """Image classification of MLPerf Tiny."""
    w = Writer(0)
    x, now = _conv(w, "x", 3, 16, (3, 3), (1, 1)), 16
    for after, stride in ((16, 1), (32, 2), (64, 2)):
        y = _conv(w, x, now, after, (3, 3), (stride, stride))
        y = _conv(w, y, after, after, (3, 3), (1, 1), relu=False)
        x = x if stride == 1 else _conv(w, x, now, after, (1, 1), (stride, stride), relu=False)
        x, now = w.op("Relu", w.op("Add", x, y)), after
    return _head(w, x, now, 10, (3, 32, 32), "resnet_8")


def autoencoder() -> onnx.ModelProto:
    """Anomaly detection of MLPerf Tiny: dense layers with batch normalisation."""
    w = Writer(0)
    x = "x"
    sizes = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128)
    for inner, outer in itertools.pairwise(sizes):
        x = w.op("Gemm", x, w.weight(outer, inner, fan_in=inner, gain=2), w.normal(outer, scale=0.1), transB=1)
        shift, mean = w.normal(outer, scale=0.1), w.normal(outer, scale=0.1)
        x = w.op("BatchNormalization", x, w.normal(outer, scale=0.1, around=1), shift, mean, w.positive(outer))
        x = w.op("Relu", x)
    y = w.op("Gemm", x, w.weight(640, 128, fan_in=128), w.normal(640, scale=0.1), transB=1, name="y")
    return w.model("autoencoder", {"x": (np.float32, (1, 640))}, {y: (np.float32, (1, 640))})


def lenet_5() -> onnx.ModelProto:
    """LeCun et al. (1998), with ReLU and maxima."""
    w = Writer(0)
    x = _conv(w, "x", 1, 6, (5, 5), (1, 1))
    x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = w.op("MaxPool", _conv(w, x, 6, 16, (5, 5), (1, 1), pads=(0,) * 4), kernel_shape=[2, 2], strides=[2, 2])
    x = w.op("Flatten", x, axis=1)
    for inner, outer in ((400, 120), (120, 84)):
        x = w.op("Gemm", x, w.weight(outer, inner, fan_in=inner, gain=2), w.normal(outer, scale=0.1), transB=1)
        x = w.op("Relu", x)
    return _classes(w, x, 84, 10, (1, 28, 28), "lenet_5")


def activity() -> onnx.ModelProto:
    """Activities from 128 samples of nine sensors: convolutions along time, and dense layers."""
    w = Writer(0)
    x = _conv(w, "x", 9, 32, (5,), (1,))
    x = w.op("MaxPool", x, kernel_shape=[2], strides=[2])
    x = w.op("MaxPool", _conv(w, x, 32, 32, (5,), (1,)), kernel_shape=[2], strides=[2])
    x = w.op("Flatten", x, axis=1)
    x = w.op("Relu", w.op("Gemm", x, w.weight(48, 1024, fan_in=1024, gain=2), w.normal(48, scale=0.1), transB=1))
    return _classes(w, x, 48, 6, (9, 128), "activity")


def tc_resnet_8() -> onnx.ModelProto:
    """Keyword spotting along time: Choi et al. (2019), without the widest layers."""
    w = Writer(0)
    x, now = _conv(w, "x", 40, 16, (3,), (1,)), 16
    for after in (24, 32, 48):
        y = _conv(w, _conv(w, x, now, after, (9,), (2,)), after, after, (9,), (1,), relu=False)
        x = w.op("Relu", w.op("Add", y, _conv(w, x, now, after, (1,), (2,))))
        now = after
    return _head(w, x, now, 12, (40, 98), "tc_resnet_8")


def cnn_cifar() -> onnx.ModelProto:
    """Three convolutions of 5 x 5 with pooling, as the CIFAR-10 example of CMSIS-NN."""
    w = Writer(0)
    x, now = "x", 3
    for after in (32, 16, 32):
        x, now = _conv(w, x, now, after, (5, 5), (1, 1)), after
        x = w.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    return _classes(w, w.op("Flatten", x, axis=1), 512, 10, (3, 32, 32), "cnn_cifar")


FLOAT: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "ds_cnn": ds_cnn,
    "mobilenet_v1": mobilenet_v1,
    "resnet_8": resnet_8,
    "autoencoder": autoencoder,
    "mlp": partial(mlp, 1, (784, 64, 32, 10)),
    "lenet_5": lenet_5,
    "activity": activity,
    "tc_resnet_8": tc_resnet_8,
    "cnn_cifar": cnn_cifar,
    "mobilenet_v2": partial(mobilenet_v2, 1, 48, 0.35, 10),
}
"""Each gives the same model every time."""

ACTIVATIONS: Mapping[str, str] = {"i8": "QInt8", "u8": "QUInt8"}
"""Types of quantised activations, as the quantiser calls them."""


def write(name: str, path: Path) -> None:
    """Write a model: "ds_cnn" in float, "ds_cnn-i8" and "ds_cnn-u8" quantised."""
    of, _, kind = name.partition("-")
    if not kind:
        path.write_bytes(FLOAT[of]().SerializeToString())
        return
    types: Any = import_module("onnxruntime.quantization").QuantType
    given = {"activation_type": getattr(types, ACTIVATIONS[kind]), "weight_type": types.QInt8}
    statically_quantised("QDQ", per_channel=True, **given)(FLOAT[of](), path)


NAMES: Mapping[str, tuple[str, ...]] = {
    "float": tuple(FLOAT),
    "int8": tuple(f"{n}-{kind}" for kind in ACTIVATIONS for n in FLOAT),
}
"""Of all models, in float and in bytes."""
