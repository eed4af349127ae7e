"""Layers of neural networks that numpy has no functions for: on traced arrays they are ops, on others their reference.

So a function that uses them also runs undecorated, on numpy arrays, without compiling anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from dlc.base.types import dtype_of_numpy
from dlc.driver.python.place import at_user_line, refused
from dlc.driver.python.traced import Traced, as_traced, is_traced, made
from dlc.graph.op import Op
from dlc.graph.structure import Constant, Input
from dlc.graph.tensor import Tensor
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.index import OneHot
from dlc.ops.linear import Conv
from dlc.ops.loss import CrossEntropy
from dlc.ops.normalize import LayerNorm, LogSoftmax, Softmax
from dlc.ops.pool import AveragePool, MaxPool
from dlc.ops.reduce import ReduceLogSumExp

__all__ = [
    "average_pool",
    "conv",
    "cross_entropy",
    "elu",
    "erf",
    "gelu",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "logsumexp",
    "max_pool",
    "one_hot",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
]


def _applied(name: str, op: Callable[..., Op], *operands: Any, **attributes: Any) -> Any:
    """An op on traced arrays; on numpy arrays, its value by the op's reference."""
    build: Callable[..., Op] = partial(op, **attributes)
    if is_traced(list(operands)):
        return made(name, build, *operands)
    arrays = [np.asarray(x) for x in operands]
    inputs: list[Input] = []
    for k, array in enumerate(arrays):
        if dtype_of_numpy(array.dtype) is None:
            raise refused("bad-operands", f"{name}: dlc has no elements of type {array.dtype}")
        inputs.append(Input(f"x{k}", Tensor.of(array).type))
    with at_user_line(name):
        return np.asarray(evaluate_ops((build(*inputs),), dict(zip(inputs, arrays, strict=True)))[0])


def _axis(x: Any, axis: int) -> int:
    rank = x.ndim if isinstance(x, Traced) else np.ndim(x)
    if not -rank <= axis < rank:
        raise refused("bad-operands", f"axis {axis} of an array of {rank} dimensions")
    return axis % rank


def relu(x: Any) -> Any:
    """max(x, 0)."""
    return _applied("relu", e.Relu, x)


def leaky_relu(x: Any, alpha: float = 0.01) -> Any:
    """x where it is positive, else alpha · x."""
    return _applied("leaky_relu", e.LeakyRelu, x, alpha=alpha)


def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where it is positive, else alpha · (e^x - 1)."""
    return _applied("elu", e.Elu, x, alpha=alpha)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x)."""
    return _applied("sigmoid", e.Sigmoid, x)


def silu(x: Any) -> Any:
    """x / (1 + e^-x)."""
    return _applied("silu", _silu, x)


def _silu(x: Op) -> Op:
    return e.Mul(x, e.Sigmoid(x))


def softplus(x: Any) -> Any:
    """ln(1 + e^x)."""
    return _applied("softplus", e.Softplus, x)


def gelu(x: Any, approximate: bool = False) -> Any:
    """x · Φ(x), with Φ exact, or by tanh."""
    return _applied("gelu", e.Gelu, x, approximate="tanh" if approximate else "none")


def erf(x: Any) -> Any:
    """The error function."""
    return _applied("erf", e.Erf, x)


def softmax(x: Any, axis: int = -1) -> Any:
    """e^x / Σ e^x along an axis."""
    return _applied("softmax", Softmax, x, axis=_axis(x, axis))


def log_softmax(x: Any, axis: int = -1) -> Any:
    """x - ln Σ e^x along an axis."""
    return _applied("log_softmax", LogSoftmax, x, axis=_axis(x, axis))


def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Any:
    """ln Σ e^x along an axis."""
    return _applied("logsumexp", ReduceLogSumExp, x, axes=(_axis(x, axis),), keep=keepdims)


def layer_norm(x: Any, scale: Any, bias: Any, axis: int = -1, epsilon: float = 1e-5) -> Any:
    """(x - mean) / √(variance + epsilon) · scale + bias, over the dimensions from `axis` on."""
    return _applied("layer_norm", LayerNorm, x, scale, bias, axis=axis, epsilon=epsilon)


def cross_entropy(scores: Any, labels: Any, axis: int = 1, reduction: str = "mean") -> Any:
    """-ln of the softmax of scores[N, C, …] at the labels, integers [N, …]; reduction: mean, sum or none."""
    return _applied("cross_entropy", CrossEntropy, scores, labels, axis=axis, reduction=reduction)


def one_hot(labels: Any, classes: int, dtype: Any = np.float32) -> Any:
    """A last dimension of `classes` elements, 1 at each label and 0 elsewhere; integers [N, …] → [N, …, classes]."""
    values = Constant(Tensor.of(np.array([0, 1], dtype)))
    rank = labels.ndim if isinstance(labels, Traced) else np.ndim(labels)
    return _applied("one_hot", OneHot, labels, values=values, depth=classes, axis=rank)


def conv(x: Any, w: Any, b: Any = None, stride: Any = 1, pads: Any = 0, dilation: Any = 1, group: int = 1) -> Any:
    """Cross-correlation of x[N, C, d…] with w[F, C/group, k…], plus b[F]; pads: of each side, or all begins, then all
    ends."""
    rank = _spatial("conv", x)
    figures = {"stride": _each(stride, rank), "pads": _each(pads, 2 * rank), "dilation": _each(dilation, rank)}
    operands = (x, w) if b is None else (x, w, b)
    return _applied("conv", Conv, *operands, **figures, group=group)


def max_pool(x: Any, window: Any, stride: Any = None, pads: Any = 0) -> Any:
    """The largest of each window of x[N, C, d…]; windows follow one another where there is no stride."""
    return _applied("max_pool", MaxPool, x, **_windows("max_pool", x, window, stride, pads))


def average_pool(x: Any, window: Any, stride: Any = None, pads: Any = 0) -> Any:
    """The mean of each window of x[N, C, d…], without the padding."""
    return _applied("average_pool", AveragePool, x, **_windows("average_pool", x, window, stride, pads))


def _windows(name: str, x: Any, window: Any, stride: Any, pads: Any) -> dict[str, Any]:
    rank = _spatial(name, x)
    stride = window if stride is None else stride
    return {"window": _each(window, rank), "stride": _each(stride, rank), "pads": _each(pads, 2 * rank)}


def _spatial(name: str, x: Any) -> int:
    rank = as_traced(x).ndim - 2 if isinstance(x, Traced) else np.ndim(x) - 2
    if rank < 1:
        raise refused("bad-operands", f"{name} takes arrays of at least 3 dimensions [N, C, d…]")
    return rank


def _each(value: Any, count: int) -> tuple[int, ...]:
    """One number for each dimension."""
    listed = cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else (value,) * count
    found = tuple(map(int, listed))
    if len(found) * 2 == count:
        found = found * 2
    if len(found) != count:
        raise ShapeError(f"{len(found)} numbers where {count} are needed")
    return found
