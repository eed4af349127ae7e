"""Operands as planes and kernels: the table of axes of `layout`, as numpy views that convert both ways.

| opcode | features, kernels | forward | backward | weight gradient |
|---|---|---|---|---|
| convolution, linear | first two axes swapped | no, no | no, yes | yes, yes |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dlc.base.diagnostics import error
from dlc_backend_s2train.codes import Slot, Stage
from dlc_backend_s2train.frames.head import Memory
from dlc_backend_s2train.frames.lad import Bits
from dlc_backend_s2train.frames.parts import STRIP, Index
from dlc_backend_s2train.program import Geometry


@dataclass(frozen=True)
class View:
    """How an operand becomes planes or kernels."""

    slot: Slot
    """Where an instruction of this stage names it."""
    what: str
    """Which tensor of the operator it is: x, w or y (dy)."""
    swap: bool
    """Its first two axes change places."""


VIEWS: Final = {
    (Stage.FORWARD, Memory.FM): View("src0", "x", False),
    (Stage.FORWARD, Memory.WM): View("src1", "w", False),
    (Stage.BACKWARD, Memory.FM): View("src0", "y", False),
    (Stage.BACKWARD, Memory.WM): View("src1", "w", True),
    (Stage.WEIGHT_GRADIENT, Memory.FM): View("src1", "x", True),
    (Stage.WEIGHT_GRADIENT, Memory.WM): View("src0", "y", True),
}


def shape_of(what: str, g: Geometry) -> tuple[int, int, int, int]:
    """Shape of the operator's x, w or y."""
    return {
        "x": (g.n, g.ci, g.hi, g.wi),
        "w": (g.co, g.ci // g.groups, g.kh, g.kw),
        "y": (g.n, g.co, g.ho, g.wo),
    }[what]


def arrange(view: View, memory: Memory, tensor: Bits, g: Geometry, linear: bool) -> Bits:
    """The operand as [groups, u or k, c, h, w], without the zeros that layouts put in.

    Args:
        view: Which operand.
        memory: As planes (FM) or as kernels (WM).
        tensor: Its elements, of `shape_of`'s shape or another with as many.
        g: The geometry of what the instruction reads.
        linear: Features become rows of a single plane, blocks of 16 outputs the columns of a kernel.

    Raises:
        DlcError: "bad-operand": another number of elements.
    """
    shape = shape_of(view.what, g)
    if tensor.size != np.prod(shape, dtype=object):
        message = f"frames: operand {view.slot} has {tensor.size} elements, its geometry wants {shape}"
        raise error("bad-operand", message, help="tensors and geometries of a program go together")
    found = _groups(tensor.reshape(shape), view, g.groups)
    if not linear:
        return found
    matrix = found[0, :, :, 0, 0]
    if memory is Memory.FM:
        return matrix.T[None, None, :, :, None]
    rows, features = matrix.shape
    filled = np.zeros((-(-rows // STRIP) * STRIP, features), np.uint16)
    filled[:rows] = matrix
    return filled.reshape(-1, STRIP, features).transpose(0, 2, 1)[None, :, :, None, :]


def restore(view: View, memory: Memory, arranged: Bits, g: Geometry, linear: bool) -> Bits:
    """The operand, of `shape_of`'s shape, from what `arrange` gave."""
    shape = shape_of(view.what, g)
    found = arranged
    if linear:
        swapped = (shape[1], shape[0]) if view.swap else (shape[0], shape[1])
        if memory is Memory.FM:
            matrix = arranged[0, 0, :, :, 0].T
        else:
            matrix = arranged[0, :, :, 0, :].transpose(0, 2, 1).reshape(-1, swapped[1])[: swapped[0]]
        found = matrix[None, :, :, None, None]
    if view.swap:
        found = found.swapaxes(1, 2)
    if view.what == "w":
        return found.reshape(shape)
    return found.swapaxes(0, 1).reshape(shape)


def _groups(tensor: Bits, view: View, groups: int) -> Bits:
    """[groups, first, second, h, w]: y and x are split along their channels, w along its outputs."""
    first, second, h, w = tensor.shape
    if view.what == "w":
        found = tensor.reshape(groups, first // groups, second, h, w)
    else:
        found = tensor.reshape(first, groups, second // groups, h, w).swapaxes(0, 1)
    return found.swapaxes(1, 2) if view.swap else found


def slices(index: Index) -> tuple[slice, slice]:
    """(places, positions): element places[i] is that at positions[i] of the axis, all others are zeros."""
    if index.zoom > 1:
        # The step is 1: every zoom-th place has an element.
        place = -index.begin % index.zoom
        position = (index.begin + place) // index.zoom
        place += max(-position, 0) * index.zoom
        position = max(position, 0)
        count = max(min(-(-(index.count - place) // index.zoom), index.limit - position), 0)
        return slice(place, place + count * index.zoom, index.zoom), slice(position, position + count)
    step = index.step
    low, high = (
        (-index.begin, index.limit - index.begin) if step > 0 else (index.begin - index.limit + 1, index.begin + 1)
    )
    first = max(-(-low // abs(step)), 0)
    last = max(min(-(-high // abs(step)), index.count), first)
    begin, end = index.begin + step * first, index.begin + step * last
    if first == last:
        return slice(0, 0), slice(0, 0)
    return slice(first, last), slice(begin, end if end >= 0 else None, step)


def gather(tensor: Bits, rows: Index, columns: Index) -> Bits:
    """[…, rows, columns] of `tensor`'s last two axes."""
    (row_places, row_positions), (column_places, column_positions) = slices(rows), slices(columns)
    found = np.zeros((*tensor.shape[:-2], rows.count, columns.count), np.uint16)
    found[..., row_places, column_places] = tensor[..., row_positions, column_positions]
    return found


def scatter(tensor: Bits, values: Bits, rows: Index, columns: Index) -> bool:
    """Put back what `gather` took, in place; False if `values` are not zeros where they should be."""
    (row_places, row_positions), (column_places, column_positions) = slices(rows), slices(columns)
    kept = values[..., row_places, column_places]
    tensor[..., row_positions, column_positions] = kept
    return np.count_nonzero(values) == np.count_nonzero(kept)
