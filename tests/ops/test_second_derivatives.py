"""Gradients of gradients of ops equal differences of gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.graph import Input, Op
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from tests.ops.gradient_checks import IDS, SAMPLES, arguments, close, differences, floats, seed_of

Array = Any
SMOOTH = {
    *("tanh", "softmax", "log_softmax", "reduce_l2", "reduce_log_sum_exp", "mat_mul", "conv_transpose", "rms_norm"),
    *("pow", "max_pool", "gelu", "reduce_prod", "gather_elements", "scatter_elements", "cum_sum", "pad", "mish"),
    "batch_norm_training",
    *("cross_entropy", "target_cross_entropy", "negative_log_likelihood", "binary_cross_entropy_with_logits"),
}
TWICE = [op for op in SAMPLES if floats(op) and op.text_name in SMOOTH and op.type.size <= 130]


@pytest.mark.parametrize("op", TWICE, ids=IDS)
def test_second_derivatives_equal_differences_of_the_first(op: Op) -> None:
    args, seed, wrt = arguments(op), seed_of(op), floats(op)
    given, asked = Input("seed", op.type), [op.operands[k] for k in wrt]
    first = gradients((op,), (given,), asked)
    directions = [Input(f"direction{k}", g.type) for k, g in enumerate(first)]
    second = gradients(first, directions, asked)
    rng = np.random.default_rng(5)
    along: dict[Op, Array] = {d: rng.standard_normal(d.shape) for d in directions}
    env: dict[Op, Array] = {**dict(zip(op.operands, args, strict=True)), given: seed, **along}

    def value(xs: list[Array]) -> Array:
        found = evaluate_ops(first, {**env, **dict(zip(op.operands, xs, strict=True))})
        return np.concatenate([g.ravel() for g in found])

    weights = np.concatenate([along[d].ravel() for d in directions])
    for k, got in zip(wrt, evaluate_ops(second, env), strict=True):
        close(got, differences(value, args, weights, k), f"operand {k}")
