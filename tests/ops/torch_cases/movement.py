"""Gradients of operators that move elements."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional as F

from tests.ops.torch_cases.case import Array, Case, Tensor, i, normal

X: Final = normal(2, 3, 4)
IMAGE: Final = normal(1, 8, 2, 3)


def fixed(op: str, what: str, x: Array, given: Array, same: Callable[[Tensor], Tensor], **attributes: Any) -> Case:
    """An operator whose second operand is known."""
    return Case(op, what, (x, given), lambda x, _: same(x), attributes, fixed=(1,))


def padded(mode: str, pads: Sequence[int], value: bool = False) -> Case:
    """Padding of the last two dimensions, begins before ends; numpy's modes as torch's."""
    known = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    top, left, bottom, right = pads
    x, figures = normal(1, 1, 3, 4), i(0, 0, top, left, 0, 0, bottom, right)

    def same(x: Tensor, _: Tensor, filled: Tensor | None = None) -> Tensor:
        y = F.pad(x, (left, right, top, bottom), known[mode])
        if filled is None:
            return y
        inner = F.pad(torch.ones_like(x), (left, right, top, bottom)) > 0
        return torch.where(inner, y, filled)

    operands = (x, figures, np.array(2.5)) if value else (x, figures)
    what = f"{mode}, {list(pads)}{', a value' if value else ''}"
    return Case("Pad", what, operands, same, {"mode": mode}, 19, fixed=(1, 2))


def sliced(what: str, figures: Sequence[Sequence[int]], same: Callable[[Tensor], Tensor]) -> Case:
    """Starts, ends, axes and steps."""
    operands = (X, *(i(*row) for row in figures))
    return Case("Slice", what, operands, lambda x, *_: same(x), fixed=(1, 2, 3, 4))


def split(what: str, axis: int, sizes: Sequence[int]) -> Case:
    """Parts along an axis."""
    operands = (X, i(*sizes))
    return Case(
        "Split", what, operands, lambda x, _: x.split(list(sizes), axis), {"axis": axis}, fixed=(1,), outputs=len(sizes)
    )


def depth_to_space(x: Tensor) -> Tensor:
    """Blocks of 2, the block's place in front of the channel."""
    n, c, h, w = x.shape
    return x.view(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


def space_to_depth(x: Tensor) -> Tensor:
    """The inverse."""
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


def joined(*arrays: Array, axis: int) -> Case:
    """Operands behind each other."""
    what = f"{' and '.join(str(a.shape) for a in arrays)} along {axis}"
    return Case("Concat", what, arrays, lambda *xs: torch.cat(xs, axis), {"axis": axis})


def centred(x: Tensor) -> Tensor:
    """The last two dimensions to 2 and 6."""
    return F.pad(x, (1, 1))[:, :2]


def triangle(upper: int, k: int) -> Case:
    """A triangle of the last two dimensions."""
    fn = torch.triu if upper else torch.tril
    return fixed("Trilu", f"upper {upper}, {k}", normal(2, 3, 4), np.array(k), lambda x: fn(x, k), upper=upper)


CASES: Final[tuple[Case, ...]] = (
    joined(X, normal(2, 1, 4), axis=1),
    joined(X, X, axis=-1),
    joined(np.zeros((0, 2)), normal(3, 2), axis=0),
    split("equal parts", 2, (2, 2)),
    split("unequal parts", 1, (1, 2)),
    sliced("every second, a clipped end", ((0, 1), (99, 3), (2, 1), (2, 1)), lambda x: x[:, 1:3, ::2]),
    sliced("backward", ((-1,), (-99,), (2,), (-2,)), lambda x: x.flip(2)[:, :, ::2]),
    sliced("nothing", ((2,), (1,), (1,), (1,)), lambda x: x[:, 2:1]),
    fixed("Reshape", "a rest", X, i(0, -1, 2), lambda x: x.reshape(2, 6, 2)),
    Case("Flatten", "axis 2", (X,), lambda x: x.reshape(6, 4), {"axis": 2}),
    fixed("Squeeze", "an axis from behind", normal(2, 1, 3, 1), i(-1), lambda x: x.squeeze(-1)),
    fixed("Unsqueeze", "two axes", X, i(0, -1), lambda x: x[None, ..., None]),
    fixed("Expand", "broadcasting both ways", normal(3, 1), i(2, 1, 4), lambda x: x.expand(2, 3, 4)),
    fixed("Expand", "one value", np.array(2.0), i(2, 2), lambda x: x.expand(2, 2)),
    fixed("Expand", "to nothing", normal(1, 3), i(0, 3), lambda x: x.expand(0, 3)),
    fixed("Tile", "three dimensions", X, i(2, 1, 3), lambda x: x.tile(2, 1, 3)),
    Case("Transpose", "reversed", (X,), lambda x: x.permute(2, 1, 0)),
    Case("Transpose", "a permutation", (X,), lambda x: x.permute(1, 2, 0), {"perm": [1, 2, 0]}),
    padded("constant", (1, 0, 0, 2)),
    padded("constant", (1, -1, -1, 2)),
    padded("constant", (1, 0, 0, 2), value=True),
    padded("reflect", (2, 1, 1, 3)),
    padded("edge", (2, 1, 1, 3)),
    padded("wrap", (2, 1, 1, 3)),
    triangle(1, 0),
    triangle(1, -1),
    triangle(0, 1),
    Case("DepthToSpace", "columns first", (IMAGE,), depth_to_space, {"blocksize": 2}),
    Case("DepthToSpace", "rows first", (IMAGE,), lambda x: F.pixel_shuffle(x, 2), {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", "blocks of 2", (normal(1, 2, 4, 6),), space_to_depth, {"blocksize": 2}),
    fixed("CenterCropPad", "one cut, one padded", X, i(2, 6), centred, axes=[1, 2]),
)
