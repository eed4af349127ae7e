"""Every op: its override equals its derivation, it survives its text, and numpy or ONNX's reference agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from dlc.base.types import Type, f32, i64
from dlc.graph import Input, Op, evaluate, parse_graph, print_graph, verify
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.kernel.evaluate import run_kernel
from dlc.ops import elementwise, index, linear, pool, reduce, shape
from dlc.plugins.builtin import dlc_ops
from dlc.verify.kit.ops import derived, graph_of
from tests.ops.samples import feed, samples

Array = Any

SAMPLES: list[Op] = list(samples())
CLASSES = {cls.text_name: cls for cls in dlc_ops()}


def close(got: Array, expected: Array) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    else:
        np.testing.assert_array_equal(got, expected)


def test_every_op_has_a_sample_and_a_docstring() -> None:
    sampled = {type(op).text_name for op in SAMPLES}
    assert set(CLASSES) - sampled == set()
    assert [name for name, cls in CLASSES.items() if not inspect.getdoc(cls)] == []


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.text_name}-{op.type}")
def test_the_override_equals_the_derivation(op: Op) -> None:
    values = feed(op)
    arrays = [values[x.name] for x in op.operands if isinstance(x, Input)]
    got = evaluate_ops((op,), dict(zip(op.operands, arrays, strict=True)))[0]
    close(got, derived(op, arrays))


@pytest.mark.parametrize(
    "op", [op for op in SAMPLES if op.expansion is None], ids=lambda op: f"{op.text_name}-{op.type}"
)
def test_a_kernel_follows_from_the_attributes_and_the_types_of_the_operands(op: Op) -> None:
    """`lower` uses the kernel of an earlier op for one that differs in nothing else."""
    same = {x.type: Input("same", x.type) for x in op.operands}
    assert op.with_operands([same[x.type] for x in op.operands]).kernel == op.kernel


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.text_name}-{op.type}")
def test_text_round_trip(op: Op) -> None:
    graph = graph_of(op)
    text = print_graph(graph)
    again = parse_graph(text, CLASSES)
    assert again.digest == graph.digest
    assert print_graph(again) == text
    assert verify(graph) == ()


def inp(*dims: int, name: str = "x") -> Input:
    return Input(name, Type(f32, dims))


ORACLES: list[tuple[Op, Callable[..., Any]]] = [
    (elementwise.Div(inp(3), inp(3, name="b")), np.divide),
    (reduce.ReduceMean(inp(2, 3), axes=(1,)), partial(np.mean, axis=1)),
    (reduce.ReduceMax(inp(2, 3), axes=(1,)), partial(np.max, axis=1)),
    (reduce.ArgMax(inp(4, 5), axis=1, keep=False), partial(np.argmax, axis=1)),
    (reduce.CumSum(inp(4, 5), axis=1), partial(np.cumsum, axis=1)),
    (linear.MatMul(inp(2, 1, 3, 4), inp(5, 4, 2, name="b")), np.matmul),
    (linear.Gemm(inp(3, 4), inp(4, 2, name="b")), np.matmul),
    (shape.Transpose(inp(2, 3, 4), perm=(1, 2, 0)), partial(np.transpose, axes=(1, 2, 0))),
    (shape.Reshape(inp(4, 6), to=(3, 8)), partial(np.reshape, shape=(3, 8))),
    (shape.Tile(inp(2, 3), repeats=(2, 2)), partial(np.tile, reps=(2, 2))),
    (
        shape.Pad(inp(3, 4), pads=(1, 2, 0, 3), mode="reflect"),
        partial(np.pad, pad_width=((1, 0), (2, 3)), mode="reflect"),
    ),
    (
        shape.Slice(inp(5, 6), starts=(4, 1), sizes=(3, 2), steps=(-2, 2)),
        itemgetter((slice(4, None, -2), slice(1, 5, 2))),
    ),
    (index.Trilu(inp(4, 5), k=1), partial(np.triu, k=1)),
    (pool.GlobalMaxPool(inp(2, 3, 4, 5)), partial(np.max, axis=(2, 3), keepdims=True)),
]


@pytest.mark.parametrize(("op", "oracle"), ORACLES, ids=[op.text_name for op, _ in ORACLES])
def test_numpy_agrees(op: Op, oracle: Any) -> None:
    values = feed(op)
    order = [values[x.name] for x in op.operands if isinstance(x, Input)]
    got = evaluate(graph_of(op), values)["y"]
    np.testing.assert_allclose(got, oracle(*order), rtol=1e-5, atol=1e-6)


REFUSED: list[tuple[Callable[[], Op], str]] = [
    (lambda: elementwise.Add(inp(2, 3), inp(4)), r"shapes do not broadcast: \[2, 3\] and \[4\]"),
    (lambda: linear.MatMul(inp(2, 3), inp(4, 5)), "inner dimensions differ: 3 and 4"),
    (lambda: linear.Conv(inp(1, 3, 8, 8), inp(4, 2, 3, 3)), "channels per group differ: 3 and 2"),
    (lambda: linear.Conv(inp(1, 3, 2, 2), inp(4, 3, 3, 3)), "a window of 3 does not fit into 2"),
    (lambda: shape.Reshape(inp(2, 3), to=(7,)), r"f32\[2,3\] has 6 elements, \[7\] has 7"),
    (lambda: shape.Transpose(inp(2, 3), perm=(0, 0)), "is not a permutation"),
    (lambda: shape.Concat((inp(2, 3), inp(3, 3, name="b")), axis=1), "dimensions 0 differ: 2 and 3"),
    (lambda: shape.Slice(inp(4), starts=(2,), sizes=(3,)), "elements 2 to 4 of dimension 0"),
    (lambda: index.Gather(inp(4), inp(2, name="i")), "indices must be signed integers, not f32"),
    (lambda: reduce.ReduceSum(inp(4), axes=(1,)), "axes"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_shapes_that_do_not_fit_are_refused_with_the_numbers(make: Callable[[], Op], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make()


def test_an_index_out_of_range_reads_inside_the_tensor() -> None:
    x, i = inp(4), Input("i", Type(i64, (3,)))
    op = index.Gather(x, i)
    feeds = {"x": np.arange(4, dtype=np.float32), "i": np.array([9, -1, -99])}
    assert evaluate(graph_of(op), feeds)["y"].tolist() == [3, 3, 0]
    assert run_kernel(op.kernel, [feeds["x"], feeds["i"]])[0].tolist() == [3, 3, 0]
