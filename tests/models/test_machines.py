"""Networks on machines other than this one: C with their vectors, registers and caches, on the processor at hand.

Compilers break vectors that a processor lacks into narrower ones, so every description runs everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dlc_backend_c.target
import numpy as np
import onnx
import pytest
from dlc_backend_c.target import CTarget

from tests.machines import MACHINES, target_of
from tests.models.building import Bench, Built, assert_close, reference
from tests.models.test_networks import inputs
from tests.models.writing import Writer
from tests.models.zoo import LIGHT, bert, expected, gpt, image, light, mlp, mobilenet_v2

# Their weights fill hundreds of megabytes; as they ship, each is one value.
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")


def product() -> onnx.ModelProto:
    """128 rows of 3,072 by 768 columns: row blocks end in tiles of another height."""
    w = Writer(7)
    y = w.op("MatMul", "x", w.weight(3072, 768, fan_in=3072))
    return w.model("product", {"x": (np.float32, (128, 3072))}, {y: (np.float32, (128, 768))})


def gpt_block() -> onnx.ModelProto:
    """A decoder block of GPT-2's width."""
    return gpt(length=128, hidden=768, layers=1, heads=12)


def detector() -> onnx.ModelProto:
    """CenterNet's head: peaks of a heat map survive pooling, the best places are looked up in other maps."""
    w = Writer(9)
    same: Mapping[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    trunk = w.op("Relu", w.op("Conv", "x", w.weight(24, 8, 3, 3, fan_in=72), w.normal(24), **same))
    heat = w.op("Sigmoid", w.op("Conv", trunk, w.weight(4, 24, 1, 1, fan_in=24), w.normal(4)))
    peaks = w.op("Cast", w.op("Equal", heat, w.op("MaxPool", heat, **same)), to=onnx.TensorProto.FLOAT)
    flat = w.reshape(w.op("Mul", heat, peaks), 1, -1)
    scores, places = w.ops("TopK", flat, w.constant([20]), count=2, axis=1)
    where = w.op("Mod", places, w.constant(18 * 14))
    offsets = w.reshape(w.op("Conv", trunk, w.weight(2, 24, 3, 3, fan_in=216), **same), 1, 2, -1)
    both = w.op("Expand", w.op("Unsqueeze", where, w.constant([1])), w.constant([1, 2, 20]))
    boxes = w.op("GatherElements", offsets, both, axis=2)
    outputs = {scores: (np.float32, (1, 20)), places: (np.int64, (1, 20)), boxes: (np.float32, (1, 2, 20))}
    return w.model("detector", {"x": (np.float32, (1, 8, 18, 14))}, outputs)


def dense_block() -> onnx.ModelProto:
    """Layers of DenseNet: each normalises all channels before it, in front of two convolutions, and appends its own."""
    w = Writer(11)

    def normalised(x: str, c: int) -> str:
        norm = w.op("BatchNormalization", x, w.normal(c, around=1, scale=0.1), w.normal(c), w.normal(c), w.positive(c))
        return w.op("Relu", norm)

    y, channels = "x", 24
    for _ in range(3):
        narrow = w.op("Conv", normalised(y, channels), w.weight(32, channels, 1, 1, fan_in=channels))
        same: Mapping[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        new = w.op("Conv", normalised(narrow, 32), w.weight(16, 32, 3, 3, fan_in=288), **same)
        y, channels = w.op("Concat", y, new, axis=1), channels + 16
    halved = w.op("Conv", normalised(y, channels), w.weight(36, channels, 1, 1, fan_in=channels))
    y = w.op("AveragePool", halved, kernel_shape=[2, 2], strides=[2, 2])
    return w.model("dense-block", {"x": (np.float32, (1, 24, 14, 14))}, {y: (np.float32, (1, 36, 7, 7))})


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    **{name: (lambda name=name: light(name, None if name in LARGE else 1)) for name in LIGHT if name != "densenet121"},
    "dense-block": dense_block,
    "mobilenet": mobilenet_v2,
    "bert": bert,
    "gpt": lambda: gpt(past=3, length=9),
    "mlp": lambda: mlp(batch=3),
    "product": product,
    "gpt-block": gpt_block,
    "detector": detector,
}


FEW: Mapping[str, tuple[str, ...]] = {
    "bvlc_alexnet": ("small-caches",),
    "inception_v1": ("wide-vectors",),
    "inception_v2": ("no-vectors",),
    "resnet50": ("small-caches", "wide-vectors"),
    "shufflenet": ("small-caches", "wide-vectors"),
    "squeezenet": ("no-vectors", "odd-registers"),
    "vgg19": ("wide-vectors",),
    "zfnet512": ("odd-registers",),
}
"""Machines of networks that take long. The others are built for all machines: MobileNet among them, and layers as those
of DenseNet, which has 120 of as many sizes. Kernels like theirs are tried on all in test_schedules.py;
benchmarks/graph_fuzz.py has random networks for several machines."""


@pytest.fixture(scope="module")
def network(request: pytest.FixtureRequest) -> Generator[tuple[str, onnx.ModelProto]]:
    yield request.param, NETWORKS[request.param]()


@pytest.fixture
def foreign(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The machine that `native` is for the time of a test."""
    target = target_of(MACHINES[request.param])

    def native(_: object) -> CTarget:
        return target

    monkeypatch.setattr(dlc_backend_c.target, "native", native)
    return request.param


@pytest.fixture
def built(
    network: tuple[str, onnx.ModelProto], foreign: str, bench: Bench, place: Path
) -> Generator[tuple[str, onnx.ModelProto, Built]]:
    name, model = network
    with TemporaryDirectory() as scratch:
        # What is tested is the text; only scalar loops take longer to run than to optimise.
        level = "-O0" if MACHINES[foreign].vector_bytes else "-O1"
        yield name, model, bench.compile(model, Path(scratch), target=f"c{{flags={level}}}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("network", "foreign"), [(n, m) for n in NETWORKS for m in FEW.get(n, tuple(MACHINES))], indirect=True
)
def test_the_outputs_are_those_of_onnxruntime(built: tuple[str, onnx.ModelProto, Built]) -> None:
    name, model, program = built
    if name in LARGE:
        (got,) = program(image(model)).values()
        np.testing.assert_allclose(got, expected(name), rtol=1e-3, atol=1e-7)
    else:
        feeds = inputs(program)
        assert_close(program(feeds), reference(program.source, feeds))
