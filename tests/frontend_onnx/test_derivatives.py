"""Operators for derivatives that onnxruntime's training tools write, against PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from onnx import helper

from dlc import DlcError
from dlc.graph import evaluate
from tests.frontend_onnx.building import model_of, parse

Array = Any
torch: Any = import_module("torch")  # only partly typed
F = torch.nn.functional
Forward = Callable[[list[Any]], Any]
RNG = np.random.default_rng(3)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def by_torch(forward: Forward, dy: Array, *operands: Array) -> list[Array]:
    """The result of a function of a list of tensors, and the gradients by all of them that are float."""
    tensors: list[Any] = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in operands]
    y = forward(tensors)
    y.backward(torch.tensor(dy))
    grads = [t.grad.numpy() for t in tensors if t.grad is not None]
    return [y.detach().numpy(), *grads]


def imported(
    op: str, operands: Sequence[Array], outputs: int = 1, fixed: Sequence[int] = (), **attributes: Any
) -> list[Array]:
    """The results of a node of onnxruntime's domain; operands at `fixed` are constants."""
    names = [f"x{k}" for k in range(len(operands))]
    results = [f"y{k}" for k in range(outputs)]
    feeds = {n: v for k, (n, v) in enumerate(zip(names, operands, strict=True)) if k not in fixed}
    constants = {names[k]: operands[k] for k in fixed}
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    got = evaluate(parse(model_of([node], feeds, results, constants, domains=["com.microsoft"])), feeds)
    return [got[r] for r in results]


def close(got: Sequence[Array], want: Sequence[Array]) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


X, DY = f(3, 4, 5), f(3, 4, 5)


@pytest.mark.parametrize(("op", "approximate"), [("GeluGrad", "none"), ("FastGeluGrad", "tanh")])
def test_gelu(op: str, approximate: str) -> None:
    close(imported(op, [DY, X]), by_torch(lambda t: F.gelu(t[0], approximate=approximate), DY, X)[1:])
    bias = f(5)
    (dx,) = imported(
        op.replace("GeluGrad", "GeluGrad_dX").replace("Gelu", "BiasGelu", 1).replace("FastBias", "BiasFast"),
        [DY, X, bias],
    )
    close([dx], by_torch(lambda t: F.gelu(t[0] + t[1], approximate=approximate), DY, X, bias)[1:2])


@pytest.mark.parametrize(
    ("op", "forward"), [("ReluGrad", torch.relu), ("SigmoidGrad", torch.sigmoid), ("TanhGrad", torch.tanh)]
)
def test_from_the_result(op: str, forward: Any) -> None:
    y, dx = by_torch(lambda t: forward(t[0]), DY, X)
    close(imported(op, [DY, y]), [dx])


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int, log: bool) -> None:
    kind = torch.log_softmax if log else torch.softmax
    op = "LogSoftmaxGrad" if log else "SoftmaxGrad"
    y, dx = by_torch(lambda t: kind(t[0], axis), DY, X)
    close(imported(f"{op}_13", [DY, y], axis=axis), [dx])
    flat = axis % 3
    y, dx = by_torch(lambda t: kind(t[0].flatten(flat), flat).reshape(X.shape), DY, X)
    close(imported(op, [DY, y], axis=axis), [dx])


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_normalization(axis: int) -> None:
    shape = X.shape[axis:]
    scale, bias = f(*shape), f(*shape)
    grads = by_torch(lambda t: F.layer_norm(t[0], shape, t[1], t[2], 1e-3), DY, X, scale, bias)[1:]
    axes = tuple(range(axis % 3, 3))
    mean = X.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(X.var(axes, keepdims=True) + np.float32(1e-3))
    close(imported("LayerNormalizationGrad", [DY, X, scale, mean, inverse], 3, axis=axis), grads)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, weighted: bool) -> None:
    scores, labels = f(6, 4), np.array([0, 3, 2, -1, 1, 1])
    weight = np.abs(f(4)) + 0.1
    dy = f(6) if reduction == "none" else np.float32(RNG.standard_normal())

    def forward(t: list[Any]) -> Any:
        w = torch.tensor(weight) if weighted else None
        return F.cross_entropy(t[0], torch.tensor(labels), w, reduction=reduction, ignore_index=-1)

    want = by_torch(forward, dy, scores)[1:]
    logarithms = torch.log_softmax(torch.tensor(scores), 1).numpy()
    operands = [np.asarray(dy), logarithms, labels, *([weight] if weighted else [])]
    close(imported("SoftmaxCrossEntropyLossGrad", operands, reduction=reduction, ignore_index=-1), want)


def test_convolution() -> None:
    x, w, b = f(2, 4, 6, 5), f(6, 2, 3, 3), f(6)
    forward: Forward = lambda t: F.conv2d(*t, stride=2, padding=1, groups=2)  # noqa: E731
    dy = f(*forward([torch.tensor(a) for a in (x, w, b)]).shape)
    got = imported("ConvGrad", [dy, x, w], 3, strides=[2, 2], pads=[1, 1, 1, 1], group=2)
    close(got, by_torch(forward, dy, x, w, b)[1:])


def test_gather_adds_where_a_slice_was_taken_twice() -> None:
    indices, dy = np.array([[1, 0], [1, -1]]), f(3, 2, 2, 5)
    want = by_torch(lambda t: t[0][:, torch.tensor(indices)], dy, X)[1:]
    close(imported("GatherGrad", [np.array(X.shape), indices, dy], fixed=[0], axis=1), want)


def test_operands_that_do_not_fit_are_errors() -> None:
    for op, operands in (
        ("GeluGrad", [DY, X[:2]]),
        ("SoftmaxGrad", [DY[:1], X]),
        ("LayerNormalizationGrad", [DY, X, f(4), X[..., :1], X[..., :1]]),
    ):
        with pytest.raises(DlcError):
            imported(op, operands)
