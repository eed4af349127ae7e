"""What puts elements back to where a pooling or convolution took them from, against onnxruntime and PyTorch."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from building import compare, model_of, parse, runtime
from onnx import helper

from dlc import DlcError
from dlc.graph import evaluate

SEEDS = range(10)


def values(*shape: int, seed: int = 0) -> Any:
    """Numbers of which no two are equal: each window has one maximum."""
    count = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(count).reshape(shape) - count // 3).astype(np.float32)


def window(random: Random, rank: int) -> dict[str, Any]:
    """Attributes of a pooling that onnxruntime takes: pads are smaller than windows."""
    kernel = [random.randint(1, 3) for _ in range(rank)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [random.randint(1, 3) for _ in range(rank)]}
    if random.random() < 0.5:
        found["pads"] = [random.randint(0, (k - 1) // 2) for k in kernel * 2]
    if random.random() < 0.3:
        found["dilations"] = [random.randint(1, 2) for _ in range(rank)]
    if random.random() < 0.4:
        found["ceil_mode"] = 1
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_places_of_maxima(seed: int) -> None:
    """Of 1 to 3 dimensions, several samples and channels, in rows or columns."""
    random = Random(seed)
    rank = random.randint(1, 3)
    x = values(random.randint(1, 2), random.randint(1, 3), *(random.randint(5, 8) for _ in range(rank)), seed=seed)
    attributes: dict[str, Any] = {**window(random, rank), "storage_order": int(random.random() < 0.4)}
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], **attributes)
    compare(model_of([node], {"x": x}, ["y", "i"], opset=12), {"x": x}, runtime)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_pooling_took_goes_back(seed: int) -> None:
    """Also to odd sizes, which the windows do not cover, where indices are of what the pooling has read."""
    random = Random(seed)
    rank = random.randint(1, 3)
    x = values(random.randint(1, 2), random.randint(1, 3), *(random.randint(4, 9) for _ in range(rank)), seed=seed)
    figures = {k: v for k, v in window(random, rank).items() if k in ("kernel_shape", "strides", "pads")}
    pool = helper.make_node("MaxPool", ["x"], ["p", "i"], **figures)
    more = helper.make_node("Mul", ["p", "p"], ["q"])
    back = helper.make_node("MaxUnpool", ["q", "i", "shape"], ["y"], **figures)
    model = model_of([pool, more, back], {"x": x}, ["y"], {"shape": np.array(x.shape)}, opset=12)
    compare(model, {"x": x}, runtime)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (4, 9), (7, 6)])
def test_the_same_as_pytorch(size: tuple[int, int], ceil: bool) -> None:
    """Where windows reach beyond the data the shape is smaller than what they cover, which onnxruntime refuses."""
    x: Any = torch.tensor(values(1, 1, *size))
    y, places = F.max_pool2d(x, (2, 2), (2, 2), ceil_mode=ceil, return_indices=True)
    want = F.max_unpool2d(y, places, (2, 2), (2, 2), output_size=size)
    node = helper.make_node("MaxUnpool", ["y", "i", "s"], ["z"], kernel_shape=[2, 2], strides=[2, 2])
    feeds = {"y": y.numpy(), "i": places.numpy()}
    graph = parse(model_of([node], feeds, ["z"], {"s": np.array([1, 1, *size])}, opset=11))
    np.testing.assert_array_equal(evaluate(graph, feeds)["z"], want.numpy())


def test_of_two_elements_at_one_place_the_last_one_stays() -> None:
    x, at = values(1, 2, 6), np.array([0, 3, 3, 1, 0, 3, 15, 15, 14, 13, 14, 15]).reshape(1, 2, 6)
    node = helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[3], strides=[1])
    compare(model_of([node], {"x": x, "i": at}, ["y"], opset=11), {"x": x, "i": at}, runtime)


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (2, 1, 4, 4), (1, 1, 16), (1, 1, 4, -4)])
def test_other_samples_or_channels_are_refused(shape: tuple[int, ...]) -> None:
    x, at = values(1, 1, 2, 2), np.arange(4).reshape(1, 1, 2, 2)
    node = helper.make_node("MaxUnpool", ["x", "i", "s"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(DlcError, match=r"shape|unpools"):
        parse(model_of([node], {"x": x, "i": at}, ["y"], {"s": np.array(shape)}, opset=11))


@pytest.mark.parametrize("seed", SEEDS)
def test_transposed_convolutions(seed: int) -> None:
    """With an output shape, output padding, or both; automatic pads put an odd one to either end."""
    random = Random(seed)
    rank, group = random.randint(1, 3), random.choice((1, 1, 2))
    channels = group * random.randint(1, 2)
    x = values(random.randint(1, 2), channels, *(random.randint(2, 5) for _ in range(rank)), seed=seed) / 8
    kernel, stride = ([random.randint(1, 3) for _ in range(rank)] for _ in range(2))
    # Of a window that is smaller than its stride, SAME would have to pad by a negative number: onnxruntime pads by 0,
    # and gives another shape than the standard does.
    kernel = [max(k, s) for k, s in zip(kernel, stride, strict=True)]
    w = values(channels, random.randint(1, 3), *kernel, seed=seed + 1) / 8
    dilation = [random.randint(1, 2) for _ in range(rank)] if random.random() < 0.3 else [1] * rank
    attributes: dict[str, Any] = {"strides": stride, "dilations": dilation, "group": group}
    if random.random() < 0.5:
        attributes["output_padding"] = [random.randrange(s) for s in stride]
    extra = attributes.get("output_padding", [0] * rank)
    full = [
        (e - 1) * s + d * (k - 1) + 1 + o
        for e, s, d, k, o in zip(x.shape[2:], stride, dilation, kernel, extra, strict=True)
    ]
    match random.choice(("shape", "auto", "pads", "")):
        case "shape":
            attributes["output_shape"] = [random.randint(max(1, n - 2), n) for n in full]
            if random.random() < 0.6:
                attributes["auto_pad"] = random.choice(("SAME_UPPER", "SAME_LOWER"))
        case "auto":
            attributes["auto_pad"] = random.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        case "pads":
            attributes["pads"] = [random.randint(0, 1) for _ in range(2 * rank)]
        case _:
            pass
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    model = model_of([node], {"x": x}, ["y"], {"w": w}, opset=11)
    compare(model, {"x": x}, runtime)
