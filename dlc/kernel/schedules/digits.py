"""One row times packed weights with a scale for each block of terms, by dot products of bytes.

    for blocks: digits of x;  for columns: for blocks: t += s·(Σ digits·w - z·Σ x)

Where a machine multiplies and adds 64 bytes at once, three digits of 7 and 8 bits for each element of the row take half
of the time that weights as floats do. They are exact but for rounding to 2⁻²² of the largest element of a block, which
is what `--math` says of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from dlc.base.types import i8
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.contraction import applied, check_contraction, columns_of_group, panels_of
from dlc.kernel.schedules.digit_tiles import digits_of, taken_apart
from dlc.kernel.schedules.loop_plan import plan_loops
from dlc.kernel.schedules.machine import PANEL, WIDE_PANEL
from dlc.kernel.schedules.operands import prepare
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.spec import option


@dataclass(frozen=True)
class DigitTiles(Choice):
    """Tiles of one row whose factors are packed weights, in blocks with a scale, and digits of what they multiply."""

    name = "digits"
    vectors: int = option(0, "vectors of a tile's row", low=0)

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        if place.machine.digits and any(p.packed for p in place.kernel.params):
            yield cls()

    def apply(self, place: Place) -> Applied:
        machine, group, kernel = place.machine, place.group, place.kernel
        require(((machine.digits, "the mode, or the machine, has no dot products of digits"),))
        check_contraction(place)
        columns = columns_of_group(place)
        if len(columns) != 1 or group.shared != (columns[0],):
            raise Unfit("its columns are not all that its result has")
        o = prepare(group, kernel, columns[0], machine, 0, 0)
        if o.buffers:
            raise Unfit("an operand has to be copied")
        plan = plan_loops(o, open_scope(o.group, kernel, columns), kernel, machine, set())
        digits = digits_of(plan.tile)
        tensors = {p.name: p.dtype for p in digits.buffers}
        tile = replace(plan.tile, digits=True, dtypes={**plan.tile.dtypes, **tensors})
        width = PANEL if columns[0].extent % WIDE_PANEL else WIDE_PANEL
        vectors = self.vectors or max(1, width // tile.lanes)
        plan = replace(plan, tile=tile, vectors=vectors)
        if vectors * len(tensors) > machine.registers:
            raise Unfit(f"the sums of {vectors} vectors are more than {machine.registers} registers hold")
        body = (*taken_apart(tile, digits), *panels_of(plan, machine))
        found = applied(replace(self, vectors=vectors), place, plan, body, digits.buffers)
        size = sum(b.type.nbytes for b in found.buffers)
        require(((size <= machine.stack, f"its digits take {size} bytes of a stack that may have {machine.stack}"),))
        return replace(found, buffers=tuple(replace(b, stack=True, digits=b.dtype is i8) for b in found.buffers))
