"""Linear models and support vector machines (domain ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.linear import MatMul
from dlc.ops.reduce import ReduceSum
from dlc.ops.shape import Reshape
from dlc_frontend_onnx.forest import features
from dlc_frontend_onnx.node import Array, Node, constant, number
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.scores import ML, as_scores, best, labels_of, of_two, post
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


def _sums(node: Node, x: Op, rows: int, bias: str) -> Op:
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
    y = _sums(node, features(node.x()), node.int("targets", 1), "intercepts")
    return post(y, node.text("post_transform", "NONE"))


@onnx("LinearClassifier", domain=ML)
def linear_classifier(node: Node) -> tuple[Op, Op]:
    """The class with the highest score x · coefficientsᵀ + intercepts, and all scores."""
    node.ignore("multi_class")
    x = features(node.x())
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    kind = node.text("post_transform", "NONE")
    rows = len(node.floats("coefficients") or ()) // max(x.shape[1], 1)
    scores = _sums(node, x, rows, "intercepts")
    if rows == 1 and len(labels) == 2:
        return of_two(scores, labels, shares=False, kind=kind)
    if rows != len(labels):
        raise ShapeError(f"{rows} scores for {len(labels)} classes")
    return best(scores, labels), as_scores(post(scores, kind))


@onnx("SVMRegressor", domain=ML)
def svm_regressor(node: Node) -> Op:
    """y = Σ coefficient · kernel(x, support vector) + rho; its sign with one_class."""
    x, count = features(node.x()), node.int("n_supports")
    node.ignore("n_targets")
    kind = node.text("kernel_type", "LINEAR")
    rho = node.floats("rho") or ()
    if len(rho) != 1:
        raise Unsupported(f"{len(rho)} figures rho", MALFORMED)
    if count > 0:
        weights = np.array(node.floats("coefficients") or (), np.float64)
        if weights.size != count:
            raise ShapeError(f"{weights.size} coefficients for {count} support vectors")
        found = MatMul(_kernel(node, x, count, kind), constant(weights.reshape(-1, 1), x.dtype))
    else:
        node.ignore("support_vectors", "kernel_params")
        found = _sums(node, x, 1, "")
    y = e.Add(found, number(rho[0], found))
    if node.flag("one_class"):
        y = e.Where(e.Greater(y, number(0, y)), number(1, y), number(-1, y))
    return post(y, node.text("post_transform", "NONE"))


def _kernel(node: Node, x: Op, count: int, kind: str) -> Op:
    """[B, S]: how alike each row and each support vector are."""
    vectors: Array = np.array(node.floats("support_vectors") or (), np.float64)
    if vectors.size != count * x.shape[1]:
        raise ShapeError(f"{vectors.size} figures for {count} support vectors of {x.shape[1]} features")
    gamma, offset, degree = (*(node.floats("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
    vectors = vectors.reshape(count, -1)
    if kind == "RBF":
        apart = e.Sub(Reshape(x, to=(x.shape[0], 1, x.shape[1])), constant(vectors, x.dtype))
        squares = ReduceSum(e.Mul(apart, apart), axes=(2,))
        return e.Exp(e.Mul(squares, number(-gamma, x)))
    product = MatMul(x, constant(vectors.T, x.dtype))
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return e.Pow(e.Add(e.Mul(product, number(gamma, x)), number(offset, x)), number(int(degree), x))
        case "SIGMOID":
            return e.Tanh(e.Add(e.Mul(product, number(gamma, x)), number(offset, x)))
        case _:
            raise Unsupported(f"kernel_type {kind!r}", "LINEAR, POLY, RBF and SIGMOID are defined")
