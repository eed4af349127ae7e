"""The schedules that need no tiles: loops over elements, which every group has, and heaps for ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.base.types import Type, i64
from dlc.kernel.loops.rename import rename
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.fold import CHUNK, STAGE, stages
from dlc.kernel.schedules.ranking import heap_loops
from dlc.kernel.schedules.scalar_loops import scalar_group
from dlc.kernel.schedules.unfit import Unfit


@dataclass(frozen=True)
class Loops(Choice):
    """Loops over elements in an order that makes stores contiguous; sums along contiguous elements by vectors."""

    name = "loops"

    def apply(self, place: Place) -> Applied:
        if place.scope is None:
            raise Unfit("it ranks elements")
        loops = scalar_group(place.scope, place.kernel, place.machine, place.written)
        if not stages(loops):
            return Applied(self, loops, ())
        staged = f"{STAGE}{place.number}"
        of = Type(place.kernel.tensors[place.group.nests[0].out].dtype, (CHUNK,))
        return Applied(self, rename(loops, {STAGE: staged}), (buffer(staged, of),))


@dataclass(frozen=True)
class Heap(Choice):
    """A heap that its elements leave in order, where a nest counts for each how many come before it."""

    name = "heap"

    def apply(self, place: Place) -> Applied:
        ranking = place.ranking
        if ranking is None:
            raise Unfit("it does not count how many elements come before each")
        name = f"heap{place.number}"
        heap = replace(buffer(name, Type(i64, (ranking.first,))), below=ranking.place.extent)
        return Applied(self, heap_loops(ranking, place.kernel, name), (heap,))
