"""Where the buffers of a kernel lie in the memory that it works in, and how much of that it needs.

r[batch] sums, 4,096 bytes a row     →    t0 at 0, t1 at (4·batch + 63) // 64 · 64

What iterations of a parallel loop have to themselves lies there once for each thread, one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dlc.base.extents import Dim, Extent
from dlc.base.types import Type
from dlc.kernel.loops.program import Buffer, LoopProgram
from dlc.kernel.schedules.overrun import lengths

_ALIGN: Final = 64


def workspace_places(program: LoopProgram) -> tuple[Mapping[str, int], int]:
    """Offset of every buffer in the workspace that the caller passes, and the bytes of it (64-aligned).

    Both are for the largest sizes; `open_places` has them for those of a call.
    """
    return _places(program, {b.name: b.size for b in program.buffers})


def open_places(program: LoopProgram) -> tuple[Mapping[str, Extent], Extent]:
    """The same for any sizes."""
    return _places(program, lengths(program))


def strides(program: LoopProgram) -> Mapping[str, Any]:
    """For each buffer of the workspace of which there are copies, how many elements lie between two: any sizes."""
    sizes = lengths(program)
    return {b.name: _bytes(b, sizes) // b.dtype.itemsize for b in program.buffers if b.copies > 1}


def _bytes(b: Buffer, sizes: Mapping[str, Any]) -> Any:
    return (sizes[b.name] * b.dtype.itemsize + (_ALIGN - 1)) // _ALIGN * _ALIGN


def aligned_elements(of: Type) -> int:
    """How many elements lie between two copies of what one function works in for another, of the largest sizes."""
    return -(-of.nbytes // _ALIGN) * _ALIGN // of.dtype.itemsize


def _places(program: LoopProgram, sizes: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    places: dict[str, Any] = {}
    end: Any = 0
    buffers = [b for b in program.buffers if b.name in program.used and not b.stack]
    # Numbers first: what follows an open size has an offset that takes arithmetic.
    for b in sorted(buffers, key=lambda b: isinstance(sizes[b.name], Dim)):
        places[b.name] = end
        end += _bytes(b, sizes) * b.copies
    return places, end
