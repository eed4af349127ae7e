"""Support vector machines (domain ai.onnx.ml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from dlc.base.types import f32, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.reduce import ReduceMax, ReduceSum
from dlc.ops.shape import Concat, Reshape, Transpose
from dlc_frontend_onnx.forest import features
from dlc_frontend_onnx.node import Array, Node, cast, constant, number
from dlc_frontend_onnx.ops.linear_models import sums
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.scores import ML, as_scores, best, labels_of, post
from dlc_frontend_onnx.tensors import check_count
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

ROUNDS: Final = 8
"""Iterations of the coupling of probabilities; libsvm stops when the error is small, which 3000 random sets of up to 8
classes were after 4 at most."""
COUPLED: Final = 16
"""Classes whose probabilities are coupled at most: the ops grow with them."""
CLOSE: Final = 0.005
"""libsvm's bound of the error, times the number of classes."""
SURE: Final = 1e-7


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
        found = MatMul(kernel_values(node, x, count, kind), constant(weights.reshape(-1, 1), x.dtype))
    else:
        node.ignore("support_vectors", "kernel_params")
        found = sums(node, x, 1, "")
    y = e.Add(found, number(rho[0], found))
    if node.flag("one_class"):
        y = e.Where(e.Greater(y, number(0, y)), number(1, y), number(-1, y))
    return post(y, node.text("post_transform", "NONE"))


def kernel_values(node: Node, x: Op, count: int, kind: str) -> Op:
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


@onnx("SVMClassifier", domain=ML)
def svm_classifier(node: Node) -> tuple[Op, Op]:
    """The class with the most votes or the highest score, and scores: of classes, of pairs of them, or probabilities.

    As onnxruntime does: a linear machine has one score for each class, else one machine for each pair votes for one of
    both; with prob_a and prob_b its score gives a probability, and these are coupled (Wu, Lin, Weng 2004, method 2).
    """
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    x, kind = features(node.x()), node.text("post_transform", "NONE")
    coefficients, rho = np.array(node.floats("coefficients") or (), np.float64), node.floats("rho") or ()
    counts, a, b = node.ints("vectors_per_class") or (), node.floats("prob_a") or (), node.floats("prob_b") or ()
    if not sum(counts):
        node.ignore("support_vectors", "kernel_params", "kernel_type")
        scores = sums(node, x, len(labels), "")
        scores = e.Add(scores, number(rho[0], scores)) if rho else scores
        return best(scores, labels), as_scores(post(scores, kind))
    pairs = len(labels) * (len(labels) - 1) // 2
    check_count(pairs * sum(counts), "the weights of all pairs")
    if (
        len(counts) != len(labels)
        or min(counts) < 0
        or len(rho) != pairs
        or len(a) != len(b)
        or len(a) not in (0, pairs)
    ):
        figures = f"{len(counts)} vectors_per_class, {len(rho)} rho, {len(a)} prob_a, {len(b)} prob_b"
        raise Unsupported(f"{figures} for {len(labels)} classes", MALFORMED)
    if coefficients.size != (len(labels) - 1) * sum(counts):
        raise ShapeError(f"{coefficients.size} coefficients for {sum(counts)} support vectors of {len(labels)} classes")
    machines = Machines(len(labels), counts)
    kernel = kernel_values(node, x, sum(counts), node.text("kernel_type", "LINEAR"))
    weights = machines.weights(coefficients.reshape(len(labels) - 1, -1))
    scores = e.Add(MatMul(kernel, constant(weights.T, x.dtype)), constant(rho, x.dtype))
    positive = e.Greater(scores, number(0, scores))
    label = best(machines.votes(positive), labels)
    if a:
        return label, as_scores(post(machines.probabilities(scores, a, b), kind))
    if len(labels) == 2:
        scores = Concat((e.Neg(scores), scores), axis=1)
    return label, as_scores(post(scores, kind))


@dataclass(frozen=True)
class Machines:
    """One machine for each pair of classes i < j, in order."""

    classes: int
    counts: Sequence[int]
    """Support vectors of each class."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The classes of each machine."""
        return [(i, j) for i in range(self.classes) for j in range(i + 1, self.classes)]

    def weights(self, coefficients: Array) -> Array:
        """[pairs, S] from [classes - 1, S]: pair (i, j) takes row j - 1 for the vectors of i, row i for those of j."""
        starts = [0, *accumulate(self.counts)]
        found: Array = np.zeros((len(self.pairs), starts[-1]))
        for k, (i, j) in enumerate(self.pairs):
            for row, own in ((j - 1, i), (i, j)):
                where = slice(starts[own], starts[own + 1])
                found[k, where] = coefficients[row, where]
        return found

    def votes(self, positive: Op) -> Op:
        """[B, classes] from [B, pairs]: how many machines chose each class; the first of two where positive."""
        first, second = (np.zeros((len(self.pairs), self.classes)) for _ in range(2))
        for k, (i, j) in enumerate(self.pairs):
            first[k, i], second[k, j] = 1, 1
        chosen = cast(positive, f32)
        return e.Add(
            MatMul(chosen, constant(first, f32)), MatMul(e.Sub(number(1, chosen), chosen), constant(second, f32))
        )

    def probabilities(self, scores: Op, a: Sequence[float], b: Sequence[float]) -> Op:
        """[B, classes]: sigmoid(-(score · a + b)) of each pair, coupled."""
        if self.classes > COUPLED:
            raise Unsupported(f"probabilities of {self.classes} classes", f"at most {COUPLED} are supported")
        n, x = self.classes, scores
        free = e.Add(e.Mul(x, constant(a, x.dtype)), constant(b, x.dtype))
        share = e.Clip(e.Sub(number(1, x), e.Sigmoid(free)), SURE, 1 - SURE)
        none = e.Mul(Reshape(ReduceSum(share, axes=(1,)), to=(x.shape[0], 1)), number(0, x))
        place = np.full((n, n), 2 * len(self.pairs))
        for k, (i, j) in enumerate(self.pairs):
            place[i, j], place[j, i] = k, len(self.pairs) + k
        every = Concat((share, e.Sub(number(1, x), share), none), axis=1)
        r = Reshape(Gather(every, constant(place.reshape(-1)), axis=1), to=(x.shape[0], n, n))
        return _coupled(r, n)


def _coupled(r: Op, n: int) -> Op:
    """[B, n] of [B, n, n]: the p that minimises Σᵢ Σⱼ (r[j, i] pᵢ - r[i, j] pⱼ)², by libsvm's iteration."""
    batch = r.shape[0]
    turned = Transpose(r, perm=(0, 2, 1))
    diagonal = ReduceSum(e.Mul(r, r), axes=(1,))
    one = constant(np.eye(n), r.dtype)
    q = e.Sub(e.Mul(Reshape(diagonal, to=(batch, n, 1)), one), e.Mul(r, turned))
    p: Op = constant(np.full((batch, n), 1 / n), r.dtype)
    running: Op | None = None
    for _ in range(ROUNDS):
        qp = Reshape(MatMul(q, Reshape(p, to=(batch, n, 1))), to=(batch, n))
        total = ReduceSum(e.Mul(p, qp), axes=(1,), keep=True)
        far = e.GreaterOrEqual(ReduceMax(e.Abs(e.Sub(qp, total)), axes=(1,), keep=True), number(CLOSE / n, r))
        running = far if running is None else e.And(running, far)
        found = p
        for t in range(n):
            found, qp, total = _moved(found, qp, total, q, diagonal, t)
        p = e.Where(running, found, p)
    return p


def _moved(p: Op, qp: Op, total: Op, q: Op, diagonal: Op, t: int) -> tuple[Op, Op, Op]:
    """p, q·p and p·q·p after a step along one coordinate."""
    batch, n = p.shape
    here = constant([t], i64)
    own = Gather(diagonal, here, axis=1)
    step = e.Div(e.Sub(total, Gather(qp, here, axis=1)), own)
    scale = e.Add(number(1, step), step)
    grown = e.Add(e.Mul(step, own), e.Mul(number(2, step), Gather(qp, here, axis=1)))
    total = e.Div(e.Add(total, e.Mul(step, grown)), e.Mul(scale, scale))
    p = e.Div(e.Add(p, e.Mul(step, constant(np.eye(n)[t], p.dtype))), scale)
    row = Reshape(Gather(q, here, axis=1), to=(batch, n))
    return p, e.Div(e.Add(qp, e.Mul(step, row)), scale), total
