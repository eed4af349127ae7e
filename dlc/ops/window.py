"""What sliding windows share: their number, their guards, and numpy's view of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.base.extents import smaller
from dlc.graph.tensor import Array
from dlc.kernel.define import ShapeError, inside
from dlc.kernel.expr import Const, Expr


def window_size(extent: int, kernel: int, stride: int, begin: int, end: int, dilation: int, ceil: bool = False) -> int:
    """Number of positions of a sliding window along one dimension.

    Raises:
        ShapeError: the window is larger than the padded data, by a stride or more with `ceil`; or a figure makes no
            sense.
    """
    if stride < 1 or dilation < 1 or kernel < 1 or begin < 0 or end < 0:
        figures = f"kernel {kernel}, stride {stride}, dilation {dilation}, pads {begin} and {end}"
        raise ShapeError(f"a window needs positive sizes and pads that are not negative: {figures}")
    room = extent + begin + end - ((kernel - 1) * dilation + 1)
    if room < 0 and not (ceil and room + stride > 0 and extent + begin > 0):
        raise ShapeError(f"a window of {(kernel - 1) * dilation + 1} does not fit into {extent} + {begin} + {end}")
    count = (-(-room // stride) if ceil else room // stride) + 1
    # A window that starts in the padding behind the data sees nothing of it.
    return smaller(count, (extent + begin - 1) // stride + 1) if ceil else count


def defaulted(values: tuple[int, ...], rank: int, default: int, what: str) -> tuple[int, ...]:
    """A per-dimension attribute, () meaning `default` everywhere."""
    if values and len(values) != rank:
        raise ShapeError(f"{what} has {len(values)} numbers, {rank} are needed")
    return values or (default,) * rank


def padded_only(places: Sequence[Expr], shape: Sequence[int], pads: Sequence[int]) -> Expr | None:
    """Guard for the dimensions that have padding; the others never leave the data."""
    rank = len(shape)
    return inside(*((p, e) for d, (p, e) in enumerate(zip(places, shape, strict=True)) if pads[d] or pads[rank + d]))


def row_major(at: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The number of a place in row-major order."""
    number: Expr = Const(0)
    for place, extent in zip(at, extents, strict=True):
        number = number * extent + place
    return number


def sliding(
    x: Array, kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int], fill: float
) -> Array:
    """The windows of x[N,C,D…] as a view [N,C,O…,K…] of a padded copy."""
    rank = len(kernel)
    width = [(0, 0), (0, 0), *((pads[d], pads[rank + d]) for d in range(rank))]
    full = np.pad(x, width, constant_values=fill) if any(pads) else x
    if not rank:
        return full
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(full, span, axis=tuple(range(2, 2 + rank)))
    return view[(slice(None), slice(None), *(slice(None, None, s) for s in (*stride, *dilation)))]
