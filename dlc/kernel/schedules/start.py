"""What a tensor holds before its first writer: when the start must be stored, and when the writers make it needless."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import product

from dlc.base.types import Type
from dlc.kernel.expr import Axis, Const, Expr, axes_in, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.box import Box, written_box
from dlc.kernel.schedules.extents import ends_of
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import linear, simplify


def needs_fill(kernel: Kernel, name: str) -> bool:
    """Whether the elements of a result or local must be set to their start before the nests run.

    Of a tensor whose dimensions end at sizes, those that there are: see `extents.limited`.
    """
    writers, readers = kernel.writers.get(name, ()), kernel.readers.get(name, ())
    if kernel.tensors[name].type.dense:
        return False  # its nests write all that a caller has of it
    shape = kernel.tensors[name].shape
    if not writers or (readers and readers[0] <= writers[0]):
        return True
    first = kernel.nests[writers[0]]
    if first.reduce is not None:
        return not plain_write(first, shape)
    if _covers((first,), shape):
        return False
    until = min((*readers[:1], *(k for k in writers if kernel.nests[k].reduce)), default=len(kernel.nests))
    early = tuple(kernel.nests[k] for k in writers if k < until)
    of = kernel.tensors[name].type
    return not _covers(early, shape) and not (of.is_open and _covers_sizes(early, of, kernel))


def _covers(writers: tuple[Nest, ...], shape: tuple[int, ...]) -> bool:
    """Whether these assignments write every element; each writes an element at most once (a property of nests)."""
    size = math.prod(shape)
    if any(n.reduce is not None or any(True for i in n.index for _ in loads(i)) for n in writers):
        return False
    if len(writers) == 1 and writers[0].where is None:
        return writers[0].points == size and not writers[0].reduction_axes
    writers, shape = _without_strides(writers, shape)
    boxes = [b for n in writers if (b := written_box(n)) is not None]
    return len(boxes) == len(writers) and tile(boxes, shape)


def _without_strides(writers: tuple[Nest, ...], shape: tuple[int, ...]) -> tuple[tuple[Nest, ...], tuple[int, ...]]:
    """Dimensions that are written in steps as two: what is every other element of a row is a column of its pairs.

    t[2i + 1] = f(i)  and  t[j] = g(j)    →    t[i, 1] = f(i)  and  t[q, r] = g(2q + r)
    """
    nests, dims = list(writers), list[int]()
    for d, extent in enumerate(shape):
        at = len(dims)
        steps = {s for n in nests for s in _steps(n.index[at]) if s > 1}
        if len(steps) != 1 or extent % (step := next(iter(steps))):
            dims.append(extent)
            continue
        dims += [extent // step, step]
        for k, n in enumerate(nests):
            i = n.index[at]
            if isinstance(i, Axis):
                q, r = Axis(f"{i.name}q", i.extent // step), Axis(f"{i.name}r", step)
                axes = tuple(x for a in n.axes for x in ((q, r) if a == i else (a,)))
                n = n.substitute({i: q * step + r}, axes) if i.extent % step == 0 else n
            pair = simplify(n.index[at] // step), simplify(n.index[at] % step)
            nests[k] = replace(n, index=(*n.index[:at], *pair, *n.index[at + 1 :]))
        assert len(nests[0].index) == len(dims) + len(shape) - d - 1
    return tuple(nests), tuple(dims)


def _steps(e: Expr) -> tuple[int, ...]:
    """How far a subscript moves per step of its axes."""
    form = linear(e)
    return () if form is None else tuple(c for _, c in form.terms)


def _covers_sizes(writers: tuple[Nest, ...], of: Type, kernel: Kernel) -> bool:
    """Whether these assignments of a `limited` kernel write every element that there is at the sizes of a call.

    t[i] = f(i) for i < n  and  t[n + j] = g(j) for j < m     cover t: f32[n+m]
    """
    ends = ends_of(of, kernel)
    boxes = [b for n in writers if (b := _sized_box(n)) is not None]
    if ends is None or len(boxes) < len(writers):
        return False
    return _cancel(boxes, tuple((_canonical(Const(0)), _canonical(end)) for end in ends))


def _sized_box(nest: Nest) -> Sequence[tuple[Hashable, Hashable]] | None:
    """The box that a nest writes, its corners in terms of sizes; None when its subscripts are not axes plus sizes.

    No loop ends before 0, so no box counts as less than none.
    """
    box: list[tuple[Hashable, Hashable]] = []
    used: list[Axis] = []
    for i in nest.index:
        form = linear(i)
        mine = [] if form is None else [(a, c) for a, c in form.terms if isinstance(a, Axis) and a in nest.axes]
        if form is None or len(mine) > 1 or any(c != 1 for _, c in mine):
            return None
        start, length = form.expr(), Const(1)
        for axis, _ in mine:
            used.append(axis)
            start, length = form.without(axis).expr(), axis.stop
        if set(axes_in(start)) & set(nest.axes) or any(True for _ in loads(start)):
            return None
        box.append((_canonical(start), _canonical(start + length)))
    once = len(set(used)) == len(used) == len(nest.axes)
    return box if once and nest.reduce is None and nest.where is None else None


def _canonical(e: Expr) -> Hashable:
    """Equal for subscripts that differ by the order of their terms alone."""
    form = linear(e)
    return e if form is None else (frozenset(form.terms), form.constant)


def tile(boxes: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Whether every element of a tensor lies in exactly one of the boxes, and no box reaches beyond the tensor."""
    filled = [b for b in boxes if all(start < stop for start, stop in b)]
    return _cancel(filled, tuple((0, d) for d in shape))


def _cancel(boxes: Sequence[Sequence[tuple[Hashable, Hashable]]], whole: Sequence[tuple[Hashable, Hashable]]) -> bool:
    """Whether the corners of boxes cancel but for those of the whole.

    The number of boxes that contain an element is determined by its differences along every dimension, which are not 0
    at corners of boxes only: they are those of the tensor itself exactly if the boxes tile it. Time is proportional to
    the number of boxes, times 2 for each dimension that a box may divide.
    """
    divided = [d for d, side in enumerate(whole) if any(b[d] != side for b in boxes)]
    corners: Counter[tuple[Hashable, ...]] = Counter()
    for box, sign in (*((b, 1) for b in boxes), (whole, -1)):
        for ends in product((0, 1), repeat=len(divided)):
            corners[tuple([box[d][e] for d, e in zip(divided, ends, strict=True)])] += sign * (-1) ** sum(ends)
    return not any(corners.values())
