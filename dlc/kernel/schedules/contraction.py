"""Sums of products, and other reductions along whole vectors: convolution, matrix product, their gradients, pooling.

    for batch: for row blocks: [copy of a] for column panels: [copy of b] for rows: register tile, then followers

By roles of axes: the column axis has unit stride in the output and becomes lanes. If one operand of a product has it
and the other has not, that other one is read as scalars for a tile of rows; if both have it (depthwise convolution) or
there is one operand (pooling), tiles have one row. Blocks keep what is read again within the second-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.base.types import f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import For, If, Stmt, axes_of, wrap
from dlc.kernel.nest import Param
from dlc.kernel.schedules.blocked import VECTORS, Blocked, blocked
from dlc.kernel.schedules.contraction_rows import block_start, panel_rows
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.groups import Group, plain_write
from dlc.kernel.schedules.heights import row_limit, rows_per_block
from dlc.kernel.schedules.loop_plan import LoopPlan, plan_loops, tile_of, widths
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.operands import Operands, prepare
from dlc.kernel.schedules.scalar_loops import starting
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.tile import Parts
from dlc.kernel.simplify import simplify


@dataclass(frozen=True)
class Scheduled:
    """Statements, and the buffers they need."""

    body: tuple[Stmt, ...]
    buffers: tuple[Param, ...]


def contraction(group: Group, kernel: Kernel, machine: Machine, written: frozenset[str]) -> Scheduled | None:
    """The group by register tiles, or None when it does not have this form."""
    nest = group.nests[0]
    if not _applies(group, kernel, machine) or nest.out in written:
        return None
    copied = blocked(group, kernel, machine)
    found = None if copied is None else _on_copies(copied, kernel, machine)
    if found is not None:
        return found
    for column in _columns(group, kernel):
        for packed in (False, True):
            operands = prepare(group, kernel, column, machine, packed)
            found = None if operands is None else _scheduled(operands, kernel, machine)
            if found is not None:
                return found
    return None


def _applies(group: Group, kernel: Kernel, machine: Machine) -> bool:
    nest = group.nests[0]
    shape, dtype = kernel.tensors[nest.out].shape, kernel.tensors[nest.out].dtype
    kept = [a for a in nest.axes if a not in nest.reduction_axes]
    return (
        machine.vector_bytes >= 16
        and nest.reduce is not None
        and bool(nest.reduction_axes)
        and all(a.extent > 0 for a in nest.axes)
        and dtype in (f32, f64)
        and plain_write(nest, shape)
        and not any(kernel.tensors[n.out].type.dense for n in group.nests)  # tiles may run past the end of a size
        and set(kept) == set(group.shared)
        and all(n.reduce is None and set(n.axes) == set(group.shared) for n in group.nests[1:])
    )


def _columns(group: Group, kernel: Kernel) -> list[Axis]:
    """Output axes along which the last result is contiguous."""
    last = group.nests[-1]
    at = offset(last.index, kernel.tensors[last.out].shape)
    return [a for a in group.shared if coefficient(at, a) == 1]


def _scheduled(o: Operands, kernel: Kernel, machine: Machine) -> Scheduled | None:
    whole = Kernel((*kernel.params, *o.buffers), kernel.results, kernel.locals, kernel.nests)
    # Copies are written in terms of these axes, so they must stay.
    named = axes_of((*o.copies, *(o.panel.fill if o.panel else ())))
    frozen = (o.column, *([o.block.axis] if o.block else ()), *(a for a in o.group.shared if a in named))
    scope = open_scope(o.group, whole, frozen)
    plan = plan_loops(o, scope, whole, machine, named)
    for vectors in widths(plan, machine):
        plan = replace(plan, size=_block_size(o, plan, machine, vectors))
        body = _panels(plan, vectors, machine)
        if body is not None:
            # All accumulators of a tile are in registers, whatever its shape.
            held = machine.registers * plan.tile.lanes
            waiting = plan.height * vectors * plan.tile.lanes if plan.outside else 0
            type = kernel.tensors[plan.tile.product.out].type
            own = (Param("tile", type.with_shape((held,))), Param("part", type.with_shape((waiting,))))
            return Scheduled(wrap(plan.outer, body), (*o.buffers, *own))
    return None


def _on_copies(c: Blocked, kernel: Kernel, machine: Machine) -> Scheduled | None:
    """Parts of the reduction outermost, their sums in the result; then row blocks and panels."""
    whole = Kernel((*kernel.params, *c.operands.buffers), kernel.results, kernel.locals, kernel.nests)
    scope = open_scope(c.operands.group, whole, (c.row, *c.outer, *c.around))
    tiling = tile_of(scope, whole, machine, c.row, c.column)
    if c.column not in scope.shared:
        return None
    if c.parts:
        tiling = replace(tiling, parts=Parts(tiling.product.out, tiling.product.index[0], False, True))
    block = c.operands.block
    size = block.size if block else c.row.extent
    at = block.axis if block else None
    plan = LoopPlan(replace(c.operands, column=c.column), tiling, (), (), at, size, None, False, c.around)
    body = _panels(plan, VECTORS, machine)
    if body is None:
        return None
    result = kernel.tensors[tiling.product.out]
    start = starting(result, kernel) if c.parts else ()
    held = Param("tile", result.type.with_shape((machine.registers * tiling.lanes,)))
    loops = wrap(c.outer, (*c.before, *wrap(c.parts, body)))
    return Scheduled((*start, *loops), (*c.operands.buffers, held))


def _panels(plan: LoopPlan, vectors: int, machine: Machine) -> tuple[Stmt, ...] | None:
    """All columns: full panels in a loop, then what is left."""
    width = vectors * plan.tile.lanes
    extent = plan.tile.column.extent
    if plan.tile.column.limit is not None:
        some = _some_columns(plan, vectors, machine)
        return None if some is None else _blocks(plan, wrap(plan.around, some))
    full, rest = divmod(extent, width)
    panel = plan.operands.panel
    before = () if panel is None else panel.fill
    cb = Axis("cb", -(-extent // width)) if panel is None else plan.operands.panel_axis
    body: list[Stmt] = []
    if full:
        rows = panel_rows(plan, cb * width, vectors, width, machine)
        if rows is None:
            return None
        body.append(For(cb, Const(0), Const(full), (*before, *rows)))
    if rest and panel is not None:
        rows = panel_rows(plan, cb * width, vectors, rest, machine)
        if rows is None:
            return None
        body.append(For(cb, Const(full), Const(full + 1), (*before, *rows)))
    elif rest:
        rows = _last_columns(plan, rest, machine)
        if rows is None:
            return None
        body += rows
    return _blocks(plan, wrap(plan.around, tuple(body)))


def _some_columns(plan: LoopPlan, vectors: int, machine: Machine) -> tuple[Stmt, ...] | None:
    """The columns up to a limit: panels, then single vectors. The last may run past the limit, where there is room."""
    lanes, extent, limit = plan.tile.lanes, plan.tile.column.extent, plan.tile.column.stop
    panel, body = plan.operands.panel, list[Stmt]()
    width = vectors * lanes
    if panel is not None:
        cb, full = plan.operands.panel_axis, extent // width
        panels = simplify((limit + (width - 1)) // width)
        for first, stop, columns in ((0, apply("min", panels, full), width), (full, panels, extent % width)):
            rows = panel_rows(plan, cb * width, vectors, columns, machine) if columns else ()
            if rows is None:
                return None
            body += [For(cb, Const(first), stop, (*panel.fill, *rows))] if rows else []
        return tuple(body)
    start: Expr = Const(0)
    for count in dict.fromkeys((vectors, 1)):
        step = count * lanes
        last = simplify(limit // step * step if count > 1 else apply("min", limit, extent - extent % lanes))
        at = Axis("cv", extent)
        rows = panel_rows(plan, at, count, step, machine) if extent >= step else ()
        if rows is None:
            return None
        if rows:
            body.append(For(at, start, last, rows, step))
            start = last if count > 1 else start
    if extent % lanes:
        rows = _last_columns(plan, extent % lanes, machine)
        if rows is None:
            return None
        body.append(If(apply("gt", limit, extent - extent % lanes), rows))
    return tuple(body)


def _last_columns(plan: LoopPlan, rest: int, machine: Machine) -> tuple[Stmt, ...] | None:
    """Columns behind the full panels: exactly, by computing some again, or by reading padding that exists."""
    lanes, extent = plan.tile.lanes, plan.tile.column.extent
    vectors = -(-rest // lanes)
    width = vectors * lanes
    if width != rest and extent >= width and not plan.once:
        again = panel_rows(plan, Const(extent - width), vectors, width, machine)
        if again is not None:
            return again
    if width != rest and not _padding_exists(plan, extent - rest, width):
        return None
    return panel_rows(plan, Const(extent - rest), vectors, rest, machine)


def _padding_exists(plan: LoopPlan, first: int, width: int) -> bool:
    """Whether every load of the product stays inside its tensor although the columns run past their end."""
    from dlc.kernel.schedules.flat import at
    from dlc.kernel.simplify import bounds

    stack: list[Expr] = [at(plan.tile.product.body, {plan.tile.column: Const(first) + Axis("lane", width)})]
    while stack:
        e = stack.pop()
        if isinstance(e, Load):
            span = bounds(e.index[0])
            if span is None or span[0] < 0 or span[1] >= plan.operands.sizes[e.param]:
                return False
        elif isinstance(e, Apply):
            stack.extend(e.args)
    return True


def _blocks(plan: LoopPlan, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The loop over row blocks around the panels, with the copy of the rows' operand."""
    copies = plan.operands.copies
    if plan.block is None or not plan.blocked:
        return (*copies, *body)
    start, stop = block_start(plan), plan.block.stop
    if plan.operands.block is None:  # a copy of all rows serves all blocks
        return (*copies, For(start, Const(0), stop, body, plan.size))
    return (For(start, Const(0), stop, (*copies, *body), plan.size),)


def _block_size(o: Operands, plan: LoopPlan, machine: Machine, vectors: int) -> int:
    """Blocks of the tile's own axis are whole tiles; those of a copy are as large as the copy."""
    if o.block is not None or plan.block is None or plan.block != plan.tile.row or not plan.blocked:
        return plan.size
    return rows_per_block(plan.block.extent, plan.size, row_limit(vectors, machine.registers), vectors)
