"""Linear models (domain ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.linear import MatMul
from dlc_frontend_onnx.forest import features
from dlc_frontend_onnx.node import Node, constant
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.scores import ML, as_scores, best, labels_of, of_two, post


def sums(node: Node, x: Op, rows: int, bias: str) -> Op:
    """x · coefficientsᵀ + bias, with one row of coefficients for each result."""
    found = np.array(node.floats("coefficients") or (), np.float64)
    if rows < 1 or found.size != rows * x.shape[1]:
        raise ShapeError(f"{found.size} coefficients for {rows} results of {x.type}")
    y = MatMul(x, constant(found.reshape(rows, -1).T, x.dtype))
    added = node.floats(bias) or ()
    if not added:
        return y
    if len(added) not in (1, rows):
        raise ShapeError(f"{len(added)} {bias} for {rows} results")
    return e.Add(y, constant(added, x.dtype))


@onnx("LinearRegressor", domain=ML)
def linear_regressor(node: Node) -> Op:
    """y = x · coefficientsᵀ + intercepts."""
    y = sums(node, features(node.x()), node.int("targets", 1), "intercepts")
    return post(y, node.text("post_transform", "NONE"))


@onnx("LinearClassifier", domain=ML)
def linear_classifier(node: Node) -> tuple[Op, Op]:
    """The class with the highest score x · coefficientsᵀ + intercepts, and all scores."""
    node.ignore("multi_class")
    x = features(node.x())
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    kind = node.text("post_transform", "NONE")
    rows = len(node.floats("coefficients") or ()) // max(x.shape[1], 1)
    scores = sums(node, x, rows, "intercepts")
    if rows == 1 and len(labels) == 2:
        return of_two(scores, labels, shares=False, kind=kind)
    if rows != len(labels):
        raise ShapeError(f"{rows} scores for {len(labels)} classes")
    return best(scores, labels), as_scores(post(scores, kind))
