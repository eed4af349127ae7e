"""The operand of the rows copied, although it could be read as it lies: a block of rows close together.

Elements of one column of a matrix whose rows are a power of two long share a few lines of a cache, so that the rows of
a tile push each other out: each step of the sum waits for the next cache. In the copy rows have another distance.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from dlc.base.types import Type
from dlc.kernel.expr import Apply, Axis, Load
from dlc.kernel.nest import Param
from dlc.kernel.schedules.flat import axis_inside, offset
from dlc.kernel.schedules.gathered import Source, row_block
from dlc.kernel.schedules.heights import row_limit, rows_per_block
from dlc.kernel.schedules.loop_plan import LoopPlan
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.pack import Block
from dlc.kernel.schedules.unfit import Unfit, require

LEAST: Final = 2
"""Tiles of a block: fewer do not fetch ahead."""


def rows_packed(plan: LoopPlan, machine: Machine, wanted: int) -> LoopPlan:
    """The plan with its rows copied.

    Args:
        plan: Its product reads the rows as they lie.
        machine: What it runs on.
        wanted: Rows that are copied at a time; 0: as many as half the second-level cache holds, or, where columns come
            from beyond it, as few tiles as take longer than these: more save no time, and take memory.

    Raises:
        Unfit: rows are copied already, or are not one axis.
    """
    t, o = plan.tile, plan.operands
    conditions = (
        (not o.copies, "the operand of the rows is copied for another reason"),
        (t.row is not None and not plan.between, "its rows are not along one axis"),
        (t.row is None or t.row.limit is None, "a loop ends at a size of the call"),
    )
    require(conditions)
    assert t.row is not None and isinstance(t.product.body, Apply)
    row = t.row
    a = next(e for e in t.product.body.args if axis_inside(e, row))
    others = (e for e in t.product.body.args if isinstance(e, Load) and e is not a)
    columns = sum(o.sizes[e.param] * t.dtypes[e.param].itemsize for e in others)
    if not isinstance(a, Load):
        raise Unfit("the operand of the rows is computed")
    inner = (*([plan.outside] if plan.outside else ()), *t.reduced)
    param = Param(a.param, Type(t.dtypes[a.param], (o.sizes[a.param],)))
    fitting = machine.l2 // 2 // (math.prod(x.extent for x in inner) * param.dtype.itemsize)
    tall = row_limit(2, machine.registers)
    if columns > machine.l2:
        enough = max(LEAST * tall, math.ceil(machine.operations * machine.vector_bytes / machine.memory_rate))
        fitting = min(fitting, -(-enough // tall) * tall)
    size = wanted or rows_per_block(row.extent, fitting, tall, 2)
    block = Block(row, Axis("y0", row.extent), size) if size < row.extent else None
    source = Source((a,), (param,), None)
    packed = row_block(source, row, inner, block)
    buffer, load = packed.buffer, Load(packed.buffer.name, (offset(packed.load.index, packed.buffer.shape),))
    args = tuple(load if e is a else e for e in t.product.body.args)
    product = replace(t.product, body=replace(t.product.body, args=args))
    t = replace(t, product=product, dtypes={**t.dtypes, buffer.name: buffer.dtype})
    sizes = {**o.sizes, buffer.name: buffer.type.capacity}
    o = replace(o, block=block, copies=packed.fill, buffers=(*o.buffers, buffer), sizes=sizes)
    return replace(plan, operands=o, tile=t, block=row, size=size)
