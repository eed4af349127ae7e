"""Losses of classifiers."""

from __future__ import annotations

from dlc.graph import Op
from dlc.ops import loss
from dlc.ops.loss import REDUCTIONS
from dlc.ops.normalize import LogSoftmax
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported


@onnx("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(node: Node) -> tuple[Op, Op | None]:
    """Cross-entropy of scores with integer labels, and the logarithms of the probabilities."""
    scores, (reduction, ignored) = node.x(0), options(node)
    y = loss.CrossEntropy(scores, node.x(1), node.optional(2), ignore_index=ignored, reduction=reduction)
    return y, LogSoftmax(scores, axis=1) if node.wants(1) else None


@onnx("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(node: Node) -> Op:
    """The logarithm of the probability of each label, negated."""
    reduction, ignored = options(node)
    x, labels, weights = node.x(0), node.x(1), node.optional(2)
    return loss.NegativeLogLikelihood(x, labels, weights, ignore_index=ignored, reduction=reduction)


def options(node: Node) -> tuple[str, int | None]:
    """Reduction, and the label to ignore."""
    reduction = node.text("reduction", "mean")
    if reduction not in REDUCTIONS:
        raise Unsupported(f"reduction {reduction}", MALFORMED)
    ignored = node.int("ignore_index")
    return reduction, ignored if node.has("ignore_index") else None
