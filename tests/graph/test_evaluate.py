"""The interpreter of graphs is numpy, op by op; values live no longer than they are needed."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from dlc.base.types import Type, f32, f64, i64
from dlc.graph import Call, Constant, Graph, Input, Item, Op, Splat, Tensor, evaluate, evaluate_ops, make_graph
from dlc.graph.evaluate import is_constant
from dlc.graph.tensor import Array
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Add, Exp, Less, Mul, Neg, Relu, Sub, Where
from dlc.ops.linear import MatMul
from dlc.ops.reduce import ReduceMax, ReduceSum
from dlc.ops.shape import Concat, Reshape, Transpose

X = Input("x", Type(f64, (3, 4)))
W = Input("w", Type(f64, (4, 2)))
FEEDS: dict[str, Array] = {
    "x": np.linspace(-2, 2, 12).reshape(3, 4),
    "w": np.linspace(1, -1, 8).reshape(4, 2),
}


def test_a_graph_computes_what_numpy_computes() -> None:
    z = MatMul(X, W)
    e = Exp(Sub(z, ReduceMax(z, axes=(1,), keep=True)))
    graph = make_graph([X, W], {"y": Mul(e, e), "top": ReduceSum(e, axes=(1,)), "x": X, "t": Transpose(X, perm=(1, 0))})
    x, w = FEEDS["x"], FEEDS["w"]
    expected = np.exp(x @ w - (x @ w).max(1, keepdims=True))
    got = evaluate(graph, FEEDS)
    assert list(got) == ["y", "top", "x", "t"]
    np.testing.assert_allclose(got["y"], expected**2)
    np.testing.assert_allclose(got["top"], expected.sum(1))
    assert np.array_equal(got["x"], x)
    assert np.array_equal(got["t"], x.T)
    assert got["t"].flags.c_contiguous


def test_values_have_the_declared_type_and_shape() -> None:
    graph = make_graph([X], {"y": Less(X, Splat(0.0, Type(f64, ()))), "s": Reshape(X, to=(12,))})
    got = evaluate(graph, {"x": np.arange(12, dtype=np.float32)})  # another type and shape of the same size is taken
    assert got["y"].dtype == np.bool_
    assert got["y"].shape == (3, 4)
    assert got["s"].shape == (12,)


def test_a_missing_input_is_an_error() -> None:
    with pytest.raises(KeyError, match="w"):
        evaluate(make_graph([X, W], {"y": MatMul(X, W)}), {"x": FEEDS["x"]})


def test_several_results() -> None:
    kernel = parse_kernel("kernel(f32[2]) -> (f32[2], i64[]) { r0[i] = p0[i]*2.0 r1[] = 7 }")
    x = Input("x", Type(f32, (2,)))
    call = Call(kernel, (x,))
    got = evaluate(make_graph([x], {"a": Item(call, 0), "b": Item(call, 1)}), {"x": np.array([1, 2])})
    assert got["a"].tolist() == [2, 4]
    assert got["b"].tolist() == 7
    assert got["b"].dtype == np.int64


def test_what_is_known_is_not_computed() -> None:
    bad: Op = Neg(Input("never", Type(f64, (3, 4))))
    assert evaluate_ops([Relu(bad)], {bad: np.full((3, 4), 2.0)})[0].max() == 2
    assert evaluate_ops([bad], {bad: np.zeros((3, 4))})[0].max() == 0


def test_numpy_warnings_stay_quiet() -> None:
    zero = Splat(0.0, Type(f32, ()))
    with np.errstate(all="raise"):
        got = evaluate(make_graph([], {"y": Add(Exp(Splat(1e5, Type(f32, ()))), zero)}), {})
    assert got["y"] == np.inf


class Watched(np.ndarray[Any, Any]):
    """An array that can be watched by weak references."""


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    class Watch(Op):
        """y = x + 1, remembering every array it made."""

        x: Op

        def derive_types(self) -> tuple[Type, ...]:
            return self.x.types

        def evaluate(self, *args: Array) -> Any:
            nonlocal most
            made = (args[0] + 1).view(Watched)
            alive.append(weakref.ref(made))
            most = max(most, sum(r() is not None for r in alive))
            return made

    x = Input("x", Type(f64, (4,)))
    chain: Op = x
    for _ in range(20):
        chain = Watch(chain)
    (got,) = evaluate_ops([chain], {x: np.zeros(4)})
    assert got.tolist() == [20] * 4
    assert most <= 3


def test_where_does_not_mix_branches() -> None:
    a, b = Splat(float("nan"), Type(f32, (2,))), Constant(Tensor.of([1.0, 2.0], f32))
    condition = Constant(Tensor.of([False, False]))
    assert evaluate(make_graph([], {"y": Where(condition, a, b)}), {})["y"].tolist() == [1, 2]


def test_constancy() -> None:
    memo: dict[str, bool] = {}
    fixed = Exp(Splat(1.0, Type(f64, (3, 4))))
    assert is_constant(fixed, memo)
    assert not is_constant(Add(X, fixed), memo)
    assert not is_constant(X, memo)
    assert memo[fixed.digest]


def test_empty_and_scalar_values() -> None:
    none, one = Input("n", Type(f32, (0, 3))), Input("s", Type(i64, ()))
    graph = Graph((none, one), (Concat((none, none), axis=0), ReduceSum(none, axes=(0,)), Neg(one)), ("a", "b", "c"))
    got = evaluate(graph, {"n": np.zeros((0, 3)), "s": np.array(5)})
    assert got["a"].shape == (0, 3)
    assert got["b"].tolist() == [0, 0, 0]
    assert got["c"].shape == ()
    assert got["c"] == -5
