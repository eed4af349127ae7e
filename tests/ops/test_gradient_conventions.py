"""Gradients of ops at the points where conventions differ between systems: what dlc chooses, as a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlc.base.types import DType, Type, bool_, f64, i64
from dlc.graph import Input, Op, evaluate_ops, toposort
from dlc.graph.gradient import gradients
from dlc.ops import elementwise as e
from dlc.ops import index as ix
from dlc.ops import linear as ln
from dlc.ops import normalize as nm
from dlc.ops import pool as pl
from dlc.ops import reduce as rd
from dlc.ops.pointwise import scalar

Array = Any
INF, NAN = np.inf, np.nan


def x(*shape: int, name: str = "x", dtype: DType = f64) -> Input:
    return Input(name, Type(dtype, shape))


def gradient(op: Op, args: list[Array]) -> list[Array]:
    """Gradients of the sum of the result with respect to every input of floating point."""
    inputs = [i for i in toposort((op,)) if isinstance(i, Input)]
    seed = Input("seed", op.type)
    env: dict[Op, Array] = {i: np.asarray(a, i.dtype.numpy) for i, a in zip(inputs, args, strict=True)}
    asked = [i for i in inputs if i.dtype.is_float]
    return list(evaluate_ops(gradients((op,), (seed,), asked), {**env, seed: np.ones(op.shape)}))


TABLE: list[tuple[str, Op, list[Array], list[Array]]] = [
    ("relu at 0", e.Relu(x(3)), [[-1, 0, 2]], [[0, 0, 1]]),
    ("abs at 0", e.Abs(x(1)), [[0]], [[0]]),
    ("sqrt at 0", e.Sqrt(x(1)), [[0]], [[INF]]),
    ("equal maximum", e.Maximum(x(1), x(1, name="y")), [[2], [2]], [[0.5], [0.5]]),
    ("equal minimum", e.Minimum(x(1), x(1, name="y")), [[2], [2]], [[0.5], [0.5]]),
    ("max of equal elements", rd.ReduceMax(x(3), axes=(0,)), [[1, 3, 3]], [[0, 0.5, 0.5]]),
    ("min of equal elements", rd.ReduceMin(x(3), axes=(0,)), [[1, 1, 3]], [[0.5, 0.5, 0]]),
    ("clip at its bounds", e.Clip(x(4), low=-1.0, high=1.0), [[-1, 1, 2, 0]], [[1, 1, 0, 1]]),
    ("clip with one bound", e.Clip(x(2), high=1.0), [[1, 2]], [[1, 0]]),
    ("leaky relu at 0", e.LeakyRelu(x(1), alpha=0.25), [[0]], [[0.25]]),
    ("prelu at 0", e.PRelu(x(1), x(1, name="s")), [[0], [0.25]], [[0.25], [0]]),
    ("elu at 0", e.Elu(x(1), alpha=2.0), [[0]], [[2]]),
    ("hard swish at its kinks", e.HardSwish(x(3)), [[-3, 0, 3]], [[0, 0.5, 1]]),
    ("hard sigmoid at its kinks", e.HardSigmoid(x(3), alpha=0.25), [[-2, 0, 2]], [[0, 0.25, 0]]),
    ("hard sigmoid with slope 1/6 at its kinks", e.HardSigmoid(x(2), alpha=1 / 6), [[-3, 3]], [[0, 0]]),
    ("pow: 0 to the power of 0", e.Pow(x(1), x(1, name="y")), [[0], [0]], [[0], [0]]),
    ("pow: 0 to the power of 0.5", e.Pow(x(1), x(1, name="y")), [[0], [0.5]], [[INF], [0]]),
    ("pow: a negative base", e.Pow(x(1), x(1, name="y")), [[-2], [2]], [[-4], [NAN]]),
    ("root of degree 3 at 0", e.Root(x(2), degree=3), [[0, 8]], [[0, 1 / 12]]),
    ("L2 norm of zeros", rd.ReduceL2(x(2), axes=(0,)), [[0, 0]], [[0, 0]]),
    ("L2 norm", rd.ReduceL2(x(2), axes=(0,)), [[3, 4]], [[0.6, 0.8]]),
    ("product with one zero", rd.ReduceProd(x(3), axes=(0,)), [[2, 0, 3]], [[0, 6, 0]]),
    ("product with two zeros", rd.ReduceProd(x(3), axes=(0,)), [[2, 0, 0]], [[0, 0, 0]]),
    ("log-sum-exp with -inf", rd.ReduceLogSumExp(x(2), axes=(0,)), [[-INF, 3]], [[0, 1]]),
    ("log-sum-exp of -inf only", rd.ReduceLogSumExp(x(2), axes=(0,)), [[-INF, -INF]], [[0, 0]]),
    (
        "softmax with -inf",
        e.Mul(nm.Softmax(x(3)), x(3, name="w")),
        [[-INF, 0, 0], [5, 1, 2]],
        [[0, -0.25, 0.25], [0, 0.5, 0.5]],
    ),
    *(
        (f"{what}, at a step and between", kind(x(4)), [[-1.5, -0.5, 0, 2]], [[0, 0, 0, 0]])
        for what, kind in (("round", e.Round), ("floor", e.Floor), ("ceil", e.Ceil), ("sign", e.Sign))
    ),
    ("mod", e.Mod(x(1), x(1, name="y")), [[5], [3]], [[1], [-1]]),
    ("mod with fmod=1", e.Mod(x(1), x(1, name="y"), fmod=True), [[-5], [3]], [[1], [1]]),
    ("acos at 1", e.Acos(x(1)), [[1]], [[-INF]]),
    ("softplus of large values", e.Softplus(x(3)), [[100, -100, 0]], [[1, np.exp(-100), 0.5]]),
    ("sigmoid of large values", e.Sigmoid(x(3)), [[-800, 0, 800]], [[0, 0.25, 0]]),
    ("celu of large values", e.Celu(x(2), alpha=2.0), [[-800, 800]], [[np.exp(-400), 1]]),
    ("celu at 0", e.Celu(x(1), alpha=2.0), [[0]], [[1]]),
    (
        "where: the operand that is not selected",
        e.Where(x(2, name="c", dtype=bool_), x(2), x(2, name="y")),
        [[True, False], [1, NAN], [INF, 2]],
        [[1, 0], [0, 1]],
    ),
    (
        # 0 · ∞: the root has been computed there, and its slope is infinite. Choose its operand, not its result.
        "where: a sqrt at 0 that is not selected",
        e.Where(e.Greater(x(2), scalar(0.0, f64)), e.Sqrt(x(2)), scalar(0.0, f64)),
        [[0, 4]],
        [[NAN, 0.25]],
    ),
    (
        "gather of an element twice",
        ix.Gather(x(3), x(4, name="i", dtype=i64)),
        [[1, 2, 3], [2, 0, 2, -1]],
        [[1, 0, 3]],
    ),
    (
        "scatter: of duplicate indices, the last one counts",
        ix.ScatterElements(x(3), x(2, name="i", dtype=i64), x(2, name="u")),
        [[1, 2, 3], [1, 1], [8, 9]],
        [[1, 0, 1], [0, 1]],
    ),
    (
        "scatter: a sum of duplicates",
        ix.ScatterNd(x(3), x(2, 1, name="i", dtype=i64), x(2, name="u"), reduce="add"),
        [[1, 2, 3], [[1], [1]], [8, 9]],
        [[1, 1, 1], [1, 1]],
    ),
    (
        "scatter: the maximum of three that are equal",
        ix.ScatterElements(x(1), x(2, name="i", dtype=i64), x(2, name="u"), reduce="max"),
        [[3], [0, 0], [3, 3]],
        [[1 / 3], [1 / 3, 1 / 3]],
    ),
    (
        "scatter: a product with a zero",
        ix.ScatterElements(x(1), x(2, name="i", dtype=i64), x(2, name="u"), reduce="mul"),
        [[0], [0, 0], [2, 4]],
        [[8], [0, 0]],
    ),
    ("max pool: the first of equal elements", pl.MaxPool(x(1, 1, 3), window=(2,)), [[[[1, 1, 1]]]], [[[[1, 1, 0]]]]),
    (
        "max pool with padding and a partial last window",
        pl.MaxPool(x(1, 1, 3), window=(2,), stride=(2,), pads=(1, 0), ceil=True),
        [[[[1, 0, 2]]]],
        [[[[1, 0, 1]]]],
    ),
    (
        "average pool: padding is not counted",
        pl.AveragePool(x(1, 1, 3), window=(2,), stride=(2,), pads=(1, 0), ceil=True),
        [[[[1, 0, 2]]]],
        [[[[1, 0.5, 0.5]]]],
    ),
    (
        "layer norm of equal elements",
        e.Mul(nm.LayerNorm(x(2), x(2, name="s"), epsilon=1e-4), x(2, name="w")),
        [[3, 3], [1, 1], [1, -1]],
        [[100, -100], [0, 0], [0, 0]],
    ),
    (
        "batch norm in training mode: the gradient of x sums to 0",
        e.Mul(nm.BatchNormTraining(x(2, 1), x(1, name="s"), x(1, name="b"), epsilon=3.0), x(2, 1, name="w")),
        [[[1], [3]], [1], [0], [[1], [0]]],
        [[[0.1875], [-0.1875]], [-0.5], [1], [[-0.5], [0.5]]],
    ),
    ("broadcasting", e.Mul(x(2, 1), x(3, name="y")), [[[1], [2]], [1, 2, 3]], [[[6], [6]], [3, 3, 3]]),
    ("einsum: a diagonal", ln.Einsum((x(2, 2),), equation="ii->i"), [[[1, 2], [3, 4]]], [[[1, 0], [0, 1]]]),
    ("einsum: a sum of squares", ln.Einsum((x(2), x(2)), equation="i,i->"), [[1, 2]], [[2, 4]]),
]


@pytest.mark.parametrize(("op", "args", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_gradient_is_the_one_that_is_chosen(op: Op, args: list[Array], expected: list[Array]) -> None:
    for got, wanted in zip(gradient(op, args), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15)
