"""Quantised models run on integers: as onnxruntime's to one step of the output, with weights of one byte each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dlc
from dlc import Report
from dlc.base.types import i8, u8
from dlc.graph import Graph, evaluate
from dlc.ops.linear import ConvInteger, MatMulInteger
from dlc.passes.integers import Integers
from dlc.verify.reference import exact_session
from tests.frontend_onnx.building import model_of, parse
from tests.frontend_onnx.quantising import Feeds, feeds_of, read, statically_quantised
from tests.models.quantised_steps import GIVEN, Deviation, cut, exact, watched
from tests.models.writing import Writer

ort: Any = import_module("onnxruntime")


def network(seed: int = 3, channels: int = 12) -> onnx.ModelProto:
    """Convolutions with padding, strides and groups, a residual sum, pools and a dense layer."""
    w = Writer(seed)

    def conv(
        x: str, inner: int, outer: int, kernel: int = 3, stride: int = 1, act: str = "Relu", group: int = 1
    ) -> str:
        weight = w.weight(outer, inner // group, kernel, kernel, fan_in=inner // group * kernel * kernel, gain=2)
        sizes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = w.op("Conv", x, weight, w.normal(outer, scale=0.1), group=group, **sizes)
        return w.op(act, y) if act else y

    x = conv("image", 3, channels, stride=2)
    x = w.op("Relu", w.op("Add", conv(conv(x, channels, channels), channels, channels, 1, act=""), x))
    x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = conv(x, channels, channels, group=channels)
    x = w.op("Flatten", w.op("GlobalAveragePool", conv(x, channels, 20, 1)), axis=1)
    y = w.op("Gemm", x, w.weight(10, 20, fan_in=20), w.normal(10, scale=0.1), transB=1, name="y")
    return w.model("network", {"image": (np.float32, (1, 3, 16, 16))}, {y: (np.float32, (1, 10))})


def dense(seed: int = 4) -> onnx.ModelProto:
    """Two dense layers."""
    w = Writer(seed)
    x = w.op("Relu", w.op("Gemm", "x", w.weight(30, 24, fan_in=24), w.normal(30), transB=1))
    y = w.op("MatMul", x, w.weight(30, 9, fan_in=30), name="y")
    return w.model("dense", {"x": (np.float32, (5, 24))}, {y: (np.float32, (5, 9))})


def attention(seed: int = 5) -> onnx.ModelProto:
    """One block of attention: products of two activations, a softmax between them."""
    w = Writer(seed)

    def heads(x: str, perm: list[int]) -> str:
        made = w.op("MatMul", x, w.weight(32, 32, fan_in=32))
        return w.op("Transpose", w.reshape(made, 1, 12, 4, 8), perm=perm)

    q, k, v = heads("x", [0, 2, 1, 3]), heads("x", [0, 2, 3, 1]), heads("x", [0, 2, 1, 3])
    weights = w.op("Softmax", w.op("MatMul", q, k), axis=-1)
    joined = w.reshape(w.op("Transpose", w.op("MatMul", weights, v), perm=[0, 2, 1, 3]), 1, 12, 32)
    y = w.op("MatMul", joined, w.weight(32, 32, fan_in=32), name="y")
    return w.model("attention", {"x": (np.float32, (1, 12, 32))}, {y: (np.float32, (1, 12, 32))})


Form = tuple[str, str, str, bool]
"""Format, types of activations and weights, and whether each channel of weights has a scale of its own."""
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {"network": network, "dense": dense, "attention": attention}
PRODUCTS = ("Conv", "MatMul", "Gemm", "QLinearConv", "QLinearMatMul", "QGemm")
FORMS = [
    ("QDQ", "QUInt8", "QInt8", True),
    ("QDQ", "QInt8", "QInt8", False),
    ("QDQ", "QUInt8", "QUInt8", False),
    ("QOperator", "QUInt8", "QInt8", True),
    ("QOperator", "QInt8", "QInt8", False),
]


def quantised(name: str, form: Form, path: Path) -> onnx.ModelProto:
    """A model as onnxruntime's static quantiser writes it."""
    types: Any = import_module("onnxruntime.quantization").QuantType
    layout, x, w, per_channel = form
    options = {"per_channel": per_channel, "activation_type": types[x], "weight_type": types[w]}
    statically_quantised(layout, **options)(MODELS[name](), path)
    return read(path)


def step_of(model: onnx.ModelProto) -> float:
    """What a step of the output is worth: the scale of the last dequantisation."""
    last = next(n for n in model.graph.node if model.graph.output[0].name in n.output)
    scale = next(t for t in model.graph.initializer if t.name == last.input[1])
    return float(numpy_helper.to_array(scale).reshape(-1)[0])


def expected(path: Path, feeds: Feeds) -> Any:
    """What onnxruntime gives without optimisation, and without overflow on processors that have no VNNI."""
    return exact_session(ort, path).run(None, feeds)[0]


def integer_sums(graph: Graph) -> int:
    return sum(isinstance(op, (ConvInteger, MatMulInteger)) for op in graph.ops)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(map(str, f)))
@pytest.mark.parametrize("name", MODELS)
def test_results_are_within_one_step_of_onnxruntime(
    name: str, form: tuple[str, str, str, bool], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    model = quantised(name, form, path)
    products = sum(
        n.op_type in ("Conv", "MatMul", "Gemm", "QLinearConv", "QLinearMatMul", "QGemm") for n in model.graph.node
    )
    graph = Integers().run(parse(model), Report())
    assert integer_sums(graph) >= products - (form[2] == "QUInt8")  # groups whose weights have a zero point stay
    step, differing, size = step_of(model), 0, 0
    for seed in range(3):
        feeds = feeds_of(model, seed)
        (got,) = evaluate(graph, feeds).values()
        want = expected(path, feeds)
        steps = np.rint(np.abs(got - want) / step)
        assert steps.max() <= 1
        differing, size = differing + int(np.count_nonzero(steps)), size + steps.size
    assert differing <= 0.02 * size


@pytest.mark.parametrize("cpu", ["native", "generic"])
@pytest.mark.parametrize("name", MODELS)
def test_a_program_gives_what_its_graph_gives(name: str, cpu: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = quantised(name, FORMS[1], path)
    feeds, step = feeds_of(model, 7), step_of(model)
    program: Any = dlc.build(path, target=f"c{{cpu={cpu}}}", cache_dir=tmp_path / "cache", output=tmp_path / "out")
    (got,) = program(feeds).values()
    assert np.rint(np.abs(got - expected(path, feeds)) / step).max() <= 1


@pytest.mark.parametrize("name", MODELS)
def test_every_node_gives_the_nearest_bytes(name: str, tmp_path: Path) -> None:
    """From the same bytes: a step of difference only where the exact number lies as good as between two of them."""
    model = quantised(name, FORMS[0], tmp_path / "model.onnx")
    parts, first = cut(model), feeds_of(model, 2)
    names = [port.name for port in parts.graph.output]
    session = ort.InferenceSession(watched(model).SerializeToString(), providers=["CPUExecutionProvider"])
    whole = dict(zip(names, session.run(names, first), strict=True))
    feeds = {port.name: {**whole, **first}[port.name.removesuffix(GIVEN)] for port in parts.graph.input}
    got = evaluate(Integers().run(parse(parts), Report()), feeds)
    numbers = exact(parts, feeds)
    found = Deviation.total([Deviation.of(got[n], numbers[n]) for n in names])
    assert len(names) >= 3 and found.steps <= 1 and found.beyond < 1e-4 and found.differing <= 0.01 * found.elements


def test_weights_and_activations_take_a_byte(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = quantised("network", FORMS[0], path)
    dlc.build(path, target="c{cpu=x86-64-v3 weights=map}", cache_dir=tmp_path / "cache", output=tmp_path / "out")
    parameters = sum(
        int(np.prod(t.dims))
        for t in model.graph.initializer
        if t.data_type == onnx.TensorProto.INT8 and len(t.dims) > 1
    )
    (stored,) = (tmp_path / "out").glob("*weights*.bin")
    # Channels and columns are padded to words and panels; a bias and a scale for each channel take 8 bytes.
    assert stored.stat().st_size <= 1.5 * parameters + 12 * 200
    graph = Integers().run(parse(model), Report())
    sums = [op for op in graph.ops if isinstance(op, (ConvInteger, MatMulInteger))]
    assert {(op.operands[0].dtype, op.operands[1].dtype) for op in sums} == {(u8, i8)}


@pytest.mark.parametrize("seed", range(8))
def test_zero_points_and_borders_are_exact(seed: int) -> None:
    """Against sums in 64 bits of what the operators of the standard say, for all kinds of zero points."""
    rng = np.random.default_rng(seed)
    x_type, w_type = (np.int8 if signed else np.uint8 for signed in rng.integers(0, 2, 2))

    def integers(dtype: Any, *shape: int) -> Any:
        found = np.iinfo(dtype)
        return rng.integers(found.min, found.max + 1, shape).astype(dtype)

    channels, kernel, pads = int(rng.integers(1, 7)), int(rng.integers(1, 4)), [int(p) for p in rng.integers(0, 3, 4)]
    x, w = integers(x_type, 2, channels, 6, 5), integers(w_type, 5, channels, kernel, kernel)
    zero_x, zero_w = integers(x_type), integers(w_type)
    node = onnx.helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["y"], pads=pads)
    model = model_of([node], {"x": x}, ["y"], {"w": w, "zx": zero_x, "zw": zero_w})
    graph = Integers().run(parse(model), Report())
    assert integer_sums(graph) >= 1
    (got,) = evaluate(graph, {"x": x}).values()
    top, left, bottom, right = pads
    centred = np.pad(x.astype(np.int64) - int(zero_x), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(centred, (kernel, kernel), (2, 3))
    np.testing.assert_array_equal(got, np.einsum("ncijkl,fckl->nfij", windows, w.astype(np.int64) - int(zero_w)))


def test_without_the_pass_models_are_computed_in_floating_point(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    graph = parse(quantised("dense", FORMS[0], path))
    assert integer_sums(graph) == 0
    assert Integers().run(graph, Report()).digest == Integers().run(Integers().run(graph, Report()), Report()).digest
