"""The operands of a contraction, as they are or as copies: which is read along rows, which along columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, loads, map_loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Stmt
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.groups import Group
from dlc.kernel.schedules.heights import row_limit
from dlc.kernel.schedules.machine import PANEL, Machine
from dlc.kernel.schedules.pack import Block, Packed, evaluated, halo, inside, is_bare, panel
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import bounds


@dataclass(frozen=True)
class Operands:
    """A group whose product reads copies where that is faster.

    Attributes:
        group: The group, its first nest reading the copies.
        column: The axis that becomes lanes.
        has_rows: One operand lacks the column, so that tiles may have several rows.
        block: The rows that one copy of the row operand serves.
        copies: Loops that write the row operand's copy.
        panel: The column operand's copy, one panel at a time; None: read as it is.
        panel_axis: The axis that counts panels.
        buffers: The copies' memory.
        row_bytes, column_bytes: What the operands occupy, for one pass over the outer loops.
        sizes: Elements of every tensor that the product reads.
        divisible: The axis whose blocks a copy of the row operand may serve, if there is one.
    """

    group: Group
    column: Axis
    has_rows: bool
    block: Block | None
    copies: tuple[Stmt, ...]
    panel: Packed | None
    panel_axis: Axis
    panel_width: int
    buffers: tuple[Param, ...]
    row_bytes: int
    column_bytes: int
    sizes: Mapping[str, int]
    divisible: Axis | None = None


def prepare(group: Group, kernel: Kernel, column: Axis, machine: Machine, panel_vectors: int, wanted: int) -> Operands:
    """The operands for this column axis, its own copied in panels of so many vectors; 0: not copied.

    A copy of the row operand serves the `wanted` rows, or (0) as many as the caches ask for.

    Raises:
        Unfit: that is impossible, or of no use.
    """
    nest = group.nests[0]
    match nest.body:
        case Apply("mul", (x, y)) if nest.reduce == "add" and (column in axes_in(x)) != (column in axes_in(y)):
            flip = column in axes_in(x)
            return _product(group, kernel, column, machine, panel_vectors, (y, x) if flip else (x, y), flip, wanted)
        case _ if rows := _rows_apart(group, column):
            return _any_terms(group, kernel, column, machine, panel_vectors, rows)
        case _ if panel_vectors:
            raise Unfit("no operand has the columns alone")
        case _:
            return _single_rows(group, kernel, column)


def _rows_apart(group: Group, column: Axis) -> tuple[Axis, ...]:
    """Output axes that some operands have, and none that has the columns."""
    nest = group.nests[0]
    found = [frozenset(axes_in(*x.index)) for x in loads(nest.body)]
    across = frozenset[Axis]().union(*(f for f in found if column in f))
    apart = frozenset[Axis]().union(*found) - across
    return tuple(x for x in group.shared if x in apart) if across and nest.where is None else ()


def _any_terms(
    group: Group, kernel: Kernel, column: Axis, machine: Machine, panel_vectors: int, rows: Sequence[Axis]
) -> Operands:
    """The operands of any function of one with the columns and others without: distances, and maxima of sums."""
    nest = group.nests[0]
    operands = dict.fromkeys(loads(nest.body))
    fixed = [x for x in group.shared if x != column and x not in rows[-2:]]
    itemsize = kernel.tensors[nest.out].dtype.itemsize
    across = [x for x in operands if column in axes_in(*x.index)]
    row_bytes, column_bytes = (
        sum(_footprint(x, kernel, fixed) for x in operands if (x in across) == inside) * itemsize
        for inside in (False, True)
    )
    sizes = {p.name: p.type.capacity for p in kernel.tensors.values()}
    if not panel_vectors:
        return Operands(group, column, True, None, (), None, Axis("cb", 1), 0, (), row_bytes, column_bytes, sizes)
    (b,) = across if len(across) == 1 else (None,)
    if b is None or not is_bare(b):
        raise Unfit("several operands have the columns, or data decide what is read of it")
    width = machine.lanes(itemsize) * panel_vectors
    axis = Axis("cb", -(-column.extent // width))
    reduced = [x for x in nest.axes if x in nest.reduction_axes and x in axes_in(*b.index)]
    of = kernel.tensors[nest.out].dtype
    copied = panel(b, kernel.tensors, of, column, reduced, width, axis, machine.lanes(itemsize))
    body = map_loads(nest.body, lambda x: copied.load if x == b else x)
    changed = Group((replace(nest, body=body), *group.nests[1:]), group.shared)
    sizes[copied.buffer.name] = copied.buffer.type.capacity
    buffers = (copied.buffer,)
    return Operands(changed, column, True, None, (), copied, axis, width, buffers, row_bytes, column_bytes, sizes)


def _single_rows(group: Group, kernel: Kernel, column: Axis) -> Operands:
    sizes = {p.name: p.type.capacity for p in kernel.tensors.values()}
    return Operands(group, column, False, None, (), None, Axis("cb", 1), 0, (), 0, 0, sizes)


def _product(
    group: Group,
    kernel: Kernel,
    column: Axis,
    machine: Machine,
    panel_vectors: int,
    operands: tuple[Expr, Expr],
    flip: bool,
    wanted: int,
) -> Operands:
    nest = group.nests[0]
    a, b = operands
    rows = [x for x in group.shared if x in axes_in(a) and x not in axes_in(b)]
    count = math.prod(x.extent for x in rows)
    if not panel_vectors and _expanded(b, kernel) and count > row_limit(2, machine.registers):
        raise Unfit("every tile would compute the operand of the columns again")
    if _is_dot(nest, kernel, a, b, rows):
        raise Unfit(f"of {count} rows, vectors along the reduction are faster")
    buffers: list[Param] = []
    copies: tuple[Stmt, ...] = ()
    block: Block | None = None
    divisible = rows[-2] if len(rows) > 1 else None
    fixed = [x for x in group.shared if x != column and x not in rows[-2:]]
    itemsize = kernel.tensors[nest.out].dtype.itemsize
    row_bytes = _footprint(a, kernel, fixed) * itemsize
    column_bytes = _footprint(b, kernel, fixed) * itemsize
    needed = nest.where is not None or not is_bare(a)
    if needed or _converted(a, kernel, column, machine.lanes(itemsize) * 2):
        block = _block(rows, row_bytes, column_bytes, column, machine, wanted)
        # The copy takes the guard's place, so the other operand must exist without it.
        done = _copy_rows(nest, kernel, a, fixed, block, column) if inside(b, kernel.tensors) else None
        if done is not None:
            a, copies, buffers = done.load, done.fill, [done.buffer]
        elif isinstance(b, Load) and nest.where is not None and is_bare(a) and inside(a, kernel.tensors):
            block = None
            done = _copy_columns(nest, kernel, b, fixed, rows, column, group.shared, machine)
            if done is None:
                raise Unfit("the guard says more than that the operands exist")
            b, copies, buffers = done.load, done.fill, [done.buffer]
        elif needed:
            raise Unfit("the operand of the rows can neither be read as it is nor copied")
        else:
            block = None
    panel_axis, width, copied = Axis("cb", 1), 0, None
    if panel_vectors:
        width = machine.lanes(itemsize) * panel_vectors
        panel_axis = Axis("cb", -(-column.extent // width))
        reduced = [x for x in nest.axes if x in nest.reduction_axes]
        tensors = {**kernel.tensors, **{p.name: p for p in buffers}}
        copied = panel(
            b, tensors, kernel.tensors[nest.out].dtype, column, reduced, width, panel_axis, machine.lanes(itemsize)
        )
        buffers.append(copied.buffer)
        b = copied.load
    body = Apply("mul", (b, a) if flip else (a, b))
    first = replace(nest, body=body, where=None)
    sizes = {p.name: p.type.capacity for p in (*kernel.tensors.values(), *buffers)}
    changed = Group((first, *group.nests[1:]), group.shared)
    return Operands(
        changed,
        column,
        True,
        block,
        copies,
        copied,
        panel_axis,
        width,
        tuple(buffers),
        row_bytes,
        column_bytes,
        sizes,
        divisible,
    )


def _expanded(b: Expr, kernel: Kernel) -> bool:
    """Whether an operand is computed of what is stored in a narrow type."""
    return not isinstance(b, Load) and any(kernel.tensors[x.param].stored is not None for x in loads(b))


def _converted(a: Expr, kernel: Kernel, column: Axis, width: int) -> bool:
    """Whether an operand is worth a copy because it is stored in a narrow type: every panel would convert it again."""
    return isinstance(a, Load) and kernel.tensors[a.param].stored is not None and column.extent > width


def _copy_rows(
    nest: Nest, kernel: Kernel, a: Expr, fixed: Sequence[Axis], block: Block | None, column: Axis
) -> Packed | None:
    if nest.where is not None:
        out = [x for x in nest.axes if x not in nest.reduction_axes]
        bare = isinstance(a, Load) and is_bare(a)
        return halo(a, kernel.tensors[a.param], nest.where, fixed, block, column, out) if bare else None  # type: ignore[union-attr]
    axes = [x for x in nest.axes if x in axes_in(a) and x not in fixed]
    dtype = kernel.dtype_of(a)
    return None if dtype is None else evaluated(a, kernel.tensors, dtype, axes, block)


def _copy_columns(
    nest: Nest,
    kernel: Kernel,
    b: Load,
    fixed: Sequence[Axis],
    rows: Sequence[Axis],
    column: Axis,
    out: Sequence[Axis],
    machine: Machine,
) -> Packed | None:
    """The copy of a guarded operand of the columns: where there are no rows, of all that overlapping windows read."""
    inner = set(nest.reduction_axes)
    windows = [x for x in fixed if not rows and any(x in axes_in(i) and inner & set(axes_in(i)) for i in b.index)]
    for around in ([x for x in fixed if x not in windows], fixed):
        done = halo(b, kernel.tensors[b.param], nest.where, around, None, column, out)
        if done is None or not windows or done.buffer.type.nbytes <= machine.l2 // 2:
            return done
    return done


def _block(
    rows: Sequence[Axis], row_bytes: int, column_bytes: int, column: Axis, machine: Machine, wanted: int
) -> Block | None:
    """The rows copied at a time: as many as half the second-level cache holds, if all are too many; or those wanted."""
    budget = machine.l2 // 2
    if len(rows) > 1 and wanted:
        axis = rows[-2]
        return Block(axis, Axis("y0", axis.extent), wanted) if wanted < axis.extent else None
    if len(rows) < 2 or row_bytes <= budget:
        return None
    blocks = -(-row_bytes // budget)
    panels = max(1, column.extent // PANEL)
    if column_bytes + row_bytes * panels <= row_bytes + column_bytes * (blocks if column_bytes > budget else 1):
        return None
    axis = rows[-2]
    return Block(axis, Axis("y0", axis.extent), max(1, axis.extent // blocks))


def _is_dot(nest: Nest, kernel: Kernel, a: Expr, b: Expr, rows: Sequence[Axis]) -> bool:
    """Few rows, and both operands contiguous along the reduction: vectors of the reduction serve that better."""
    total = 1
    for r in rows:
        total *= r.extent
    if total >= 4 or not (isinstance(a, Load) and isinstance(b, Load) and nest.where is None):
        return False
    spots = [offset(x.index, kernel.tensors[x.param].shape) for x in (a, b)]
    return any(all(coefficient(p, k) == 1 for p in spots) for k in nest.reduction_axes)


def _footprint(e: Expr, kernel: Kernel, fixed: Sequence[Axis]) -> int:
    """Elements that an operand spans while the fixed axes stand still."""
    if not isinstance(e, Load):
        size = 1
        for a in axes_in(e):
            size *= 1 if a in fixed else a.extent
        return size
    size = 1
    for i, d in zip(e.index, kernel.tensors[e.param].shape, strict=True):
        span = bounds(i)
        moving = [a for a in axes_in(i) if a not in fixed]
        size *= 1 if not moving else d if span is None else min(d, span[1] - span[0] + 1)
    return size
