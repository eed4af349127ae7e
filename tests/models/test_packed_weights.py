"""Weights of less than 8 bits: packed in the file and in memory, and the outputs are those of ONNX's reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
import pytest
from dlc_backend_c.runtime import Model
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.models.building import Bench
from tests.models.building import reference as runtime
from tests.models.llama import Llama
from tests.models.writing import Array

TYPES: dict[str, tuple[Any, int]] = {
    "int4": (ml_dtypes.int4, 4),
    "uint4": (ml_dtypes.uint4, 4),
    "int2": (ml_dtypes.int2, 2),
    "uint2": (ml_dtypes.uint2, 2),
    "float4e2m1": (ml_dtypes.float4_e2m1fn, 4),
}
# Inner dimension, columns, rows, dimension of blocks, their size (0: one scale per column), zero points.
SHAPES: dict[str, tuple[int, int, int, int, int, bool]] = {
    "one row": (64, 96, 1, 0, 16, True),
    "many rows": (64, 96, 40, 0, 16, True),
    "without zero points": (64, 80, 20, 0, 32, False),
    "one scale for a column": (40, 48, 3, 1, 0, True),
    "columns before the inner dimension": (64, 50, 17, -1, 32, True),
    "columns before the inner dimension, one row": (64, 50, 1, -1, 32, False),
    "an odd number of columns": (33, 37, 19, 0, 11, True),
    "a tile and more": (512, 1040, 30, 0, 32, False),
}


def bits(name: str, random: np.random.Generator, *shape: int) -> Array:
    dtype, width = TYPES[name]
    return random.integers(0, 1 << width, shape, np.uint8).view(dtype)


def tensor(name: str, array: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def product(type: str, shape: str) -> tuple[onnx.ModelProto, int]:
    """x·dequantised weights, and the bytes that the weights take."""
    inner, columns, rows, axis, block, zero = SHAPES[shape]
    turned = axis == -1
    random = np.random.default_rng(0)
    stored = (columns, inner) if turned else (inner, columns)
    blocks = list(stored)
    if block:
        blocks[axis] //= block
    scales = tuple(blocks) if block else (columns,)
    q = bits(type, random, *stored)
    initial = [tensor("q", q), tensor("s", random.uniform(0.01, 0.1, scales).astype(np.float32))]
    zero = zero and type != "float4e2m1"
    if zero:
        initial.append(tensor("z", bits(type, random, *scales)))
    attributes: dict[str, Any] = {"axis": axis % 2, **({"block_size": block} if block else {})}
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"][: 2 + zero], ["w"], **attributes)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "w"], ["y"]))
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inner]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns]),
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], initial)
    per_byte = 8 // TYPES[type][1]
    count = int(np.prod(scales))
    return model(graph), q.size // per_byte + count * 4 + zero * count // per_byte


def model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


def reference(whole: onnx.ModelProto, **feeds: Array) -> Array:
    """The only output, as ONNX's own implementation has it."""
    evaluator: Any = ReferenceEvaluator(whole)
    (found,) = evaluator.run(None, feeds)
    return found


def weights(directory: Path) -> int:
    return sum(p.stat().st_size for p in directory.glob("*_weights.bin"))


@pytest.mark.parametrize("cpu", ["native", "generic"])
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_products(type: str, shape: str, cpu: str, bench: Bench, place: Path) -> None:
    whole, size = product(type, shape)
    built = bench.compile(whole, place, target=f"c{{cpu={cpu} flags=-O0}}")
    x = np.random.default_rng(1).standard_normal(SHAPES[shape][2::-2], np.float32)
    want = reference(whole, x=x)
    got = built({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    assert weights(built.directory) < size + 3 * 64 + 256


def test_weights_that_are_read_are_those_that_are_mapped(bench: Bench, place: Path) -> None:
    whole, size = product("uint4", "one row")
    built = bench.compile(whole, place, target="c{weights=map}")
    assert weights(built.directory) >= size
    x = np.random.default_rng(1).standard_normal((1, SHAPES["one row"][0]), np.float32)
    mapped, read = (Model.load(built.directory, w)(x=x)["y"] for w in ("mapped", "private"))
    assert np.array_equal(mapped, read)
    assert np.abs(mapped).max() > 0


@pytest.mark.parametrize("type", TYPES)
def test_rows_of_a_table(type: str, bench: Bench, place: Path) -> None:
    """An embedding, whose rows are chosen by an input."""
    random = np.random.default_rng(0)
    q = bits(type, random, 200, 33)
    initial = [tensor("q", q), tensor("s", random.uniform(0.01, 0.1, (200,)).astype(np.float32))]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
        helper.make_node("Gather", ["w", "i"], ["y"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 33])],
        initial,
    )
    built = bench.compile(model(graph), place, target="c{flags=-O0}")
    chosen = np.array([0, 199, 7, 7, 50])
    want = reference(model(graph), i=chosen)
    np.testing.assert_allclose(built({"i": chosen})["y"], want, rtol=1e-6)
    assert weights(built.directory) < q.size * TYPES[type][1] // 8 + 200 * 4 + 256


@pytest.mark.parametrize("type", TYPES)
def test_constants_that_are_outputs(type: str, bench: Bench, place: Path) -> None:
    """A constant, and a value that is moved beside it, in elements of a byte each."""
    random = np.random.default_rng(0)
    code = int(helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[type][0])))
    q = bits(type, random, 7, 5)
    nodes = [
        helper.make_node("Transpose", ["q"], ["a"], perm=[1, 0]),
        helper.make_node("Concat", ["q", "x"], ["b"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", code, [2, 5])],
        [helper.make_tensor_value_info("a", code, [5, 7]), helper.make_tensor_value_info("b", code, [9, 5])],
        [tensor("q", q)],
    )
    built = bench.compile(model(graph), place, target="c{flags=-O0}")
    x = bits(type, random, 2, 5)
    got = built({"x": x})
    assert np.array_equal(got["a"].view(np.uint8), np.ascontiguousarray(q.T).view(np.uint8))
    assert np.array_equal(got["b"].view(np.uint8), np.concatenate([q.view(np.uint8), x.view(np.uint8)]))


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3", "generic"])
@pytest.mark.parametrize("bits", ["symmetric", "zero points"])
def test_a_decode_step(bits: Literal["symmetric", "zero points"], cpu: str, bench: Bench, place: Path) -> None:
    """MatMulNBits of one row, in whole panels of columns and others: half a byte for each weight, nowhere in floats."""
    sizes = Llama(hidden=64, inner=160, vocabulary=100, length=1, past=5, block=32, bits=bits)
    whole = sizes.model()
    built = bench.compile(whole, place, target=f"c{{cpu={cpu} flags=-O0}}")
    random = np.random.default_rng(1)
    given: dict[str, Array] = {"input_ids": random.integers(0, sizes.vocabulary, (1, 1))}
    for name in (f"past_{k}_{kind}" for k in range(sizes.layers) for kind in ("key", "value")):
        given[name] = random.standard_normal((1, sizes.groups, sizes.past, sizes.depth), np.float32)
    path = place / "model.onnx"
    path.write_bytes(whole.SerializeToString())
    for name, want in runtime(path, given).items():
        np.testing.assert_allclose(built(given)[name], want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    stored = [t for t in whole.graph.initializer if t.data_type != TensorProto.INT64]
    assert weights(built.directory) < sum(len(t.raw_data) + 64 for t in stored)
