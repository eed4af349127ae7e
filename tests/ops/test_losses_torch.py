"""Losses and their gradients equal PyTorch's in double precision, in every combination of options."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dlc.base.types import DType, Type, f64, i32, i64, u8
from dlc.graph import Input, Op, evaluate_ops
from dlc.graph.gradient import gradients
from dlc.ops import loss as ls

Array = Any
REDUCTIONS = ("mean", "sum", "none")
SHAPES = [(5, 4), (2, 4, 3), (2, 4, 1, 3)]
CLASSES = 4
RNG = np.random.default_rng(0)


def given(name: str, *shape: int, dtype: DType = f64) -> Input:
    return Input(name, Type(dtype, shape))


def agree(op: Op, values: Mapping[Input, Array], expected: torch.Tensor, wrt: Mapping[Input, torch.Tensor]) -> None:
    """The op's value is `expected`, and its gradients by `wrt` those that torch has for the tensors beside them."""
    seed = given("seed", *op.shape)
    upstream = RNG.standard_normal(op.shape)
    found = gradients((op,), (seed,), tuple(wrt))
    value, *derived = evaluate_ops((op, *found), {**values, seed: upstream})
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    theirs = torch.autograd.grad(expected, list(wrt.values()), torch.tensor(upstream))
    for x, own, other in zip(wrt, derived, theirs, strict=True):
        np.testing.assert_allclose(own, other.numpy(), rtol=1e-10, atol=1e-12, err_msg=x.name)


def variable(array: Array) -> torch.Tensor:
    return torch.tensor(array, requires_grad=True)


def drawn(shape: tuple[int, ...], ignore: int | None) -> tuple[Array, Array]:
    """Scores, and labels some of which are to be ignored."""
    labels = RNG.integers(0, CLASSES, (shape[0], *shape[2:]))
    if ignore is not None:
        labels.reshape(-1)[::3] = ignore
    return RNG.standard_normal(shape) * 3, labels


WEIGHTS = (None, RNG.uniform(0.5, 2, CLASSES))
IGNORED = (None, -100, 2)


@pytest.mark.parametrize("weights", WEIGHTS, ids=["even", "weighted"])
@pytest.mark.parametrize("ignore", IGNORED)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_of_integers(weights: Array, ignore: int | None, smoothing: float) -> None:
    for shape, reduction in product(SHAPES, REDUCTIONS):
        scores, labels = drawn(shape, ignore)
        s, y, w = given("s", *shape), given("y", *labels.shape, dtype=i64), given("w", CLASSES)
        op = ls.CrossEntropy(s, y, None if weights is None else w, 1, ignore, smoothing, reduction)
        x = variable(scores)
        expected = F.cross_entropy(
            x,
            torch.tensor(labels),
            None if weights is None else torch.tensor(weights),
            ignore_index=-100 if ignore is None else ignore,
            label_smoothing=smoothing,
            reduction=reduction,
        )
        agree(op, {s: scores, y: labels, w: weights}, expected, {s: x})


@pytest.mark.parametrize("weights", WEIGHTS, ids=["even", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("hot", [True, False], ids=["one-hot", "probabilities"])
def test_cross_entropy_of_probabilities(weights: Array, smoothing: float, hot: bool) -> None:
    for shape, reduction in product(SHAPES, REDUCTIONS):
        scores, labels = drawn(shape, None)
        q = np.moveaxis(np.eye(CLASSES)[labels], -1, 1) if hot else RNG.dirichlet(np.ones(CLASSES), labels.shape)
        q = np.ascontiguousarray(q if hot else np.moveaxis(q, -1, 1))
        s, y, w = given("s", *shape), given("y", *shape), given("w", CLASSES)
        op = ls.CrossEntropy(s, y, None if weights is None else w, 1, None, smoothing, reduction)
        x, t = variable(scores), variable(q)
        counts = None if weights is None else torch.tensor(weights)
        expected = F.cross_entropy(x, t, counts, label_smoothing=smoothing, reduction=reduction)
        agree(op, {s: scores, y: q, w: weights}, expected, {s: x, y: t})


@pytest.mark.parametrize("weights", WEIGHTS, ids=["even", "weighted"])
@pytest.mark.parametrize("ignore", IGNORED)
def test_negative_log_likelihood(weights: Array, ignore: int | None) -> None:
    for shape, reduction in product(SHAPES, REDUCTIONS):
        scores, labels = drawn(shape, ignore)
        s, y, w = given("s", *shape), given("y", *labels.shape, dtype=i64), given("w", CLASSES)
        op = ls.NegativeLogLikelihood(s, y, None if weights is None else w, 1, ignore, reduction)
        x, counts = variable(scores), None if weights is None else torch.tensor(weights)
        index = -100 if ignore is None else ignore
        expected = F.nll_loss(x, torch.tensor(labels), counts, ignore_index=index, reduction=reduction)
        agree(op, {s: scores, y: labels, w: weights}, expected, {s: x})


@pytest.mark.parametrize("dtype", [i32, u8], ids=str)
@pytest.mark.parametrize("axis", [0, 2, -1])
def test_classes_along_any_axis_and_labels_of_any_integer_type(axis: int, dtype: DType) -> None:
    shape = tuple(CLASSES if d == axis % 3 else 5 for d in range(3))
    scores, labels = RNG.standard_normal(shape), RNG.integers(0, CLASSES, (5, 5))
    s, y = given("s", *shape), given("y", 5, 5, dtype=dtype)
    target = torch.tensor(labels)
    for smoothing in (0.0, 0.2):
        x = variable(scores)
        expected = F.cross_entropy(x.movedim(axis, 1), target, ignore_index=3, label_smoothing=smoothing)
        op = ls.CrossEntropy(s, y, axis=axis, ignore_index=3, label_smoothing=smoothing)
        agree(op, {s: scores, y: labels.astype(dtype.numpy)}, expected, {s: x})
    x = variable(scores)
    expected = F.nll_loss(x.movedim(axis, 1), target)
    agree(ls.NegativeLogLikelihood(s, y, axis=axis), {s: scores, y: labels.astype(dtype.numpy)}, expected, {s: x})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4)], ids=str)
def test_differences(shape: tuple[int, ...], reduction: str) -> None:
    a, b = RNG.standard_normal(shape), RNG.standard_normal(shape)
    if shape:
        a.reshape(-1)[0] = b.reshape(-1)[0]  # where they are equal
        a.reshape(-1)[1:3] = b.reshape(-1)[1:3] + np.array([0.5, -0.5])  # and where Huber's loss with delta 0.5 changes
    x, t = given("x", *shape), given("t", *shape)
    cases: list[tuple[Op, Any, dict[str, float]]] = [
        (ls.MeanSquaredError(x, t, reduction), F.mse_loss, {}),
        (ls.MeanAbsoluteError(x, t, reduction), F.l1_loss, {}),
        *((ls.Huber(x, t, d, reduction), F.huber_loss, {"delta": d}) for d in (0.1, 0.5, 1.0, 10.0)),
    ]
    for op, loss, options in cases:
        u, v = variable(a), variable(b)
        agree(op, {x: a, t: b}, loss(u, v, reduction=reduction, **options), {x: u, t: v})


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weight", [None, (), (4,), (3, 1), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("hard", [True, False], ids=["yes-or-no", "probabilities"])
def test_binary_cross_entropy(weight: tuple[int, ...] | None, reduction: str, hard: bool) -> None:
    scores, labels = RNG.standard_normal((2, 3, 4)) * 5, RNG.uniform(size=(2, 3, 4))
    labels = np.round(labels) if hard else labels
    scores.reshape(-1)[:5] = [0, 30, -30, 700, -700]
    x, t = given("x", 2, 3, 4), given("t", 2, 3, 4)
    u, v = variable(scores), variable(labels)
    values: dict[Input, Array] = {x: scores, t: labels}
    pos, counts = None, None
    if weight is not None:
        pos = given("w", *weight)
        values[pos] = RNG.uniform(0.5, 3, weight)
        counts = torch.tensor(values[pos])
    op = ls.BinaryCrossEntropyWithLogits(x, t, pos, reduction)
    expected = F.binary_cross_entropy_with_logits(u, v, pos_weight=counts, reduction=reduction)
    agree(op, values, expected, {x: u, t: v})
