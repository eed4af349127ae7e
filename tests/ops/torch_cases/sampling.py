"""Gradients of operators that put elements at computed places or take them from there, and of products of many."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional as F

from tests.ops.torch_cases.case import Array, Case, Tensor, f, i, normal


def columns(what: str, x: Array, image: Sequence[int], block: Sequence[int], pad: int = 0, **a: Any) -> Case:
    """Windows put back into an image, with equal pads on all sides."""
    names = {"strides": "stride", "dilations": "dilation"}
    torchs = {names[k]: v for k, v in a.items()}

    def same(x: Tensor, *_: Tensor) -> Tensor:
        return F.fold(x, tuple(image), tuple(block), padding=pad, **torchs)

    return Case("Col2Im", what, (x, i(*image), i(*block)), same, {**a, "pads": [pad] * 4}, fixed=(1, 2))


def running(what: str, x: Array, exclusive: int = 0, reverse: int = 0) -> Case:
    """A product of the elements up to each."""

    def same(x: Tensor, _: Tensor) -> Tensor:
        x = x.flip(-1) if reverse else x
        x = torch.cat([torch.ones_like(x[..., :1]), x[..., :-1]], -1) if exclusive else x
        y = torch.cumprod(x, -1)
        return y.flip(-1) if reverse else y

    attributes = {"exclusive": exclusive, "reverse": reverse}
    return Case("CumProd", what, (x, np.array(-1)), same, attributes, opset=26, fixed=(1,))


def sampled(mode: str, padding: str, aligned: int, x: Array, grid: Array) -> Case:
    """An image at places of a grid."""
    torchs = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}[mode]

    def same(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, torchs, padding, bool(aligned))

    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    what = f"{mode}, {padding}, aligned {aligned}, {x.ndim - 2} dimensions"
    return Case("GridSample", what, (x, grid), same, attributes)


def unpooled(what: str, x: Array, places: Array, kernel: Sequence[int], **a: Any) -> Case:
    """Maxima put back to where they were."""

    def same(x: Tensor, places: Tensor) -> Tensor:
        return F.max_unpool2d(x, places, tuple(kernel), tuple(a.get("strides", (1, 1))))

    return Case("MaxUnpool", what, (x, places), same, {**a, "kernel_shape": kernel})


def overwritten(what: str, past: Array, update: Array, start: Array, circular: bool) -> Case:
    """A cache [B, S, D] with new rows."""
    rows = np.arange(update.shape[1]) + start[:, None]
    rows = rows % past.shape[1] if circular else rows

    def same(past: Tensor, update: Tensor, _: Tensor) -> Tensor:
        return past.scatter(1, torch.tensor(rows)[:, :, None].expand(update.shape), update)

    attributes = {"mode": "circular" if circular else "linear", "axis": 1}
    return Case("TensorScatter", what, (past, update, start), same, attributes, opset=24)


def boxes(what: str, x: Array, rois: Array, bins: tuple[int, int]) -> Case:
    """Maxima over bins of regions inside the image, whose sizes are multiples of the bins."""

    def same(x: Tensor, _: Tensor) -> Tensor:
        found: list[Tensor] = []
        for item, left, top, right, bottom in rois.astype(int).tolist():
            part = x[item, :, top : bottom + 1, left : right + 1]
            found.append(F.max_pool2d(part, (part.shape[1] // bins[0], part.shape[2] // bins[1])))
        return torch.stack(found)

    return Case("MaxRoiPool", what, (x, rois), same, {"pooled_shape": bins}, fixed=(1,))


PLACES: Final = i(5, 7, 13, 15).reshape(1, 1, 2, 2)
BOXES: Final = np.array([[0.0, 0, 0, 5, 3], [1, 1, 2, 3, 5], [0, 1, 0, 6, 5]])
SINGULAR: Final = np.array([[4.0, -2], [-2, 1]])
GRID: Final = normal(2, 3, 2, 2)

CASES: Final[tuple[Case, ...]] = (
    columns("overlapping windows", normal(2, 12, 16), (5, 6), (2, 3)),
    columns("strides, dilations and pads", normal(1, 8, 6), (5, 6), (2, 2), 1, strides=[2, 3], dilations=[1, 2]),
    *(running(f"exclusive {e}, reverse {r}", normal(2, 4), e, r) for e in (0, 1) for r in (0, 1)),
    running("a zero", f(2, 0, 3)),
    running("two zeros", f(2, 0, 3, 0, 5)),
    Case("Det", "matrices of three rows", (normal(2, 3, 3),), torch.linalg.det),
    Case("Det", "a matrix of five rows", (normal(5, 5),), torch.linalg.det),
    # The gradient is the matrix of cofactors; PyTorch gives zeros.
    Case("Det", "a singular matrix", (np.array([[1.0, 2], [2, 4]]),), torch.linalg.det, chosen={0: SINGULAR}),
    *(
        sampled(mode, padding, aligned, normal(2, 3, 4, 5), GRID)
        for mode, paddings in (
            ("linear", ("zeros", "border", "reflection")),
            ("cubic", ("zeros", "reflection")),  # ONNX moves places to the border, PyTorch elements
        )
        for padding in paddings
        for aligned in (0, 1)
    ),
    *(sampled("nearest", padding, 0, normal(2, 3, 4, 5), GRID) for padding in ("zeros", "border")),
    sampled("linear", "zeros", 0, normal(1, 2, 3, 4, 5), normal(1, 2, 3, 2, 3)),
    boxes("regions that overlap", normal(2, 3, 6, 7), BOXES, (2, 3)),
    unpooled("windows that do not overlap", normal(1, 1, 2, 2), PLACES, [2, 2], strides=[2, 2]),
    overwritten("some rows", normal(2, 5, 3), normal(2, 2, 3), i(0, 3), False),
    overwritten("rows around the end", normal(2, 5, 3), normal(2, 3, 3), i(4, 1), True),
)
