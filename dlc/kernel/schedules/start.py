"""What a tensor holds before its first writer: when the start must be stored, and when the writers make it needless."""

from __future__ import annotations

import math
from itertools import combinations

from dlc.kernel.expr import Axis, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.clip import constant_box
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import linear

Box = tuple[tuple[int, int], ...]


def needs_fill(kernel: Kernel, name: str) -> bool:
    """Whether the elements of a result or local must be set to their start before the nests run."""
    writers = [n for n in kernel.nests if n.out == name]
    shape = kernel.tensors[name].shape
    touched = next((n for n in kernel.nests if n.out == name or name in n.reads()), None)
    if touched is None or not writers or touched is not writers[0] or name in touched.reads():
        return True
    first = writers[0]
    if first.reduce is not None:
        return not plain_write(first, shape)
    if _covers((first,), shape):
        return False
    until = next((k for k, n in enumerate(kernel.nests) if name in n.reads() or (n.out == name and n.reduce)), None)
    early = tuple(n for n in kernel.nests[:until] if n.out == name)
    return not _covers(early, shape)


def _covers(writers: tuple[Nest, ...], shape: tuple[int, ...]) -> bool:
    """Whether these assignments write every element; each writes an element at most once (a property of nests)."""
    size = math.prod(shape)
    if any(n.reduce is not None or any(True for i in n.index for _ in loads(i)) for n in writers):
        return False
    if len(writers) == 1 and writers[0].where is None:
        return writers[0].points == size and not writers[0].reduction_axes
    boxes = [b for n in writers if (b := _box(n)) is not None]
    if len(boxes) < len(writers) or sum(map(_volume, boxes)) != size:
        return False
    full = [b for b in boxes if _volume(b)]
    return all(any(x[1] < y[0] or y[1] < x[0] for x, y in zip(a, b, strict=True)) for a, b in combinations(full, 2))


def _volume(box: Box) -> int:
    return math.prod(last - first + 1 for first, last in box)


def _box(nest: Nest) -> Box | None:
    """The box that a nest writes, as first and last element per dimension.

    Its subscripts are distinct axes plus constants, and its guard bounds single axes by constants.
    """
    ranges = constant_box(nest.axes, nest.where)
    if ranges is None:
        return None
    inside = dict(zip(nest.axes, ranges, strict=True))
    box: list[tuple[int, int]] = []
    used: list[Axis] = []
    for i in nest.index:
        form = linear(i)
        if form is None or len(form.terms) > 1:
            return None
        start, stop = 0, 1
        for atom, c in form.terms:
            if not isinstance(atom, Axis) or c != 1:
                return None
            used.append(atom)
            start, stop = inside[atom]
        box.append((start + form.constant, stop - 1 + form.constant))
    return tuple(box) if len(set(used)) == len(used) == len(nest.axes) else None
