"""Register tiles of a product both of whose operands are copied part by part: see `dlc.kernel.schedules.blocked`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import wrap
from dlc.kernel.schedules.blocked import VECTORS, blocked
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.contraction import applied, check_contraction, panels_of
from dlc.kernel.schedules.loop_plan import LoopPlan, tile_of
from dlc.kernel.schedules.scalar_loops import starting
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.tile import Parts
from dlc.kernel.schedules.unfit import Unfit
from dlc.spec import option


@dataclass(frozen=True)
class Copies(Choice):
    """Parts of the reduction outermost, their sums in the result; then blocks of rows and panels of columns."""

    name = "copies"
    rows: int = option(0, "most rows of a tile", low=0)
    block: int = option(0, "rows that are copied at a time", low=0)
    depth: int = option(0, "steps of the reduction that are copied at a time", low=0)

    def apply(self, place: Place) -> Applied:
        check_contraction(place)
        kernel, machine = place.kernel, place.machine
        if self.rows * VECTORS > machine.registers:
            raise Unfit(f"{self.rows} rows of {VECTORS} vectors are more than {machine.registers} registers hold")
        c = blocked(place.group, kernel, machine, self.rows, self.block, self.depth)
        whole = Kernel((*kernel.params, *c.operands.buffers), kernel.results, kernel.locals, kernel.nests)
        scope = open_scope(c.operands.group, whole, (c.row, *c.outer, *c.around))
        tiling = tile_of(scope, whole, machine, c.row, c.column)
        if c.column not in scope.shared:
            raise Unfit("the axes of the columns cannot be walked as one")
        if c.parts:
            tiling = replace(tiling, parts=Parts(tiling.product.out, tiling.product.index[0], False, True))
        block = c.operands.block
        size = block.size if block else c.row.extent
        at = block.axis if block else None
        operands = replace(c.operands, column=c.column)
        plan = LoopPlan(operands, tiling, (), (), at, size, None, False, c.around, VECTORS, c.tall)
        body = panels_of(plan, machine)
        start = starting(kernel.tensors[tiling.product.out], kernel) if c.parts else ()
        loops = (*start, *wrap(c.outer, (*c.before, *wrap(c.parts, body))))
        choice = Copies(c.tall, size, c.depth)
        return applied(choice, place, plan, loops, c.operands.buffers)
