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
    """logits fp32[n, K], labels i32[n] → scale·(softmax - onehot)/n fp32[n, K], mean loss fp32[1].

    Sums ascend by class, then by sample, in either mode.
    """
    n, classes = logits.shape
    if not n or not classes:
        raise OperandError(f"logits of {logits.shape} have no loss")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        sample = int(wrong[0])
        raise OperandError(f"label {int(labels[sample])} of sample {sample} is no class of {classes}")
    rows = np.arange(labels.size)
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = functions.exp(shifted)
    total = np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
    losses = functions.log(total[:, 0]) - shifted[rows, labels]
    mean = np.add.accumulate(losses, dtype=np.float32)[-1:] / np.float32(n)
    gradient = powers / total
    gradient[rows, labels] -= np.float32(1)
    return gradient * np.float32(scale / n), mean
