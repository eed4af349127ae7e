"""Losses at the points where conventions differ: nothing that counts, labels that are no class, infinite scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC

from dlc.base.types import DType, Type, f32, f64, i64
from dlc.graph import Input, Op, evaluate_ops, toposort
from dlc.graph.gradient import gradients
from dlc.kernel.define import ShapeError
from dlc.ops import loss as ls
from tests.backend_c.harness import Compiled

Array = Any
INF, NAN = np.inf, np.nan
S = [[0.0, np.log(3)], [np.log(3), 0.0], [0.0, 0.0]]
"""Scores whose softmax is 1/4, 3/4; 3/4, 1/4; 1/2, 1/2."""


def x(*shape: int, name: str = "x", dtype: DType = f64) -> Input:
    return Input(name, Type(dtype, shape))


def scores() -> Input:
    return x(3, 2)


def labels(*shape: int) -> Input:
    return x(*(shape or (3,)), name="y", dtype=i64)


def outcome(op: Op, args: list[Array]) -> list[Array]:
    """The sum of the result, and its gradients with respect to every input of floating point."""
    inputs = [i for i in toposort((op,)) if isinstance(i, Input)]
    seed = Input("seed", op.type)
    env: dict[Op, Array] = {i: np.asarray(a, i.dtype.numpy) for i, a in zip(inputs, args, strict=True)}
    asked = [i for i in inputs if i.dtype.is_float]
    found = gradients((op,), (seed,), asked)
    return list(evaluate_ops((op, *found), {**env, seed: np.ones(op.shape)}))


LN2, LN4 = np.log(2), np.log(4)
TABLE: list[tuple[str, Op, list[Array], list[Array]]] = [
    (
        "an ignored row: gradient 0, and the mean is over the others",
        ls.CrossEntropy(scores(), labels(), ignore_index=-1),
        [S, [0, -1, 1]],
        [(LN4 + LN2) / 2, [[-0.375, 0.375], [0, 0], [0.25, -0.25]]],
    ),
    (
        "all rows ignored: loss nan, gradient 0",
        ls.CrossEntropy(scores(), labels(), ignore_index=1),
        [S, [1, 1, 1]],
        [NAN, np.zeros((3, 2))],
    ),
    (
        "all rows ignored, smoothed",
        ls.CrossEntropy(scores(), labels(), ignore_index=1, label_smoothing=0.1),
        [S, [1, 1, 1]],
        [NAN, np.zeros((3, 2))],
    ),
    (
        "all rows ignored: their sum is 0",
        ls.CrossEntropy(scores(), labels(), ignore_index=1, reduction="sum"),
        [S, [1, 1, 1]],
        [0, np.zeros((3, 2))],
    ),
    (
        "likelihoods that are all ignored",
        ls.NegativeLogLikelihood(scores(), labels(), ignore_index=1),
        [S, [1, 1, 1]],
        [NAN, np.zeros((3, 2))],
    ),
    (
        "an ignored row whose scores are no numbers",
        ls.CrossEntropy(scores(), labels(), ignore_index=5),
        [[[NAN, 1], [INF, 0], [0, 0]], [5, 5, 0]],
        [LN2, [[0, 0], [0, 0], [-0.5, 0.5]]],
    ),
    (
        "a class that cannot be",
        ls.CrossEntropy(x(1, 3), labels(1)),
        [[[-INF, 0, 0]], [1]],
        [LN2, [[0, -0.5, 0.5]]],
    ),
    (
        "a class that cannot be, one-hot",
        ls.CrossEntropy(x(1, 3), x(1, 3, name="q")),
        [[[-INF, 0, 0]], [[0, 1, 0]]],
        [LN2, [[0, -0.5, 0.5]], [[0, LN2, LN2]]],
    ),
    (
        "a label that cannot be",
        ls.CrossEntropy(x(1, 3), labels(1)),
        [[[-INF, 0, 0]], [0]],
        [INF, [[-1, 0.5, 0.5]]],
    ),
    ("scores far apart", ls.CrossEntropy(x(1, 2), labels(1)), [[[1e4, 0]], [1]], [1e4, [[1, -1]]]),
    ("scores far out", ls.CrossEntropy(x(1, 2), labels(1)), [[[1e300, 1e300]], [1]], [LN2, [[0.5, -0.5]]]),
    (
        "labels that are no class: loss nan, no part in the gradient",
        ls.CrossEntropy(scores(), labels(), reduction="sum"),
        [S, [2, -1, 0]],
        [NAN, [[0, 0], [0, 0], [-0.5, 0.5]]],
    ),
    (
        "labels that are no class, smoothed",
        ls.CrossEntropy(scores(), labels(), label_smoothing=0.5, reduction="sum"),
        [S, [2, -1, 0]],
        [NAN, [[0, 0], [0, 0], [-0.25, 0.25]]],
    ),
    (
        "likelihoods of labels that are no class",
        ls.NegativeLogLikelihood(scores(), labels(), reduction="sum"),
        [S, [1 << 40, -(1 << 40), 0]],
        [NAN, [[0, 0], [0, 0], [-1, 0]]],
    ),
    ("equal numbers", ls.MeanAbsoluteError(x(2), x(2, name="t")), [[1, 2], [1, 1]], [0.5, [0, 0.5], [0, -0.5]]),
    (
        "yes and no far out",
        ls.BinaryCrossEntropyWithLogits(x(4), x(4, name="t"), reduction="sum"),
        [[-50, 50, -1000, 1000], [0, 1, 1, 0]],
        [2000, [np.exp(-50), -np.exp(-50), -1, 1], [50, -50, 1000, -1000]],
    ),
]


@pytest.mark.parametrize(("op", "args", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_loss_and_its_gradient_are_those_that_are_chosen(op: Op, args: list[Array], expected: list[Array]) -> None:
    got = outcome(op, args)
    np.testing.assert_allclose(got[0].sum(), expected[0], rtol=1e-12)
    for own, wanted in zip(got[1:], expected[1:], strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-12, atol=1e-30)


def test_a_mean_with_class_weights_divides_by_their_sum() -> None:
    op = ls.CrossEntropy(scores(), labels(), x(2, name="w"))
    loss, by_scores, by_weights = outcome(op, [S, [0, 0, 1], [3.0, 1.0]])
    rows = np.array([LN4, np.log(4 / 3), LN2])
    np.testing.assert_allclose(loss, (rows * [3, 3, 1]).sum() / 7, rtol=1e-12)
    np.testing.assert_allclose(by_scores[2], [0.5 / 7, -0.5 / 7], rtol=1e-12)
    # d (Σ w l / Σ w) / dw of each class: Σ (l - loss) / Σ w over its rows
    np.testing.assert_allclose(by_weights, [(rows[:2] - loss).sum() / 7, (rows[2] - loss) / 7], rtol=1e-12)


def test_integers_and_their_one_hot_rows_have_one_loss() -> None:
    rng = np.random.default_rng(3)
    s, numbers = rng.standard_normal((5, 4, 3)), rng.integers(0, 4, (5, 3))
    hot = np.moveaxis(np.eye(4)[numbers], -1, 1)
    for smoothing in (0.0, 0.3):
        by_number = outcome(ls.CrossEntropy(x(5, 4, 3), labels(5, 3), label_smoothing=smoothing), [s, numbers])
        by_row = outcome(ls.CrossEntropy(x(5, 4, 3), x(5, 4, 3, name="q"), label_smoothing=smoothing), [s, hot])
        np.testing.assert_allclose(by_number[0], by_row[0], rtol=1e-12)
        np.testing.assert_allclose(by_number[1], by_row[1], rtol=1e-12, atol=1e-15)


REFUSED: list[tuple[Callable[..., Op], dict[str, Any], str]] = [
    (ls.CrossEntropy, {"labels": labels(2)}, r"labels i64\[2\] of scores f64\[3,2\] must have the shape \[3\]"),
    (ls.CrossEntropy, {"labels": labels(), "reduction": "median"}, "unknown reduction 'median': it is one of mean,"),
    (ls.CrossEntropy, {"labels": labels(), "label_smoothing": 1.5}, "label smoothing of 1.5: it is between 0 and 1"),
    (ls.CrossEntropy, {"labels": labels(), "weights": x(3)}, r"class weights f64\[3\] for 2 classes of f64\[3,2\]"),
    (
        ls.CrossEntropy,
        {"labels": x(3, 2, name="q"), "ignore_index": 1},
        "are probabilities: none of them can be ignored",
    ),
    (ls.CrossEntropy, {"labels": x(3, 2, name="q", dtype=f32)}, "must be of the type of the predictions"),
    (ls.NegativeLogLikelihood, {"labels": x(3, name="q")}, "labels must be integers, not f64"),
    (ls.Huber, {"target": x(3, 2, name="t"), "delta": 0.0}, "delta of 0.0: it is positive"),
    (ls.BinaryCrossEntropyWithLogits, {"target": x(3, 2), "pos_weight": x(3, name="w")}, "do not broadcast"),
    (ls.BinaryCrossEntropyWithLogits, {"target": x(3, 2), "pos_weight": x(1, 3, 2, name="w")}, "does not broadcast"),
]


@pytest.mark.parametrize(("kind", "fields", "message"), REFUSED)
def test_what_does_not_fit_is_refused_with_the_numbers(
    kind: Callable[..., Op], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        kind(scores(), **fields)


def test_scores_without_classes_are_refused_unless_there_are_no_rows() -> None:
    with pytest.raises(ShapeError, match="scores without classes"):
        ls.PickLabel(x(3, 0), labels(3))
    assert ls.PickLabel(x(0, 0), labels(0)).shape == (0,)


def test_in_c_a_label_that_is_no_class_reads_inside_the_tensor(tmp_path: Path) -> None:
    op = ls.PickLabel(x(6, 2, dtype=f32), labels(6), ignore_index=-9)
    compiled = Compiled([op.kernel], GENERIC, tmp_path)
    given = [np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 2, -1, 1 << 62, -9])]
    (got,) = compiled(0, given)
    np.testing.assert_array_equal(got, [0, 3, NAN, NAN, NAN, 0])
    np.testing.assert_array_equal(got, op.evaluate(*given))
