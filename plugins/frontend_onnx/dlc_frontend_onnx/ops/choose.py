"""Results along an axis that is known when the program runs: those along all possible ones, and a choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc_frontend_onnx.node import number
from dlc_frontend_onnx.ops.shape import reshaped


def along_axis(axis: Op, rank: int, axes: Sequence[int], along: Callable[[int], Op]) -> Op:
    """What one of some axes gives, the one that `axis` names, counted from either end; all give the same type."""
    *others, last = axes
    found = along(last)
    for d in others:
        named = e.Or(e.Equal(axis, number(d, axis)), e.Equal(axis, number(d - rank, axis)))
        found = e.Where(reshaped(named, ()), along(d), found)
    return found
