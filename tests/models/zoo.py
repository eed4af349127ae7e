"""Networks to compile, as ONNX models: nine real architectures from the onnx package, and five kinds written here.

Equal arguments give equal models. Sizes are small by default, so that tests are quick; architectures are whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tests.models.transformers import bert, gpt
from tests.models.writing import Array, Writer

__all__ = ["LIGHT", "bert", "darts_cell", "expected", "gpt", "image", "light", "light_path", "mlp", "mobilenet_v2"]

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# Spread of the random logits before softmax, relative to what unit activations would give, so that probabilities are
# neither all alike nor one of them everything: averages shrink activations, residual sums let them grow.
_HEAD: Mapping[str, float] = {
    "bvlc_alexnet": 0.4,
    "densenet121": 0.4,
    "inception_v1": 0.35,
    "inception_v2": 0.2,
    "shufflenet": 0.02,
    "squeezenet": 0.8,
    "vgg19": 0.5,
}


def light_path(name: str) -> Path:
    """The model file in the onnx package: weights of one value each, so that it is small."""
    return _DATA / f"light_{name}.onnx"


def expected(name: str) -> Array:
    """The output that the onnx package expects for `image(name)`."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((_DATA / f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def image(model: onnx.ModelProto) -> dict[str, Array]:
    """The input as onnx's own test runner makes it: a ramp from 0 to 1."""
    stored = {t.name for t in model.graph.initializer}
    found: dict[str, Array] = {}
    for port in model.graph.input:
        if port.name not in stored:
            shape = tuple(d.dim_value or 1 for d in port.type.tensor_type.shape.dim)
            count = int(np.prod(shape))
            found[port.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    return found


def light(name: str, seed: int | None = None) -> onnx.ModelProto:
    """One of `LIGHT`: as it ships, or with a seed with random weights that no pass can fold away.

    Weights are drawn after He et al. (2015), so that activations keep their scale through the layers.
    """
    model = onnx.ModelProto()
    model.ParseFromString(light_path(name).read_bytes())
    return model if seed is None else _randomised(model, np.random.default_rng(seed), _HEAD.get(name, 1.0))


def _randomised(model: onnx.ModelProto, random: np.random.Generator, head: float) -> onnx.ModelProto:
    graph = model.graph
    stored = {t.name: tuple(t.dims) for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.data_type == onnx.TensorProto.INT64}
    made = {n.output[0]: tuple(map(int, shapes[n.input[0]])) for n in graph.node if n.op_type == "ConstantOfShape"}
    weights = stored | made
    roles = _roles(graph.node)
    last = [n for n in graph.node if n.op_type in ("Conv", "Gemm")][-1].input[1]
    last = _behind(graph.node).get(last, last)
    drawn = {name: _draw(random, *roles.get(name, ("", 1)), shape) for name, shape in weights.items()}
    drawn[last] *= np.float32(head)
    ints = [t for t in graph.initializer if t.name not in weights]
    nodes = [n for n in graph.node if n.op_type != "ConstantOfShape"]
    used = {operand for n in nodes for operand in n.input}
    inputs = [i for i in graph.input if i.name not in weights and i.name not in shapes]
    for repeated in (graph.node, graph.initializer, graph.input):
        del repeated[:]
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    graph.initializer.extend(t for t in ints if t.name in used)
    while drawn:  # one at a time: the largest model has 550 MB of weights
        name, values = drawn.popitem()
        if name in used:
            graph.initializer.append(numpy_helper.from_array(values, name))
    model.ir_version = 4  # from here on, an initializer need not be an input
    return model


def _roles(nodes: Sequence[onnx.NodeProto]) -> dict[str, tuple[str, int]]:
    """What a weight is for: (role, axis of its outputs)."""
    found: dict[str, tuple[str, int]] = {}
    behind = _behind(nodes)
    summed = {o for n in nodes if n.op_type == "Sum" for o in n.input}
    for n in nodes:
        operands = [behind.get(o, o) for o in n.input]
        match n.op_type:
            case "Conv" | "Gemm":
                turned = n.op_type == "Conv" or any(a.name == "transB" and a.i for a in n.attribute)
                found[operands[1]] = ("weight", 0 if turned else 1)
                found.update(dict.fromkeys(operands[2:], ("shift", 0)))
            case "BatchNormalization":
                # What is added to a sum of branches is small beside it, or every sum would double the variance.
                scale = "branch" if n.output[0] in summed else "scale"
                roles = (scale, "shift", "shift", "variance")
                found.update({o: (role, 0) for o, role in zip(operands[1:], roles, strict=True)})
            case "Mul":
                found[operands[1]] = ("scale", 0)
            case "Add":
                found[operands[1]] = ("shift", 0)
            case _:
                pass
    return found


def _behind(nodes: Sequence[onnx.NodeProto]) -> dict[str, str]:
    """What a weight is called after it took another shape → its own name."""
    return {n.output[0]: n.input[0] for n in nodes if n.op_type in ("Unsqueeze", "Reshape")}


def _draw(random: np.random.Generator, role: str, axis: int, shape: tuple[int, ...]) -> Array:
    if role == "variance":
        return random.random(shape, np.float32) + np.float32(0.5)
    values = random.standard_normal(shape, np.float32)
    match role:
        case "weight":
            outputs = [d for d in shape if d > 1][axis]
            values *= np.float32(np.sqrt(2 * outputs / np.prod(shape)))
        case "scale" | "branch":
            values = (1 + values * np.float32(0.1)) * np.float32(1 if role == "scale" else 0.4)
        case _:
            values *= np.float32(0.1)
    return values


def mlp(batch: int = 1, sizes: Sequence[int] = (64, 128, 96, 10), seed: int = 0) -> onnx.ModelProto:
    """Dense layers with ReLU between them, as Gemm with the weights transposed, and a softmax: x[batch, sizes[0]]."""
    w = Writer(seed)
    x = "x"
    for k, (inner, outer) in enumerate(itertools.pairwise(sizes)):
        x = w.op("Gemm", x, w.weight(outer, inner, fan_in=inner, gain=2), w.normal(outer, scale=0.1), transB=1)
        if k < len(sizes) - 2:
            x = w.op("Relu", x)
    y = w.op("Softmax", x, axis=-1, name="probabilities")
    return w.model("mlp", {"x": (np.float32, (batch, sizes[0]))}, {y: (np.float32, (batch, sizes[-1]))})


# Sandler et al. (2018), table 2: expansion, channels, repeats, stride of the first.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(
    batch: int = 1, size: int = 96, width: float = 0.35, classes: int = 100, seed: int = 0
) -> onnx.ModelProto:
    """MobileNetV2 with inverted residuals, batch normalisation and ReLU6 as Clip: image[batch, 3, size, size].

    Args:
        size: Height and width of the image.
        width: Multiplies the channels; 1.0 is the network of the paper.
    """
    w = Writer(seed)

    def channels(count: int) -> int:
        """Scaled, to a multiple of eight, as the paper's own code does it."""
        scaled = max(8, int(count * width + 4) // 8 * 8)
        return scaled + 8 if scaled < 0.9 * count * width else scaled

    def conv(x: str, inner: int, outer: int, kernel: int, stride: int, group: int = 1, clip: bool = True) -> str:
        fan_in = inner // group * kernel * kernel
        weight = w.weight(outer, inner // group, kernel, kernel, fan_in=fan_in, gain=2 if clip else 1)
        pad = kernel // 2
        x = w.op("Conv", x, weight, group=group, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        shift, mean = w.normal(outer, scale=0.1), w.normal(outer, scale=0.1)
        x = w.op("BatchNormalization", x, w.normal(outer, scale=0.1, around=1), shift, mean, w.positive(outer))
        return w.op("Clip", x, w.constant(0, np.float32), w.constant(6, np.float32)) if clip else x

    now = channels(32)
    x = conv("image", 3, now, 3, 2)
    for expansion, count, repeats, first in _BLOCKS:
        after = channels(count)
        for stride in (first, *[1] * (repeats - 1)):
            wide = now * expansion
            y = conv(x, now, wide, 1, 1) if expansion > 1 else x
            y = conv(conv(y, wide, wide, 3, stride, group=wide), wide, after, 1, 1, clip=False)
            x = w.op("Add", x, y) if stride == 1 and now == after else y
            now = after
    last = max(1280, channels(1280))
    x = w.op("Flatten", w.op("GlobalAveragePool", conv(x, now, last, 1, 1)), axis=1)
    head = w.weight(classes, last, fan_in=last)
    y = w.op("Gemm", x, head, w.normal(classes, scale=0.1), transB=1, name="logits")
    return w.model("mobilenet_v2", {"image": (np.float32, (batch, 3, size, size))}, {y: (np.float32, (batch, classes))})


def darts_cell(batch: int = 1, channels: int = 36, size: int = 28, seed: int = 0) -> onnx.ModelProto:
    """The normal cell of DARTS_V2 (Liu et al., 2019) between pointwise convolutions: a, b[batch, channels, size, size].

    Four nodes are sums of two ways each, separable (twice) or dilated convolutions or nothing; the cell concatenates
    them, and the first of them is read by the last as well.
    """
    w = Writer(seed)

    def conv(x: str, inner: int) -> str:
        return w.op("Conv", x, w.weight(channels, inner, 1, 1, fan_in=inner))

    def separable(x: str, times: int = 2, dilation: int = 1) -> str:
        for _ in range(times):
            weight, x = w.weight(channels, 1, 3, 3, fan_in=9), w.op("Relu", x)
            around = [dilation] * 2
            x = conv(w.op("Conv", x, weight, group=channels, pads=around * 2, dilations=around), channels)
        return x

    a, b = conv("a", channels), conv("b", channels)
    first, second = (w.op("Add", separable(a), separable(b)) for _ in range(2))
    third, fourth = w.op("Add", separable(b), a), w.op("Add", a, separable(first, 1, 2))
    whole = w.op("Concat", first, second, third, fourth, axis=1)
    shape = (np.float32, (batch, channels, size, size))
    return w.model("darts_cell", {"a": shape, "b": shape}, {conv(w.op("Relu", whole), 4 * channels): shape})
