"""Nests that share rows run block by block, so that what lies between them stays in a cache.

    for batch: [factors in panels]; for blocks of rows: products, reductions along rows, products

What a block does is scheduled like a kernel of its own. Rows that no whole block has are a block of fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from dlc.kernel.expr import Axis, Const, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Block, Buffer, For, Stmt, wrap
from dlc.kernel.loops.rename import rename
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.candidate import best, tried
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.contraction import LEAST as LEAST_BYTES
from dlc.kernel.schedules.contraction import PANEL_VECTORS
from dlc.kernel.schedules.families import FAMILIES
from dlc.kernel.schedules.groups import has_reuse, partition
from dlc.kernel.schedules.heights import row_limit
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.stages import BlockKernels, Stages, overwritten
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.spec import option

PARTS = (1 / 4, 7 / 8)
"""Of the second-level cache, what may lie between the nests of a block; the rest is for what all rows read."""
LEAST = 8
"""Rows of a block: of fewer, what all rows read is read too often."""


@dataclass(frozen=True)
class Blocks(Choice):
    """Products and what lies between them, a block of the rows that they share at a time."""

    name = "blocks"
    rows: int = option(0, "rows that are computed at a time", low=0)

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        yield from (cls(rows=rows) for rows in dict.fromkeys(_fitting(_stages(place), place)))

    def apply(self, place: Place) -> Applied:
        s = _stages(place)
        rows = min(self.rows or _fitting(s, place)[0], s.row.extent)
        writer = _Writer(place, BlockKernels(s, place.kernel))
        body = writer.body(rows)
        return Applied(replace(self, rows=rows), body, tuple(writer.buffers.values()))


def _stages(place: Place) -> Stages:
    """The nests of a place, if they may run by blocks. Raises Unfit."""
    s, machine = place.stages, place.machine
    if s is None:
        raise Unfit("its nests share no rows")
    conditions = (
        (not machine.ordered, "sums keep the order of their axes"),
        (machine.vector_bytes >= LEAST_BYTES, f"vectors have {machine.vector_bytes} bytes, tiles need {LEAST_BYTES}"),
        (not {n.out for n in s.group.nests} & place.written, "its results have a value before"),
    )
    require(conditions)
    return s


def _fitting(s: Stages, place: Place) -> list[int]:
    """Rows of blocks that the cache holds, as whole tiles: those that leave room, then as many as there is room for.

    Raises:
        Unfit: it holds a few only.
    """
    extent, machine = s.row.extent, place.machine
    writer = _Writer(place, BlockKernels(s, place.kernel))
    writer.between(extent)
    row = max(1, sum(b.type.nbytes for b in writer.buffers.values()) // extent)
    found: list[int] = []
    for part in PARTS:
        most = int(machine.l2 * part) // row
        tall = row_limit(PANEL_VECTORS, machine.registers)
        rows = extent if most >= extent else most // tall * tall or most
        found += [rows] if rows >= min(LEAST, extent) else []
    if not found:
        raise Unfit(f"the second-level cache holds what lies between products of {machine.l2 // row} rows only")
    return found


@dataclass
class _Writer:
    """Writes the loops of one group."""

    place: Place
    kernels: BlockKernels
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])

    def body(self, rows: int) -> tuple[Stmt, ...]:
        """The loops over batches and blocks."""
        s = self.kernels.stages
        whole, rest = divmod(s.row.extent, rows)
        number = Axis("rb", whole)
        panels, instead = self.kernels.panels() if whole > 1 else (Kernel((), (), (), ()), dict[int, Load]())
        out: list[Stmt] = []
        if panels.results:
            out += self._loops(panels, len(s.group.nests) * 2)
            for p in panels.results:
                self._keep(buffer(p.name, p.type))
        if whole > 1:
            block = self.kernels.block(number * rows, rows, panels, instead)
            out.append(For(number, Const(0), Const(whole), self._loops(block)))
        else:
            out.append(Block(self._loops(self.kernels.block(Const(0), rows, panels, instead))))
        if rest:
            out.append(Block(self._loops(self.kernels.block(Const(whole * rows), rest, panels, instead))))
        return wrap(tuple(self.kernels.batch.values()), tuple(out))

    def between(self, rows: int) -> None:
        """Have the buffers that lie between the nests of a block, without its loops."""
        self._places(self.kernels.block(Const(0), rows, Kernel((), (), (), ()), {}), 0)

    def _places(self, kernel: Kernel, number: int) -> tuple[list[Place], Mapping[str, str]]:
        """(the groups of a kernel, whose locals become buffers, those buffers that lie where another one does)."""
        machine = replace(self.place.machine, threads=1)
        groups = partition(kernel)
        scopes = [open_scope(g, kernel) for g in groups]
        narrow = {name: scope.tensors[name].type for scope in scopes for name in scope.narrow}
        scalars = {name for scope in scopes for name in scope.scalars}
        # Tiles may compute elements twice.
        tiled = {n.out for g in groups if any(map(has_reuse, g.nests)) for n in g.nests}
        stored = kernel.local_numbers.keys() - narrow.keys() - scalars
        same = {name: at for name, at in overwritten(kernel, stored).items() if name not in tiled}
        for p in kernel.locals:
            if p.name not in scalars and p.name not in same:
                self._keep(buffer(p.name, narrow.get(p.name, p.type)))
        written = frozenset[str]()
        places: list[Place] = []
        for k, (group, scope) in enumerate(zip(groups, scopes, strict=True), number):
            places.append(Place(group, kernel, machine, written, k, scope, over=frozenset(same)))
            written |= {n.out for n in group.nests}
        return places, same

    def _loops(self, kernel: Kernel, number: int = 0) -> tuple[Stmt, ...]:
        """A kernel as loops, of the families that take the fewest cycles."""
        out: list[Stmt] = []
        places, same = self._places(kernel, number)
        for place in places:
            found = best(list(tried(place, FAMILIES)))
            for b in found.buffers:
                self._keep(b)
            out += found.body
        return rename(tuple(out), same)

    def _keep(self, b: Buffer) -> None:
        """A buffer, which the last block may have as a smaller one."""
        known = self.buffers.get(b.name)
        if known is None or known.size < b.size:
            self.buffers[b.name] = b
