"""Gradients of normalisations, attention and losses."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional as F

from tests.ops.torch_cases.case import Array, Case, Tensor, normal, positive

X: Final = normal(2, 4, 3, 2)
ALIKE: Final = np.array([[3.0, 3, 3], [1, 2, 4]])
"""A row without variance."""
EPSILON: Final = float(np.float32(1e-5))
"""The standard's default: attributes of its nodes are single precision, defaults as well."""


def batch_norm(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """By stored statistics, which have gradients here, as they have not in torch's own."""
    wide = [v.view(-1, 1, 1) for v in (scale, bias, mean, var)]
    return (x - wide[2]) / torch.sqrt(wide[3] + 0.25) * wide[0] + wide[1]


def by_batch(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> list[Tensor]:
    """By statistics of the batch, which move the running ones by a quarter."""
    y = F.batch_norm(x, None, None, scale, bias, True, 0.0, 0.25)
    seen = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    return [y, *(old * 0.75 + new * 0.25 for old, new in zip((mean, var), seen, strict=True))]


def local(x: Tensor, size: int, alpha: float, beta: float, bias: float) -> Tensor:
    """Division by the neighbouring channels; for even sizes torch has the larger half before, ONNX behind."""
    before = (size - 1) // 2
    square = F.pad((x * x).movedim(1, -1), (before, size - 1 - before)).unfold(-1, size, 1).sum(-1).movedim(-1, 1)
    return x / (bias + alpha / size * square) ** beta


def rms(x: Tensor, scale: Tensor) -> Tensor:
    """The last dimension."""
    return F.rms_norm(x, x.shape[-1:], scale, 0.25)


def standard(x: Tensor) -> Tensor:
    """Over all but the channels; the epsilon of the standard is added to the deviation."""
    centred = x - x.mean((0, 2, 3), True)
    return centred / ((x * x).mean((0, 2, 3), True) - x.mean((0, 2, 3), True) ** 2).sqrt().add(1e-9)


def attention(**figures: Any) -> Callable[..., Tensor]:
    """torch's own, by its composition, which knows double precision everywhere."""

    def same(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=0.25, **figures)

    return same


Q, K, V = normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)
CHANNELS: Final = (positive(4), normal(4))
NORMS: Final = (
    Case(
        "BatchNormalization", "at inference", (X, *CHANNELS, normal(4), positive(4)), batch_norm, {"epsilon": 0.25}, 15
    ),
    Case(
        "BatchNormalization",
        "in training mode",
        (X, *CHANNELS, normal(4), positive(4)),
        by_batch,
        {"epsilon": 0.25, "momentum": 0.75, "training_mode": 1},
        15,
        outputs=3,
    ),
    Case(
        "InstanceNormalization",
        "planes",
        (X, *CHANNELS),
        lambda x, s, b: F.instance_norm(x, weight=s, bias=b, eps=EPSILON),
    ),
    *(
        Case(
            "GroupNormalization",
            f"{n} groups",
            (X, *CHANNELS),
            lambda x, s, b, n=n: F.group_norm(x, n, s, b, EPSILON),
            {"num_groups": n},
        )
        for n in (1, 2, 4)
    ),
    Case("LayerNormalization", "last", (X, normal(2), normal(2)), lambda x, s, b: F.layer_norm(x, (2,), s, b, EPSILON)),
    Case(
        "LayerNormalization",
        "two",
        (X, normal(3, 2)),
        lambda x, s: F.layer_norm(x, (3, 2), s, eps=EPSILON),
        {"axis": 2},
    ),
    Case(
        "LayerNormalization",
        "a row of equal elements",
        (ALIKE, normal(3), normal(3)),
        lambda x, s, b: F.layer_norm(x, (3,), s, b, 0.25),
        {"epsilon": 0.25},
    ),
    Case("RMSNormalization", "last", (X, normal(2)), rms, {"epsilon": 0.25}, 23),
    Case(
        "LRN",
        "odd size",
        (X,),
        lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 2.0),
        {"size": 3, "alpha": 0.5, "bias": 2.0},
    ),
    Case("LRN", "even size", (X,), lambda x: local(x, 2, 0.5, 0.75, 1.0), {"size": 2, "alpha": 0.5}),
    # The standard's function has constants of single precision.
    Case(
        "MeanVarianceNormalization",
        "all but channels",
        (X.astype(np.float32),),
        standard,
        opset=13,
        rtol=1e-4,
        atol=1e-5,
    ),
)
DOUBLE: Final = {"softmax_precision": 11, "scale": 0.25}


def recurrence(x: Tensor, key: Tensor, value: Tensor, state: Tensor, decay: Tensor, rate: Tensor) -> list[Tensor]:
    """The gated delta rule token by token, one head, in the words of the standard."""
    found: list[Tensor] = []
    s = state[:, 0]
    for t in range(x.shape[1]):
        k, v, g = key[:, t, :, None], value[:, t, None, :], decay[:, t, :, None].exp()
        s = g * s
        s = s + rate[:, t, :, None] * k * (v - k.transpose(1, 2) @ s)
        found.append((x[:, t, None, :] @ s)[:, 0] * 0.5)
    return [torch.stack(found, 1), s[:, None]]


def causal(x: Tensor, w: Tensor, b: Tensor, past: Tensor) -> list[Tensor]:
    """A depthwise convolution of the past and the data."""
    whole = torch.cat([past, x], 2)
    return [F.silu(F.conv1d(whole, w, b, groups=w.shape[0])), whole[..., -past.shape[2] :]]


ATTENTION: Final = (
    Case("Attention", "heads", (Q, K, V), attention(), DOUBLE, 23),
    Case("Attention", "causal", (Q, Q, Q), attention(is_causal=True), {"is_causal": 1, **DOUBLE}, 23),
    Case("Attention", "a mask of numbers", (Q, K, V, normal(3, 5)), attention(), DOUBLE, 23),
    # The standard's functions of these two compute in single precision.
    Case(
        "LinearAttention",
        "gated delta rule",
        (normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 2), normal(2, 1, 4, 2), normal(2, 3, 4), positive(2, 3, 1)),
        recurrence,
        {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "gated_delta", "scale": 0.5},
        27,
        outputs=2,
        rtol=1e-5,
        atol=1e-5,
    ),
    Case(
        "CausalConvWithState",
        "with silu",
        (normal(2, 3, 4), normal(3, 1, 3), normal(3), normal(2, 3, 2)),
        causal,
        {"activation": "silu"},
        27,
        outputs=2,
        rtol=1e-5,
        atol=1e-5,
    ),
)


LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
SCORES, LABELS = normal(4, 3), np.array([0, 2, 1, 2])
GRID, PLACES = normal(2, 3, 2, 2), np.array([0, 2, 1, 2, 2, 1, 0, 0]).reshape(2, 2, 2)
WEIGHTS: Final = np.array([0.5, 2.0, 1.0])


def losses(op: str) -> list[Case]:
    """Reductions, ignored labels and class weights; log probabilities are data where the loss takes them."""
    fn = F.cross_entropy if op == LOSSES[0] else F.nll_loss

    def case(what: str, x: Array, labels: Array, *weights: Array, reduction: str = "mean", ignore: int = -100) -> Case:
        def same(x: Tensor, t: Tensor, w: Tensor | None = None) -> Tensor:
            return fn(x, t, w, reduction=reduction, ignore_index=ignore)

        attributes = {"reduction": reduction, **({} if ignore == -100 else {"ignore_index": ignore})}
        return Case(op, what, (x, labels, *weights), same, attributes, 13, fixed=(2,))

    return [
        *(case(f"{r}, one row each", SCORES, LABELS, reduction=r) for r in ("mean", "sum", "none")),
        *(case(f"{r}, of a grid", GRID, PLACES, reduction=r) for r in ("mean", "sum", "none")),
        *(case(f"{r}, weights", SCORES, LABELS, WEIGHTS, reduction=r) for r in ("mean", "sum", "none")),
        *(case(f"{r}, ignored labels", SCORES, LABELS, ignore=2, reduction=r) for r in ("mean", "sum", "none")),
        case("mean, ignored labels and weights of a grid", GRID, PLACES, WEIGHTS, ignore=2),
        case("mean, nothing but ignored labels", SCORES, np.full(4, 1), ignore=1),
        case("mean, a label out of range that is ignored", SCORES, np.array([0, -1, 1, -1]), ignore=-1),
    ]


CASES: Final[tuple[Case, ...]] = (*NORMS, *ATTENTION, *(case for op in LOSSES for case in losses(op)))
