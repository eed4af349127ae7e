"""Scores of classes: what classifiers and regressors of the domain ai.onnx.ml do after their sums."""

from __future__ import annotations

import math
from typing import Final

from dlc.base.types import f32, i64
from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc.ops.index import Gather
from dlc.ops.normalize import Softmax
from dlc.ops.reduce import ArgMax, ReduceMax, ReduceSum
from dlc.ops.shape import Concat, Reshape
from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

ML: Final = "ai.onnx.ml"
POST: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Transforms of scores, by their numbers in TreeEnsemble."""


def post(scores: Op, kind: str) -> Op:
    """Scores [B, N] after a transform."""
    match kind:
        case "NONE":
            return scores
        case "LOGISTIC":
            return e.Sigmoid(scores)
        case "SOFTMAX":
            return Softmax(scores, axis=1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return _probit(scores)
        case _:
            raise Unsupported(f"post_transform {kind!r}", f"defined are {', '.join(POST)}")


def _softmax_zero(x: Op) -> Op:
    """Softmax in which scores of 0 stay 0; all are a half where the sum is 0."""
    top = ReduceMax(x, axes=(1,), keep=True)
    small = e.LessOrEqual(e.Abs(x), number(1e-7, x))
    parts = e.Where(small, e.Mul(x, e.Exp(e.Neg(top))), e.Exp(e.Sub(x, top)))
    total = ReduceSum(parts, axes=(1,), keep=True)
    nothing = e.Equal(total, number(0, x))
    return e.Where(nothing, number(0.5, x), e.Div(parts, e.Where(nothing, number(1, x), total)))


def _probit(x: Op) -> Op:
    """√2 · erf⁻¹(2x - 1), by Winitzki's approximation of 2008 with a = 0.147, which the standard's authors use."""
    y = e.Sub(e.Mul(x, number(2, x)), number(1, x))
    inner = e.Mul(e.Sub(number(1, x), y), e.Add(number(1, x), y))
    log = e.Log(inner)
    half = e.Add(e.Mul(log, number(0.5, x)), number(2 / (math.pi * 0.147), x))
    root = e.Sqrt(e.Sub(e.Mul(half, half), e.Mul(log, number(1 / 0.147, x))))
    size = e.Mul(e.Sqrt(e.Sub(root, half)), number(1.41421356, x))
    signed = e.Where(e.Less(y, number(0, x)), e.Neg(size), size)
    return e.Where(e.Equal(inner, number(0, x)), number(0, x), signed)


def labels_of(node: Node, numbers: str, texts: str) -> tuple[int, ...]:
    """The labels of classes; for texts their numbers, which makes the node's first result one of texts."""
    if named := node.texts(texts):
        node.gives_texts = True
        node.seen.add(numbers)
    found = node.values.texts.numbers(named) if named else node.ints(numbers) or ()
    if len(found) < 2:
        raise Unsupported(f"{len(found)} classes", MALFORMED if not found else "supported are two and more")
    return found


def best(scores: Op, labels: tuple[int, ...]) -> Op:
    """The label of the highest score of each row, of equal ones the first."""
    return Gather(constant(labels, i64), ArgMax(scores, axis=1, keep=False), axis=0)


def of_two(score: Op, labels: tuple[int, ...], shares: bool, kind: str) -> tuple[Op, Op]:
    """Labels and scores of two classes from the score [B, 1] of the second; `shares` are from 0 to 1.

    The other score is what is left of 1 for shares that are given as they are, else the opposite. The label is that of
    onnxruntime, which decides before the transform.
    """
    border = number(0.5 if shares else 0.0, score)
    second = Reshape(e.Greater(score, border), to=score.shape[:1])
    label = e.Where(second, constant(labels[1], i64), constant(labels[0], i64))
    rest = e.Sub(number(1, score), score) if shares and kind in ("NONE", "PROBIT") else e.Neg(score)
    return label, as_scores(post(Concat((rest, score), axis=1), kind))


def as_scores(y: Op) -> Op:
    """Classifiers give f32 whatever they compute with."""
    return cast(y, f32)
