"""Places of an image's elements after an affine transformation."""

from __future__ import annotations

import numpy as np

from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.linear import MatMul
from dlc.ops.shape import Transpose
from dlc_frontend_onnx.implied import Choices
from dlc_frontend_onnx.node import Array, Node, constant
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.tensors import check_count


@onnx("AffineGrid")
def affine_grid(node: Node) -> Op:
    """y[n,h,w] = theta[n] · (x, y, 1) with places from -1 to 1, those of centres or, with align_corners, of corners."""
    theta, align = node.x(0), node.flag("align_corners")

    def size(out: tuple[int, ...]) -> Choices:
        return [(out[0],), (), *((n,) for n in out[1:-1])]  # how many channels there are does not matter

    batch, _, *extents = node.numbers(1, "the size", lambda outs: size(outs[0]))
    rank = len(extents)
    if rank not in (2, 3) or theta.shape != (batch, rank, rank + 1) or min(extents) < 0:
        raise ShapeError(f"theta of type {theta.type} for {batch} images of {list(extents)}")
    count = int(np.prod(extents))
    check_count(count * (rank + 1), "the grid")
    places = np.meshgrid(*(_places(n, align) for n in extents), indexing="ij")
    ones = np.ones(count)
    base = np.stack([*(p.reshape(-1) for p in reversed(places)), ones], axis=-1)
    grid = MatMul(constant(base, theta.dtype), Transpose(theta, perm=(0, 2, 1)))
    return reshaped(grid, (batch, *extents, rank))


def _places(n: int, align: bool) -> Array:
    if align:
        return np.linspace(-1.0, 1.0, n)
    return (2 * np.arange(n) + 1) / max(n, 1) - 1
