"""Softmax and cross-entropy with its gradient: the published `softmax` stage, section 4.6."""

from __future__ import annotations

import numpy as np

from dlc_backend_s2train.numerics import functions
from dlc_backend_s2train.numerics.operands import Array, OperandError


def softmax(logits: Array) -> Array:
    """logits fp32[n, K] → the probabilities of each row, fp32; the sums ascend by class in either mode."""
    if not all(logits.shape):
        raise OperandError(f"logits of {logits.shape} have no softmax")
    powers = functions.exp(logits - logits.max(axis=1, keepdims=True))
    total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
    return powers / total


def softmax_cross_entropy(logits: Array, labels: Array, scale: float) -> tuple[Array, Array]:
    """logits fp32[n, K], labels i32[n] → scale·(softmax - onehot)/m fp32[n, K], mean loss of m samples fp32[1].

    m counts the samples whose label is not negative; the others have the gradient 0. Without any the loss is NaN. Sums
    ascend by class, then by sample, in either mode.
    """
    n, classes = logits.shape
    if not n or not classes:
        raise OperandError(f"logits of {logits.shape} have no loss")
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        sample = int(wrong[0])
        raise OperandError(f"label {int(labels[sample])} of sample {sample} is no class of {classes}")
    counts = labels >= 0
    count = int(counts.sum())
    rows, labels = np.arange(labels.size), np.where(counts, labels, 0)
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = functions.exp(shifted)
    total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
    losses = np.where(counts, functions.log(total[:, 0]) - shifted[rows, labels], np.float32(0))
    mean = np.add.accumulate(losses, dtype=np.float32)[-1:] / np.float32(count)
    gradient = powers / total
    gradient[rows, labels] -= np.float32(1)
    return np.where(counts[:, None], gradient * np.float32(scale / max(count, 1)), np.float32(0)), mean
