"""Where an op that holds graphs works: memory of its bodies, and second places of the values that it carries.

    workspace = memory of a body ‖ a place for each carried value

Only one body runs at a time, so branches share the memory. An iteration reads a carried value in one place and writes
it to another: the result of the op is one of the two. A scan that stores its carried values needs no second place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlc.graph.graph import Graph
from dlc.graph.loops import Loop, Scan
from dlc.graph.op import Op

ALIGN = 64
"""Bytes that every offset is a multiple of."""


@dataclass(frozen=True)
class RegionMemory:
    """Bytes from the beginning of an op's workspace."""

    seconds: tuple[int, ...]
    """Where the second place of each carried value begins; those of values without elements are not used."""
    size: int
    """Of the whole workspace. The memory of a body is at its beginning."""


def region_memory(op: Op, arena: Callable[[Graph], int]) -> RegionMemory:
    """The workspace of an op that holds graphs; `arena` says what each of them needs."""
    end = _aligned(max(map(arena, op.bodies), default=0))
    seconds: list[int] = []
    if isinstance(op, Loop) or (isinstance(op, Scan) and not op.stored):
        for value in op.carried:
            seconds.append(end)
            end = _aligned(end + value.type.nbytes)
    return RegionMemory(tuple(seconds), end)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
