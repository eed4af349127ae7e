"""Long reductions in two levels: parts of so many terms, and the sum of the parts.

    for n, k: s += x[n, k]      →      for n, k // 256: p = 0; for k % 256: p += x[n, k]; s += p

The rounding of a sum grows with how many terms are added to one variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.kernel.expr import Axis, Const, Expr

LONG = 256
"""Terms that are added to one variable at most."""


@dataclass(frozen=True)
class Piece:
    """A range of the cut axis.

    Attributes:
        blocks: The loop over parts; none for a last part that is shorter.
        inner: Axes of one part, outermost first.
        value: The cut axis in terms of these.
    """

    blocks: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    value: Expr


@dataclass(frozen=True)
class Levels:
    """Reduction axes `outer` around an `axis` that is cut into pieces."""

    outer: tuple[Axis, ...]
    axis: Axis
    pieces: tuple[Piece, ...]


def levels(axes: Sequence[Axis], terms: int = LONG, unit: int = 1) -> Levels | None:
    """Axes, outermost first, in two levels with at most `terms` points in a part; None where they have no more.

    Args:
        unit: A part of the last axis is a multiple of it, as `terms` is.
    """
    if math.prod(a.extent for a in axes) <= terms or any(a.limit is not None for a in axes):
        return None
    within, k = 1, len(axes) - 1
    while within * axes[k].extent <= terms:
        within *= axes[k].extent
        k -= 1
    axis, inner = axes[k], tuple(axes[k + 1 :])
    size = _size(axis.extent, max(1, terms // within), 1 if inner else unit)
    count, rest = divmod(axis.extent, size)
    block, step, last = Axis(f"{axis.name}b", count), Axis(axis.name, size), Axis(axis.name, rest)
    pieces = [Piece((block,), (step, *inner), block * size + step)]
    if rest:
        pieces.append(Piece((), (last, *inner), Const(count * size) + last))
    return Levels(tuple(axes[:k]), axis, tuple(pieces))


def _size(extent: int, most: int, unit: int) -> int:
    """Points of the cut axis in a part: so many that parts are equal, if they are not much shorter for it."""
    return next((n for n in range(most, most // 2, -unit) if extent % n == 0), most)
