"""Connectionist temporal classification equals PyTorch's, value and gradient, on whatever labels there can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dlc.base.types import DType, Type, f16, f32, f64, i32, i64
from dlc.graph import Input, Op, evaluate_ops
from dlc.graph.gradient import gradients
from dlc.kernel.define import ShapeError
from dlc.ops import loss as ls
from dlc.ops.normalize import LogSoftmax

Array = Any
CLOSE = {f64: 1e-9, f32: 1e-5}
INFINITE = np.inf


def outcome(op: Op, x: Input, y: Input, scores: Array, labels: Array, upstream: Array) -> tuple[Array, Array]:
    """The value of an op, and the gradient by x."""
    seed = Input("seed", op.type)
    (by_scores,) = gradients((op,), (seed,), (x,))
    value, gradient = evaluate_ops((op, by_scores), {x: scores, y: labels, seed: upstream})
    return value, gradient


def of_torch(scores: Array, labels: list[list[int]], upstream: Array, **options: Any) -> tuple[Array, Array]:
    """What PyTorch has for scores[N,T,C] in double precision, and its gradient."""
    x = torch.tensor(scores.astype(np.float64), requires_grad=True)
    logs = F.log_softmax(x, 2).transpose(0, 1)
    lengths = torch.tensor([len(row) for row in labels])
    joined = torch.tensor([label for row in labels for label in row], dtype=torch.int64)
    loss = F.ctc_loss(logs, joined, torch.full((len(labels),), scores.shape[1]), lengths, **options)
    (gradient,) = torch.autograd.grad(loss, [x], torch.tensor(upstream.astype(np.float64)))
    return loss.detach().numpy(), gradient.numpy()


def padded(labels: list[list[int]], places: int, blank: int) -> Array:
    return np.array([[*row, *[blank] * (places - len(row))] for row in labels], np.int64)


MIXED = [[1, 2, 3], [2, 2], [], [3], [1, 1, 1], [2, 3, 2]]
"""Of several lengths, with labels that follow themselves, and none at all."""


@pytest.mark.parametrize("dtype", [f64, f32], ids=str)
@pytest.mark.parametrize("blank", [0, 4])
@pytest.mark.parametrize("times", [5, 9])
def test_values_and_gradients_are_those_of_torch(times: int, blank: int, dtype: DType) -> None:
    rng = np.random.default_rng(times)
    scores = (rng.standard_normal((len(MIXED), times, 5)) * 3).astype(dtype.numpy)
    x, y = Input("x", Type(dtype, scores.shape)), Input("y", Type(i64, (len(MIXED), 4)))
    for reduction, zero in (("mean", False), ("sum", True), ("none", False)):
        op = ls.Ctc(x, y, blank, zero, reduction)
        upstream = rng.standard_normal(op.shape).astype(dtype.numpy)
        got = outcome(op, x, y, scores, padded(MIXED, 4, blank), upstream)
        options = {"blank": blank, "reduction": reduction, "zero_infinity": zero}
        for own, theirs in zip(got, of_torch(scores, MIXED, upstream, **options), strict=True):
            np.testing.assert_allclose(own, theirs, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("seed", range(5))
def test_random_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, times, classes, places = (int(rng.integers(1, high)) for high in (5, 12, 6, 7))
    labels = [rng.integers(1, classes + 1, rng.integers(0, places + 1)).tolist() for _ in range(rows)]
    scores = rng.standard_normal((rows, times, classes + 1)) * 4
    x, y = Input("x", Type(f64, scores.shape)), Input("y", Type(i32, (rows, places)))
    upstream = rng.standard_normal(rows)
    op = ls.Ctc(x, y, zero_infinity=True, reduction="none")
    got = outcome(op, x, y, scores, padded(labels, places, 0).astype(np.int32), upstream)
    expected = of_torch(scores, labels, upstream, zero_infinity=True, reduction="none")
    for own, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-9, atol=1e-9)


TIGHT = [[1, 1], [1, 2], [2, 1, 2]]
"""Of two steps in time only the second has room for its labels: the first needs a blank between."""


@pytest.mark.parametrize("zero", [False, True])
def test_labels_that_do_not_fit_into_the_time(zero: bool) -> None:
    scores = np.random.default_rng(0).standard_normal((3, 2, 3))
    x, y = Input("x", Type(f64, scores.shape)), Input("y", Type(i64, (3, 3)))
    upstream = np.array([1.0, 2.0, 3.0])
    op = ls.Ctc(x, y, zero_infinity=zero, reduction="none")
    value, gradient = outcome(op, x, y, scores, padded(TIGHT, 3, 0), upstream)
    theirs, _ = of_torch(scores, TIGHT, upstream, zero_infinity=zero, reduction="none")
    np.testing.assert_allclose(value, theirs, rtol=1e-12)
    assert (value[[0, 2]] == (0 if zero else INFINITE)).all()
    # PyTorch's gradient of ∞ is whatever comes out; with zero_infinity it is 0.
    _, expected = of_torch(scores, TIGHT, upstream, zero_infinity=True, reduction="none")
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
    assert not gradient[[0, 2]].any()
    assert gradient[1].any()


def test_labels_behind_a_blank_do_not_count() -> None:
    scores = np.random.default_rng(1).standard_normal((2, 6, 4))
    x, y = Input("x", Type(f64, scores.shape)), Input("y", Type(i64, (2, 4)))
    op = ls.Ctc(x, y, reduction="none")
    got = outcome(op, x, y, scores, np.array([[1, 2, 0, 3], [0, 9, -1, 2]]), np.ones(2))
    for own, theirs in zip(got, of_torch(scores, [[1, 2], []], np.ones(2), reduction="none"), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [4, -1, 2**62, -(2**63)])
def test_a_label_that_is_no_class_makes_the_loss_nan_and_has_no_part_in_the_gradient(bad: int) -> None:
    scores = np.random.default_rng(2).standard_normal((2, 6, 4))
    x, y = Input("x", Type(f64, scores.shape)), Input("y", Type(i64, (2, 2)))
    op = ls.Ctc(x, y, reduction="none")
    value, gradient = outcome(op, x, y, scores, np.array([[1, bad], [1, 2]]), np.ones(2))
    assert np.isnan(value).tolist() == [True, False]
    assert not gradient[0].any()
    assert gradient[1].any()


@pytest.mark.parametrize("far", [80.0, 1e4, -INFINITE])
def test_classes_that_are_hardly_possible_or_not_at_all(far: float) -> None:
    scores = np.random.default_rng(3).standard_normal((2, 5, 4)).astype(np.float32)
    scores[0, :, 3] = -abs(far)  # a class that is not wanted
    scores[1, 2, :] = -abs(far)
    scores[1, 2, 1] = 0  # one way only, at that time
    labels = [[1, 2], [1, 2]]
    x, y = Input("x", Type(f32, scores.shape)), Input("y", Type(i64, (2, 2)))
    op = ls.Ctc(x, y, reduction="none")
    got = outcome(op, x, y, scores, padded(labels, 2, 0), np.ones(2, np.float32))
    finite = np.maximum(scores, -1e4)  # of -∞ PyTorch makes NaN; e^-10000 is 0 all the same
    for own, theirs in zip(got, of_torch(finite, labels, np.ones(2), reduction="none"), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-5)


def test_half_floats() -> None:
    scores = np.random.default_rng(4).standard_normal((3, 6, 4)).astype(np.float16)
    x, y = Input("x", Type(f16, scores.shape)), Input("y", Type(i64, (3, 3)))
    labels = [[1, 2, 3], [], [2, 2]]
    value, gradient = outcome(ls.Ctc(x, y), x, y, scores, padded(labels, 3, 0), np.float16(1))
    expected = of_torch(scores, labels, np.float64(1))
    np.testing.assert_allclose(value, expected[0], rtol=1e-2)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-2)


def test_of_logarithms_of_probabilities_it_is_the_same() -> None:
    scores = np.random.default_rng(5).standard_normal((2, 6, 4))
    x, y = Input("x", Type(f64, scores.shape)), Input("y", Type(i64, (2, 2)))
    given: dict[Op, Array] = {x: scores, y: np.array([[1, 2], [3, 0]])}
    once, twice = evaluate_ops((ls.Ctc(x, y), ls.Ctc(LogSoftmax(x, axis=2), y)), given)
    np.testing.assert_allclose(once, twice, rtol=1e-12)


MISFITS: list[tuple[type[Op], Type, Type, dict[str, Any], str]] = [
    (ls.Ctc, Type(f32, (2, 3)), Type(i64, (2, 2)), {}, "scores must be rows, steps in time and classes"),
    (ls.Ctc, Type(f32, (2, 0, 3)), Type(i64, (2, 2)), {}, "scores must be rows, steps in time and classes"),
    (ls.Ctc, Type(f32, (2, 1025, 3)), Type(i64, (2, 2)), {}, "1025 steps in time: at most 1024"),
    (ls.Ctc, Type(i64, (2, 4, 3)), Type(i64, (2, 2)), {}, "predictions must be floats"),
    (ls.Ctc, Type(f32, (2, 4, 3)), Type(i64, (3, 2)), {}, "must be integers, some for each row"),
    (ls.Ctc, Type(f32, (2, 4, 3)), Type(f32, (2, 2)), {}, "must be integers, some for each row"),
    (ls.Ctc, Type(f32, (2, 4, 3)), Type(i64, (2, 2)), {"blank": 3}, "blank 3 is none of the 3 classes"),
    (ls.Ctc, Type(f32, (2, 4, 3)), Type(i64, (2, 2)), {"reduction": "max"}, "unknown reduction"),
    (ls.CtcStep, Type(f32, (2, 4)), Type(i64, (2, 4)), {}, "skip of bool"),
]


@pytest.mark.parametrize(("kind", "scores", "labels", "options", "message"), MISFITS, ids=[m for *_, m in MISFITS])
def test_what_does_not_fit_is_refused(
    kind: Any, scores: Type, labels: Type, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        kind(Input("x", scores), Input("y", labels), **options)
