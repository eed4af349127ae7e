"""Gradients of contractions, of sliding windows, and of resizing."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional as F

from tests.ops.torch_cases.case import Array, Case, Tensor, normal

CONV: Final[tuple[Callable[..., Tensor], ...]] = (F.conv1d, F.conv2d, F.conv3d)
BACK: Final[tuple[Callable[..., Tensor], ...]] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
MAX: Final[tuple[Callable[..., Tensor], ...]] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
MEAN: Final[tuple[Callable[..., Tensor], ...]] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def grown(x: Tensor, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """Padding in ONNX's order: all begins, all ends."""
    rank = len(pads) // 2
    return F.pad(x, [p for d in reversed(range(rank)) for p in (pads[d], pads[rank + d])], value=value)


def conv(what: str, x: Array, w: Array, pads: Sequence[int] = (), auto: str = "", bias: bool = False, **a: Any) -> Case:
    """A convolution; `pads` are what `auto` comes to."""
    rank = x.ndim - 2
    pads = tuple(pads) or (0,) * (2 * rank)
    torchs = {{"strides": "stride", "dilations": "dilation", "group": "groups"}[k]: v for k, v in a.items()}
    operands = (x, w, normal(w.shape[0])) if bias else (x, w)
    attributes = {**a, **({"auto_pad": auto} if auto else {"pads": pads})}
    return Case("Conv", what, operands, lambda x, w, b=None: CONV[rank - 1](grown(x, pads), w, b, **torchs), attributes)


def back(what: str, x: Array, w: Array, cut: Sequence[int] = (), bias: bool = False, **a: Any) -> Case:
    """A transposed convolution; pads cut from the result."""
    rank = x.ndim - 2
    cut = tuple(cut) or (0,) * (2 * rank)
    names = {"strides": "stride", "dilations": "dilation", "group": "groups", "output_padding": "output_padding"}
    torchs = {names[k]: v for k, v in a.items()}
    operands = (x, w, normal(w.shape[1] * a.get("group", 1))) if bias else (x, w)

    def same(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        y = BACK[rank - 1](x, w, b, **torchs)
        for d in range(rank):
            y = y.narrow(d + 2, cut[d], y.shape[d + 2] - cut[d] - cut[rank + d])
        return y

    return Case("ConvTranspose", what, operands, same, {**a, "pads": cut})


def most(what: str, x: Array, kernel: Sequence[int], pads: Sequence[int] = (), auto: str = "", **a: Any) -> Case:
    """A max pool; padding that torch does not know is -inf."""
    rank = x.ndim - 2
    pads = tuple(pads) or (0,) * (2 * rank)
    names = {"strides": "stride", "dilations": "dilation", "ceil_mode": "ceil_mode"}
    torchs = {"stride": 1, **{names[k]: v for k, v in a.items()}, "ceil_mode": bool(a.get("ceil_mode"))}
    attributes = {**a, "kernel_shape": kernel, **({"auto_pad": auto} if auto else {"pads": pads})}
    return Case(
        "MaxPool", what, (x,), lambda x: MAX[rank - 1](grown(x, pads, -torch.inf), kernel, **torchs), attributes
    )


def mean(what: str, x: Array, kernel: Sequence[int], pads: Sequence[int] = (), count: bool = False, **a: Any) -> Case:
    """An average pool with equal pads at both ends."""
    rank = x.ndim - 2
    pads = tuple(pads) or (0,) * rank
    names = {"strides": "stride", "ceil_mode": "ceil_mode"}
    torchs = {"stride": 1, **{names[k]: v for k, v in a.items()}, "padding": pads, "count_include_pad": count}
    torchs["ceil_mode"] = bool(a.get("ceil_mode"))
    attributes = {**a, "kernel_shape": kernel, "pads": (*pads, *pads), "count_include_pad": int(count)}
    return Case("AveragePool", what, (x,), lambda x: MEAN[rank - 1](x, kernel, **torchs), attributes)


def mean_of_unfolded(x: Tensor, kernel: int, dilation: int, pads: Sequence[int], stride: int = 1) -> Tensor:
    """The mean of what is inside: a sum by convolution with ones over their number, in one dimension and channel."""
    ones = torch.ones(1, 1, kernel, dtype=x.dtype)
    total, size = (F.conv1d(grown(v, pads), ones, stride=stride, dilation=dilation) for v in (x, torch.ones_like(x)))
    return total / size


def norms(p: int, x: Array, what: str) -> Case:
    """A pool of norms of 2 × 2 windows, 1 apart."""

    def same(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x.unfold(2, 2, 1).unfold(3, 2, 1), p, (-2, -1))

    return Case("LpPool", what, (x,), same, {"kernel_shape": [2, 2], "p": p})


def resized(mode: str, sizes: Sequence[int], transform: str = "half_pixel", **figures: Any) -> Case:
    """Two dimensions to given sizes."""
    torchs = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}
    more = {"align_corners": transform == "align_corners"} if mode != "nearest" else {}
    antialias = bool(figures.get("antialias"))
    operands = (normal(1, 2, 3, 4), None, None, np.array([1, 2, *sizes], np.int64))
    attributes = {"mode": mode, "coordinate_transformation_mode": transform, **figures}
    what = f"{mode}, {transform}, to {list(sizes)}{', antialias' if antialias else ''}"
    return Case(
        "Resize",
        what,
        operands,
        lambda x, *_: F.interpolate(x, tuple(sizes), mode=torchs[mode], antialias=antialias, **more),
        attributes,
        19,
        fixed=(3,),
    )


def product(what: str, *arrays: Array) -> Case:
    """A matrix product."""
    return Case("MatMul", what, arrays, torch.matmul)


def gemm(what: str, c: Array | None, **a: Any) -> Case:
    """alpha · A' · B' + beta · c."""

    def same(x: Tensor, w: Tensor, c: Tensor | None) -> Tensor:
        x, w = (x.T if a.get("transA") else x), (w.T if a.get("transB") else w)
        return a.get("alpha", 1.0) * (x @ w) + (0 if c is None else a.get("beta", 1.0) * c)

    x, w = normal(2, 3), normal(3, 4)
    operands = (x.T.copy() if a.get("transA") else x, w.T.copy() if a.get("transB") else w, c)
    return Case("Gemm", what, operands, same, a)


LINE, PLANE, SPACE = normal(2, 4, 7), normal(2, 4, 5, 6), normal(1, 2, 3, 4, 3)
TIED: Final = np.array([1.0, 1, 0, 2, 2, 2]).reshape(1, 1, 6)
FLAT: Final = np.maximum(normal(1, 2, 4, 5), 0)
"""Many zeros, as after a relu."""
ALIKE: Final = normal(3, 3)
CASES: Final[tuple[Case, ...]] = (
    product("matrices", normal(2, 3), normal(3, 4)),
    product("batches that broadcast", normal(2, 1, 2, 3), normal(4, 3, 2)),
    product("a vector before", normal(3), normal(2, 3, 4)),
    product("a vector behind", normal(2, 2, 3), normal(3)),
    product("two vectors", normal(3), normal(3)),
    product("a matrix with itself", ALIKE, ALIKE),
    gemm("a row", normal(4), alpha=0.5, beta=2.0),
    gemm("transposed, a column", normal(2, 1), transA=1, transB=1),
    gemm("without c", None, transB=1),
    gemm("one number", np.array(0.5)),
    conv("one dimension, bias", LINE, normal(3, 4, 3), bias=True),
    conv("asymmetric pads, stride", PLANE, normal(2, 4, 3, 2), (2, 0, 1, 1), strides=[2, 1]),
    conv("groups, dilation", PLANE, normal(6, 2, 2, 3), dilations=[2, 2], group=2, bias=True),
    conv("depthwise", PLANE, normal(8, 1, 3, 3), (1, 1, 1, 1), group=4),
    conv("a stride beyond the kernel", LINE, normal(2, 4, 2), strides=[3]),
    conv("three dimensions", SPACE, normal(2, 2, 2, 2, 2), (1, 0, 1, 0, 1, 0), strides=[1, 2, 1]),
    conv("SAME_UPPER", LINE, normal(2, 4, 4), (1, 2), "SAME_UPPER"),
    conv("SAME_LOWER", LINE, normal(2, 4, 4), (2, 1), "SAME_LOWER"),
    conv("VALID", LINE, normal(2, 4, 4), (), "VALID"),
    back("one dimension, bias", LINE, normal(4, 2, 3), bias=True, strides=[2]),
    back("output padding", PLANE, normal(4, 2, 3, 3), strides=[2, 3], output_padding=[1, 2]),
    back("asymmetric pads, dilation", PLANE, normal(4, 2, 2, 3), (1, 0, 0, 2), dilations=[2, 1], strides=[1, 2]),
    back("groups", PLANE, normal(4, 3, 2, 2), group=2, bias=True),
    back("three dimensions", SPACE, normal(2, 2, 2, 2, 2), (0, 1, 0, 0, 1, 0), strides=[2, 1, 2]),
    most("overlapping", PLANE, [3, 2], strides=[2, 1]),
    most("overlapping, equal elements", TIED, [3]),
    most("equal elements of a plane", FLAT, [2, 3], strides=[1, 2]),
    most("rounded up, padding before", TIED, [2], (1, 0), strides=[2], ceil_mode=1),
    most("asymmetric pads, dilation", PLANE, [2, 2], (1, 0, 0, 1), dilations=[2, 3]),
    most("three dimensions", SPACE, [2, 2, 2]),
    most("SAME_UPPER", TIED, [4], (1, 2), "SAME_UPPER"),
    most("SAME_LOWER", TIED, [4], (2, 1), "SAME_LOWER"),
    mean("overlapping", PLANE, [3, 2], strides=[2, 1]),
    mean("padding counts", PLANE, [3, 2], (1, 1), True),
    mean("padding does not count", PLANE, [3, 2], (1, 1), strides=[2, 2]),
    mean("rounded up", PLANE, [2, 4], (1, 1), strides=[2, 3], ceil_mode=1),
    mean("rounded up, padding counts", LINE, [4], (1,), True, strides=[3], ceil_mode=1),
    mean("three dimensions", SPACE, [2, 2, 2]),
    Case(
        "AveragePool",
        "asymmetric pads, dilation",
        (normal(1, 1, 7),),
        lambda x: mean_of_unfolded(x, 3, 2, (2, 1)),
        {"kernel_shape": [3], "dilations": [2], "pads": [2, 1]},
    ),
    *(norms(p, normal(1, 2, 3, 4), f"order {p}") for p in (1, 2, 3)),
    *(norms(p, FLAT, f"order {p}, windows of zeros") for p in (1, 2)),
    *(norms(p, np.zeros((1, 1, 2, 2)), f"order {p} of zeros") for p in (2, 3)),
    Case(
        "Resize",
        "linear, one dimension",
        (normal(1, 1, 2), None, np.array([1, 1, 2], np.float32)),
        lambda x, *_: F.interpolate(x, 4, mode="linear"),
        {"mode": "linear"},
        19,
        fixed=(2,),
    ),
    *(resized("linear", s, t) for t in ("half_pixel", "align_corners") for s in ((6, 7), (2, 3))),
    *(resized("cubic", s, t) for t in ("half_pixel", "align_corners") for s in ((6, 7), (2, 3))),
    *(resized("nearest", s, "asymmetric", nearest_mode="floor") for s in ((6, 7), (2, 3))),
    resized("linear", (2, 3), antialias=1, exclude_outside=1),
    resized("cubic", (2, 3), antialias=1, exclude_outside=1, cubic_coeff_a=-0.5),
)
