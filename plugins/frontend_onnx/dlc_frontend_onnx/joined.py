"""Results of two branches that differ in size: the size is found when the program runs, as that of what a mask keeps.

y = a if condition else b          a: f32[0,4]   b: f32[found,4]   →   y: f32[y_size,4]
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.base.extents import Dim, capacity
from dlc.base.types import i64
from dlc.graph import Op
from dlc.ops.elementwise import Less, Where
from dlc.ops.packed import Packed
from dlc.ops.pointwise import scalar
from dlc.ops.shape import Transpose
from dlc.ops.sizes import Count, Size
from dlc_frontend_onnx.rooms import opened, whole


def fit(a: Op, b: Op) -> bool:
    """Whether two values differ in sizes of dimensions only."""
    return a.dtype is b.dtype and len(a.shape) == len(b.shape)


def joined(condition: Op, a: Op, b: Op, found_size: Callable[[Op], int]) -> Op:
    """a or b, of the size that it has.

    Args:
        condition: A truth value, a scalar.
        a: What is given where it holds.
        b: What is given where it does not; `fit` a.
        found_size: See `Values.found_size`.
    """
    room = tuple(max(capacity(p), capacity(q)) for p, q in zip(a.shape, b.shape, strict=True))
    y: Op = Where(condition, whole(a, room=room), whole(b, room=room))
    for d, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)):
        if p == q:
            sizes = tuple(p if k == d else n for k, n in enumerate(y.shape))
            y = opened(y, sizes)
            continue
        count = Where(condition, _size(p), _size(q))
        place = Count(room[d])
        mask = Less(place, count)
        perm = (d, *(k for k in range(len(room)) if k != d))
        rows = Packed(Transpose(y, perm=perm) if d else y, mask, place, count, size=found_size(mask))
        y = Transpose(rows, perm=tuple(perm.index(k) for k in range(len(room)))) if d else rows
    return y


def _size(d: int) -> Op:
    return Size(d) if isinstance(d, Dim) else scalar(d, i64)
