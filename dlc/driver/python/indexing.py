"""`x[…]` of traced arrays: numbers, slices, new dimensions, and arrays of subscripts, by numpy's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dlc.base.extents import Dim, Undecided
from dlc.base.types import Array
from dlc.driver.python.place import refused
from dlc.driver.python.traced import Traced, as_traced, as_type, made
from dlc.ops.index import Gather, GatherNd
from dlc.ops.pointwise import broadcast
from dlc.ops.shape import Concat, Expand, Reshape, Slice, Transpose


def indexed(x: Traced, index: Any) -> Traced:
    """The elements that an index chooses. Raises DlcError: it is out of range, or its result has no shape yet."""
    items = _filled(x, cast("tuple[Any, ...]", index) if isinstance(index, tuple) else (index,))
    chosen = any(_is_array(i) for i in items)
    starts: list[int] = []
    sizes: list[int] = []
    steps: list[int] = []
    kept: list[int] = []
    arrays: list[tuple[int, Traced]] = []
    d = 0
    for item in items:
        if item is None:
            kept.append(1)
            continue
        extent = x.shape[d]
        start, size, step = 0, extent, 1
        if isinstance(item, slice):
            start, size, step = _sliced(cast("Any", item), extent)
            kept.append(size)
        elif _is_array(item):
            arrays.append((len(kept), _subscripts(item, extent)))
            kept.append(extent)
        else:
            start, size = _place(item, extent), 1
            if chosen:  # a number beside arrays is one of them
                arrays.append((len(kept), as_traced(np.int64(0))))
                kept.append(1)
        starts.append(start)
        sizes.append(size)
        steps.append(step)
        d += 1
    if (starts, sizes, steps) != ([0] * x.ndim, list(x.shape), [1] * x.ndim):
        x = made("slice", Slice, x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))
    if tuple(kept) != x.shape:
        x = made("reshape", Reshape, x, to=tuple(kept))
    return _gathered(x, arrays) if arrays else x


def _filled(x: Traced, index: tuple[Any, ...]) -> list[Any]:
    """An item for every dimension, and None for each new one."""
    items: list[Any] = []
    for item in index:
        if isinstance(item, (list, np.ndarray)) and (known := _known(item)).dtype == np.bool_ and known.ndim:
            items += np.nonzero(known)
        elif (isinstance(item, Traced) and item.dtype == np.bool_) or isinstance(item, (bool, np.bool_)):
            help = "choose elements with numpy.where(mask, x, other), or sum them with (x * mask).sum()"
            raise refused("traced-size", "an index of booleans: how many elements it chooses depends on values", help)
        else:
            items.append(item)
    named = sum(item is not None and item is not ... for item in items)
    if named > x.ndim:
        raise refused("bad-operands", f"{named} subscripts for {x!r}, which has {x.ndim} dimensions")
    rest = [slice(None)] * (x.ndim - named)
    places = [k for k, item in enumerate(items) if item is ...]
    if len(places) > 1:
        raise refused("bad-operands", "an index with more than one ellipsis")
    at = places[0] if places else len(items)
    return [*items[:at], *rest, *items[at + 1 :]]


def _is_array(item: Any) -> bool:
    return isinstance(item, (Traced, np.ndarray, list))


def _known(item: Any) -> Array:
    return np.asarray(item)


def _place(item: Any, extent: int) -> int:
    if not isinstance(item, (int, np.integer, Dim)):
        raise refused("bad-operands", f"a subscript of type {type(item).__name__}")
    place: int = item if isinstance(item, Dim) else int(cast("Any", item))
    try:
        place = place + extent if place < 0 else place
        if 0 <= place < extent:
            return place
    except Undecided:
        pass
    raise refused("bad-operands", f"subscript {item} of a dimension of size {extent}")


def _sliced(item: slice, extent: int) -> tuple[int, int, int]:
    """(start, size, step) of a slice."""
    if not any(isinstance(v, Dim) for v in (extent, item.start, item.stop)):
        found = range(*item.indices(extent))
        return found.start if found else 0, len(found), item.step or 1
    if item.step not in (None, 1):
        raise refused("bad-operands", f"a slice with a step of a dimension of size {extent}, which is open")
    try:
        ends = [0 if item.start is None else item.start, extent if item.stop is None else item.stop]
        start, stop = (e + extent if e < 0 else e for e in ends)
        if start <= stop <= extent:
            return start, stop - start, 1
    except Undecided:
        pass
    help = "give the dimension a range of sizes that decides it: dlc.f32['n=4..64']"
    raise refused("bad-operands", f"whether {item} lies in a dimension of size {extent} depends on its size", help)


def _subscripts(item: Any, extent: int) -> Traced:
    """An array of subscripts, of a signed type; those that are known are checked."""
    if not isinstance(item, Traced):
        known = _known(item)
        if known.size and not isinstance(extent, Dim) and known.dtype.kind in "iu":
            low, high = int(known.min()), int(known.max())
            if low < -extent or high >= extent:
                wrong = low if low < -extent else high
                raise refused("bad-operands", f"subscript {wrong} of a dimension of size {extent}")
        item = as_traced(known.astype(np.int64) if known.size == 0 else known)
    if item.op.dtype.kind == "uint":
        return as_type(item, np.dtype(np.int64))
    if item.op.dtype.kind != "int":
        raise refused("bad-operands", f"subscripts of type {item.dtype}: they have to be integers")
    return item


def _gathered(x: Traced, arrays: Sequence[tuple[int, Traced]]) -> Traced:
    """The elements at (dimension, subscripts) pairs, which run together."""
    if len(arrays) == 1:
        ((axis, indices),) = arrays
        return made("indexing", Gather, x, indices, axis=axis)
    axes = [axis for axis, _ in arrays]
    try:
        shape = broadcast(*(i.shape for _, i in arrays))
    except ValueError as problem:
        raise refused("bad-operands", f"subscripts: {problem}") from None
    columns: list[Traced] = []
    for _, indices in arrays:
        wide = as_type(indices, np.dtype(np.int64))
        wide = wide if wide.shape == shape else made("broadcast", Expand, wide, to=shape)
        columns.append(made("reshape", Reshape, wide, to=(*shape, 1)))
    joined = Traced(Concat(tuple(c.op for c in columns), axis=len(shape)))
    rest = [d for d in range(x.ndim) if d not in axes]
    front = made("transpose", Transpose, x, perm=(*axes, *rest)) if axes != list(range(len(axes))) else x
    found = made("indexing", GatherNd, front, joined)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return found  # apart from each other: their dimensions come first
    count = len(shape)
    order = [*range(count, count + axes[0]), *range(count), *range(count + axes[0], found.ndim)]
    same = order == list(range(found.ndim))
    return found if same else made("transpose", Transpose, found, perm=tuple(order))
