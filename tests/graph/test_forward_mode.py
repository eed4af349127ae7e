"""Forward mode is the transpose of reverse mode: ⟨J v, w⟩ = ⟨v, Jᵀ w⟩ for every op and for small nets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f64, i64
from dlc.graph import Constant, Input, Op, Splat, Tensor, toposort
from dlc.graph.forward_mode import jvp
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from dlc.ops.elementwise import Add, Cast, Exp, Floor, Mul, Relu, Sigmoid, Tanh
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.normalize import LayerNorm, Softmax
from dlc.ops.reduce import ReduceMean
from dlc.ops.shape import Reshape
from tests.graph.opaque import Opaque
from tests.ops.gradient_checks import IDS, SAMPLES, arguments, floats

Array = Any


def drawn(ops: Sequence[Op], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(op.shape), op.dtype.numpy) for op in ops]


def check(outputs: Sequence[Op], wrt: Sequence[Op], known: dict[Op, Array]) -> None:
    """The dot products of one direction with one cotangent, both ways round."""
    tangents = [Input(f"tangent{k}", x.type) for k, x in enumerate(wrt)]
    seeds = [Input(f"seed{k}", y.type) for k, y in enumerate(outputs)]
    forward, back = jvp(outputs, tangents, wrt), gradients(outputs, seeds, wrt)
    assert [dy.type for dy in forward] == [y.type for y in outputs]
    v, w = drawn(tangents, 1), drawn(seeds, 2)
    found = evaluate_ops((*forward, *back), {**known, **dict(zip((*tangents, *seeds), (*v, *w), strict=True))})
    along, against = found[: len(forward)], found[len(forward) :]
    left = [float((a * b).sum()) for a, b in zip(along, w, strict=True)]
    right = [float((a * b).sum()) for a, b in zip(v, against, strict=True)]
    size = sum(float(np.abs(a * b).sum()) for a, b in zip((*along, *v), (*w, *against), strict=True))
    assert abs(sum(left) - sum(right)) <= 1e-10 * max(1.0, size)


@pytest.mark.parametrize("op", [op for op in SAMPLES if floats(op)], ids=IDS)
def test_an_op(op: Op) -> None:
    known: dict[Op, Array] = dict(zip((x for x in op.operands if isinstance(x, Input)), arguments(op), strict=True))
    check((op,), tuple(dict.fromkeys(op.operands[k] for k in floats(op))), known)


X, W = Input("x", Type(f64, (3, 4))), Input("w", Type(f64, (4, 4)))


def test_nets() -> None:
    hidden = Tanh(MatMul(X, W))
    scale = Constant(Tensor.of(np.linspace(0.5, 1.5, 4)))
    mlp = Softmax(LayerNorm(Add(Gemm(hidden, W), X), scale))
    known: dict[Op, Array] = dict(zip((X, W), drawn((X, W), 3), strict=True))
    check((mlp, hidden), (X, W), known)
    image, kernel = Input("image", Type(f64, (2, 2, 6, 6))), Input("kernel", Type(f64, (3, 2, 3, 3)))
    features = Relu(Conv(image, kernel, pads=(1, 1, 1, 1)))
    net = ReduceMean(Sigmoid(Conv(features, Reshape(Exp(kernel), to=(2, 3, 3, 3)))), axes=(1, 2, 3))
    check((net,), (image, kernel), dict(zip((image, kernel), drawn((image, kernel), 4), strict=True)))


def test_it_is_the_difference_quotient() -> None:
    y, t = Mul(Exp(X), Tanh(X)), Input("t", X.type)
    x, v = drawn((X, t), 5)
    (dy,) = jvp((y,), (t,), (X,))
    (got,) = evaluate_ops((dy,), {X: x, t: v})
    ends = [evaluate_ops((y,), {X: x + step * v})[0] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(got, (ends[0] - ends[1]) / 2e-6, rtol=1e-8, atol=1e-8)


def test_a_direction_of_a_direction_is_a_second_derivative() -> None:
    t, s = Input("t", X.type), Input("s", X.type)
    (dy,) = jvp((Mul(X, Mul(X, X)),), (t,), (X,))
    (ddy,) = jvp((dy,), (s,), (X,))
    x, v, w = drawn((X, t, s), 6)
    (got,) = evaluate_ops((ddy,), {X: x, t: v, s: w})
    np.testing.assert_allclose(got, 6 * x * v * w, rtol=1e-12)


def test_what_does_not_depend_is_zero_and_an_input_moves_with_itself() -> None:
    t = Input("t", X.type)
    assert jvp((Exp(W), X, Floor(X)), (t,), (X,)) == (Splat(0.0, W.type), t, Splat(0.0, X.type))


def test_no_cotangent_is_left_and_names_are_free() -> None:
    u = Input("u0", X.type)
    (dy,) = jvp((Mul(u, Exp(u)),), (X,), (u,))
    assert {op.name for op in toposort((dy,)) if isinstance(op, Input)} == {"u0", "x"}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="1 values to differentiate by have 2 tangents"):
        jvp((X,), (X, X), (X,))
    with pytest.raises(ValueError, match="is f64"):
        jvp((X,), (W,), (X,))
    with pytest.raises(ValueError, match="only floats"):
        jvp((Cast(X, i64),), (X,), (X,))


def test_an_op_without_a_derivative_is_reported() -> None:
    with pytest.raises(DlcError, match="opaque, 1 node"):
        jvp((Opaque(X),), (X,), (X,))
