"""Gradients that stay named: what they say, and that they compute the same."""

import numpy as np
import pytest

from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f32
from dlc.driver.state_text import op_classes
from dlc.graph import Call, Cotangent, Graph, Input, Op, Splat, evaluate, parse_graph, print_graph
from dlc.graph.gradient import sweep
from dlc.ops.elementwise import Add, Mul, Relu
from dlc.ops.linear import Conv, Gemm
from dlc.ops.normalize import BatchNorm
from dlc.ops.pool import MaxPool
from dlc.ops.reduce import ReduceSum
from dlc.ops.shape import Reshape
from tests.test_contracts import registry

NAMED = frozenset({"conv", "gemm", "batch_norm", "relu", "max_pool"})
X = Input("x", Type(f32, (2, 3, 8, 8)))
W = Input("w", Type(f32, (4, 3, 3, 3)), "weight")
B = Input("b", Type(f32, (4,)), "weight")
M = Input("m", Type(f32, (64, 5)), "weight")
NORM = tuple(Input(name, Type(f32, (4,))) for name in ("scale", "shift", "mean", "var"))


def network() -> Op:
    """A convolution with a bias, a norm, a residual way, a pool and a matrix product."""
    y = BatchNorm(Conv(X, W, B, pads=(1, 1, 1, 1)), *NORM, epsilon=1e-5)
    y = Relu(Add(y, Relu(y)))
    y = Reshape(MaxPool(y, window=(2, 2), stride=(2, 2)), to=(2, 64))
    z = Gemm(y, M)
    return ReduceSum(Mul(z, z), axes=(0, 1))


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    made = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in (X, W, B, M, *NORM)}
    return made | {"var": np.abs(made["var"]) + np.float32(0.5)}


def gradients(named: frozenset[str]) -> Graph:
    loss = network()
    found = sweep((loss,), (Splat(1.0, loss.type),), (X, W, B, M), named=named)
    return Graph((X, W, B, M, *NORM), found.gradients, ("dx", "dw", "db", "dm"))


def test_named_gradients_compute_what_the_others_do() -> None:
    plain, named = gradients(frozenset()), gradients(NAMED)
    want, got = evaluate(plain, feeds()), evaluate(named, feeds())
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)
    kinds = [op.name for op in named.ops if isinstance(op, Cotangent)]
    assert sorted(set(kinds)) == sorted(NAMED)
    assert kinds.count("conv") == 3, "of the data, of the weights, of the bias"
    assert not any(isinstance(op, Cotangent) for op in plain.ops)


def test_ops_that_are_not_named_have_their_derivatives_written_out() -> None:
    some = gradients(frozenset({"conv"}))
    assert {op.name for op in some.ops if isinstance(op, Cotangent)} == {"conv"}
    assert any(isinstance(op, Call) for op in some.ops)


def test_named_gradients_print_and_parse() -> None:
    named = gradients(NAMED)
    again = parse_graph(print_graph(named), op_classes(registry()))
    assert again.digest == named.digest


def test_a_cotangent_of_an_op_that_was_rewritten_is_refused() -> None:
    rewritten = gradients(NAMED).rewrite(lambda op: Add(op.x, op.x) if isinstance(op, Relu) else None)
    left = next(op for op in rewritten.ops if isinstance(op, Cotangent) and op.name == "relu")
    with pytest.raises(DlcError, match="a gradient of relu is left, but the op itself has become add"):
        assert left.expansion
