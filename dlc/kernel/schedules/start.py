"""What a tensor holds before its first writer: when the start must be stored, and when the writers make it needless."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from dlc.kernel.expr import Axis, Expr, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.box import Box, written_box
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import linear, simplify


def needs_fill(kernel: Kernel, name: str) -> bool:
    """Whether the elements of a result or local must be set to their start before the nests run."""
    writers, readers = kernel.writers.get(name, ()), kernel.readers.get(name, ())
    if kernel.tensors[name].type.dense:
        return False  # one nest writes all that a caller has of it
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
    return not _covers(early, shape)


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


def tile(boxes: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Whether every element of a tensor lies in exactly one of the boxes, and no box reaches beyond the tensor.

    The number of boxes that contain an element is determined by its differences along every dimension, which are not 0
    at corners of boxes only: they are those of the tensor itself exactly if the boxes tile it. Time is proportional to
    the number of boxes, times 2 for each dimension that a box may divide.
    """
    boxes = [b for b in boxes if all(start < stop for start, stop in b)]
    whole = tuple((0, d) for d in shape)
    divided = [d for d, side in enumerate(whole) if any(b[d] != side for b in boxes)]
    corners: Counter[tuple[int, ...]] = Counter()
    for box, sign in (*((b, 1) for b in boxes), (whole, -1)):
        for ends in product((0, 1), repeat=len(divided)):
            corners[tuple([box[d][e] for d, e in zip(divided, ends, strict=True)])] += sign * (-1) ** sum(ends)
    return not any(corners.values())
