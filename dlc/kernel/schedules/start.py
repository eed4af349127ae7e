"""What a tensor holds before its first writer: when the start must be stored, and when the writers make it needless."""

from __future__ import annotations

from itertools import combinations

from dlc.kernel.expr import Axis, loads
from dlc.kernel.nest import Kernel, Nest
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import bounds, linear

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
    size = 1
    for d in shape:
        size *= d
    if any(
        n.where is not None or n.reduce is not None or any(True for i in n.index for _ in loads(i)) for n in writers
    ):
        return False
    if len(writers) == 1:
        return writers[0].points == size and not writers[0].reduction_axes
    boxes = [b for n in writers if (b := _box(n)) is not None]
    apart = all(any(x[1] < y[0] or y[1] < x[0] for x, y in zip(a, b, strict=True)) for a, b in combinations(boxes, 2))
    return len(boxes) == len(writers) and apart and sum(n.points for n in writers) == size


def _box(nest: Nest) -> Box | None:
    """The box that a nest writes when its subscripts are distinct axes plus constants."""
    box: list[tuple[int, int]] = []
    used: list[Axis] = []
    for i in nest.index:
        form, span = linear(i), bounds(i)
        if form is None or span is None or len(form.terms) > 1:
            return None
        for atom, c in form.terms:
            if not isinstance(atom, Axis) or c != 1:
                return None
            used.append(atom)
        box.append(span)
    return tuple(box) if len(set(used)) == len(used) == len(nest.axes) else None
