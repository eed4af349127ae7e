"""The schedules that need no tiles: loops over elements, which every group has, and heaps for ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.base.types import Type, i64
from dlc.kernel.loops.rename import rename
from dlc.kernel.schedules.abreast import abreast
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.by_vectors import by_vectors
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.fold import CHUNK, PARTIAL, STAGE, partial_sums, staged
from dlc.kernel.schedules.picks import with_picks
from dlc.kernel.schedules.ranking import heap_loops
from dlc.kernel.schedules.scalar_loops import Numbers, outer_loops, scalar_group
from dlc.kernel.schedules.unfit import Unfit
from dlc.spec import option


@dataclass(frozen=True)
class Loops(Choice):
    """Loops over elements in an order that makes stores contiguous; sums along contiguous elements by vectors."""

    name = "loops"
    innermost: int = option(0, "which of the outer loops is the innermost of them, counted from the outermost", low=0)
    sums: int = option(0, "partial results of a sum along contiguous elements: vectors that are added up", low=0)
    chunk: int = option(0, "elements that are evaluated at a time, where such a sum is of what has no vectors", low=0)
    rows: int = option(0, "rows that are computed at the same time, where each waits for sums of its own", low=0)

    def apply(self, place: Place) -> Applied:
        if place.scope is None:
            raise Unfit("it ranks elements")
        if self.sums > place.machine.registers:
            raise Unfit(f"{self.sums} partial results are more than {place.machine.registers} registers hold")
        numbers = Numbers(self.innermost, self.sums or PARTIAL, self.chunk or CHUNK)
        loops = scalar_group(place.scope, place.kernel, place.machine, place.written, numbers)
        loops = with_picks(by_vectors(loops, place), place)
        sums, stages = partial_sums(loops), staged(loops)
        chunk = max((size for _, size in stages.values()), default=0)
        if (self.sums and not sums) or (self.chunk and not chunk):
            raise Unfit("it has no such sum along contiguous elements")
        outer = len(outer_loops(place.scope))
        choice = replace(self, innermost=self.innermost or outer if outer > 1 else 0, sums=sums, chunk=chunk)
        found = Applied(choice, loops, ())
        if stages:
            own = f"{STAGE}{place.number}"
            names = {n: own if len(stages) == 1 else f"{own}_{t}" for n, (t, _) in stages.items()}
            buffers = tuple(buffer(names[n], Type(t, (size,))) for n, (t, size) in stages.items())
            found = Applied(choice, rename(loops, names), buffers)
        if self.rows == 1:
            return found
        found, rows = abreast(found, self.rows, place)
        if self.rows > rows:
            raise Unfit("it has no rows that wait for sums of their own")
        return replace(found, choice=replace(choice, rows=rows if rows > 1 else 0))


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
