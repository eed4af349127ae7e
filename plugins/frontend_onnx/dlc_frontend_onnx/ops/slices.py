"""Slices: with bounds that are constant or follow from sizes, or that are known when the program runs."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.extents import capacity, is_open, larger, shown, smaller
from dlc.base.polynomials import LONGEST
from dlc.base.types import i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops import shape as s
from dlc.ops.index import Pick
from dlc.ops.pointwise import normalized
from dlc_frontend_onnx.node import FIXED, Node
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.sized import Sized, along, axes_of, elements, sized
from dlc_frontend_onnx.terms import Number, Term, as_op, clip, largest, where
from dlc_frontend_onnx.unsupported import Unsupported


def cut(x: Op, parts: dict[int, tuple[int, int, int]]) -> Op:
    """x with (start, size, step) in some dimensions; x itself when that is all of it."""
    whole = tuple(parts.get(d, (0, e, 1)) for d, e in enumerate(x.shape))
    starts, sizes, steps = (tuple(p[k] for p in whole) for k in range(3))
    if sizes == x.shape and all(p[0] == 0 and p[2] == 1 for p in whole):
        return x
    return s.Slice(x, starts=starts, sizes=sizes, steps=steps)


@onnx("Slice")
def slice_attribute(node: Node) -> Op:
    """A slice with bounds as attributes."""
    starts, ends = node.ints("starts") or (), node.ints("ends") or ()
    return _sliced(node.x(), starts, ends, node.ints("axes"), None)


@onnx("Slice", since=10)
def slice_(node: Node) -> Op:
    """A slice with bounds as operands."""
    starts, ends, axes = elements(node, 1), elements(node, 2), axes_of(node, 3, len(node.x().shape))
    steps = None if node.optional(4) is None else elements(node, 4)
    if any(isinstance(v, Term) for v in (*starts, *ends, *(axes or ()), *(steps or ()))):
        return _found(node, starts, ends, axes, steps)
    return _sliced(node.x(), starts, ends, axes, steps)


def _found(
    node: Node,
    starts: Sequence[Number],
    ends: Sequence[Number],
    axes: Sequence[Number] | None,
    steps: Sequence[Number] | None,
) -> Op:
    """A slice with bounds, axes or steps that are known when the program runs: rows picked by computed subscripts."""
    x = node.x()
    rank = len(x.shape)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) <= rank:
        raise ShapeError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps of {x.type}")
    if any(not isinstance(p, Term) and p == 0 for p in steps):
        raise ShapeError(f"a step of 0 in {x.type}")
    y: Op = x
    sizes: list[Sized] = []
    for d, extent in enumerate(x.shape):
        bounds = along(d, rank, (0, extent, 1), axes, starts, ends, steps)
        if bounds == (0, extent, 1):
            continue
        if not any(isinstance(v, Term) for v in bounds):
            y = _sliced(y, (bounds[0],), (bounds[1],), (d,), (bounds[2],))
            continue
        # No dimension is longer than a step that is cut off here, whose negative is a number.
        step = clip(bounds[2], -LONGEST, LONGEST)
        start, count = _counted(bounds[0], bounds[1], step, extent)
        size = sized(node, d, rank, count, capacity(extent), always=not isinstance(step, Term))
        sizes.append(size)
        y = Pick(y, as_op(start + size.numbers() * step, i64), axis=d)
    for size in sizes:
        y = size.checked(y)
    return y


def _counted(start: Number, end: Number, step: Number, extent: int) -> tuple[Number, Number]:
    """(first element, number of elements); the number is -1 for a step of 0."""
    start, end = (where(v < 0, v + extent, v) if isinstance(v, Term) else _inside(v, extent) for v in (start, end))
    if not isinstance(step, Term):
        return _forward(start, end, step, extent) if step > 0 else _backward(start, end, -step, extent)
    ahead = _forward(start, end, largest(step, 1), extent)
    back = _backward(start, end, largest(-step, 1), extent)
    first, count = (where(step < 0, b, a) for a, b in zip(ahead, back, strict=True))
    return first, where(step.same(0), -1, count)


def _inside(place: int, extent: int) -> int:
    """A constant start or end, counted from the front."""
    return place + extent if not is_open((place,)) and place < 0 else place


def _forward(start: Number, end: Number, step: Number, extent: int) -> tuple[Number, Number]:
    start, end = clip(start, 0, extent), clip(end, 0, extent)
    return start, _whole(largest(end - start, 0) + (step - 1), step)


def _backward(start: Number, end: Number, step: Number, extent: int) -> tuple[Number, Number]:
    start, end = clip(start, 0, extent - 1), clip(end, -1, extent - 1)
    return start, _whole(largest(start - end, 0) + (step - 1), step)


def _whole(a: Number, b: Number) -> Number:
    """a / b without the rest; neither is negative."""
    return a if not isinstance(b, Term) and b == 1 else a / b if isinstance(a, Term) else b.__rtruediv__(a)


def _sliced(
    x: Op, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Op:
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ShapeError(f"starts {list(starts)}, ends {list(ends)}, axes {list(axes)} and steps {list(steps)}")
    parts: dict[int, tuple[int, int, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        d = normalized(axis, len(x.shape))
        if is_open((start, end, step, x.shape[d])):
            parts[d] = _open_range(start, end, step, x.shape[d])
            continue
        found = range(x.shape[d])[_bounds(start, end, step, x.shape[d])]
        parts[d] = (found.start if len(found) else 0, len(found), step if len(found) > 1 else 1)
    return cut(x, parts)


def _open_range(start: int, end: int, step: int, extent: int) -> tuple[int, int, int]:
    """(start, size, step) of a slice where bounds or the dimension are symbolic."""
    if is_open((step,)):
        raise Unsupported(f"a slice of a symbolic dimension in steps of {shown(step)}", FIXED)
    # Backward, a start behind the last element is that one, and an end before the first one is before it.
    least, most = (0, extent) if step > 0 else (-1, extent - 1)

    def inside(place: int, nearest: int) -> int:
        if not is_open((place,)):
            if place >= LONGEST:
                return most
            if place <= -LONGEST:
                return nearest
        place = place + extent if place < 0 else place
        return larger(smaller(place, most), nearest)

    first, behind = inside(start, 0), inside(end, least)
    length = behind - first if step > 0 else first - behind
    return first, (larger(length, 0) + abs(step) - 1) // abs(step), step


def _bounds(start: int, end: int, step: int, extent: int) -> slice:
    """Python's slice for ONNX's bounds. Backward, ONNX moves both into the dimension: a start before it to element 0,
    an end before it to behind element 0, which Python would count from the end.
    """
    if step > 0:
        return slice(start, end, step)
    return slice(max(start, -extent), end if end >= -extent else None, step)
