"""What a tensor holds before its first writer: when the start must be stored, and when the writers make it needless."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

from dlc.kernel.expr import loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.box import Box, written_box
from dlc.kernel.schedules.groups import plain_write


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
    boxes = [b for n in writers if (b := written_box(n)) is not None]
    return len(boxes) == len(writers) and tile(boxes, shape)


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
