"""Products of two operands neither of which lies ready: both copied part by part, in the order in which they are read.

    out[m, n] += Σₖ a(m, k)·b(k, n)                  m: one row axis, n: all columns that are contiguous in `out`
    →
    for part of k: for block of m: [pa = a(m, k)] for panel of n: [pb = b(k, n)] for rows: register tile

The order of loops and the sizes are those of matrix products (Goto and van de Geijn, Anatomy of high-performance
matrix multiplication, 2008): a panel stays in the first-level cache, a block of rows in half the second, and parts of
the reduction are added up in the result. Copies turn windows and guards into plain memory, so a convolution whose
weights are no constants, and both its gradients, run as matrix products do. Where a guard does not hold a copy is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, both, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Stmt
from dlc.kernel.nest import Param
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.gathered import Source, panels, row_block
from dlc.kernel.schedules.groups import Group
from dlc.kernel.schedules.heights import row_limit, rows_per_block
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.operands import Operands
from dlc.kernel.schedules.pack import Block, halo, inside
from dlc.kernel.schedules.product_axes import ProductAxes, product_axes
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import conjuncts, simplify_guard

VECTORS = 2
# Below, copies cost more than they save.
ROWS, REDUCTION = 16, 32
# Of a sum with so many terms, copies are made in parts that stay in the first cache, so fewer rows pay, and a single
# vector of columns.
LONG, FEW_ROWS = 2048, 4
# Rows that so many columns read are copied even if they lie in order: in a block they lie close together.
REUSED = 128
# Where followers keep the reduction whole, panels are long: each copy of one must serve as many rows as this.
UNCUT_ROWS = 96


@dataclass(frozen=True)
class Blocked:
    """A contraction on copies.

    Attributes:
        operands: The copies of one block and one panel, and the group that reads them.
        row: The axis of the rows.
        run: Output axes that the columns walk as one, outermost first.
        outer: Loops outside of everything.
        around: Loops around the panels of a block of rows, which do not move along them.
        parts: Loops over parts of the reduction; none when it runs through.
        before: Copies that serve all parts.
        depth: Steps of the reduction in a part.
        tall: Most rows of a tile.
    """

    operands: Operands
    row: Axis
    run: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    around: tuple[Axis, ...]
    parts: tuple[Axis, ...]
    before: tuple[Stmt, ...]
    depth: int
    tall: int

    @property
    def column(self) -> Axis:
        """The axis that the columns are when they have been merged."""
        return Axis(self.run[-1].name, math.prod(x.extent for x in self.run))


def columns_of(group: Group, kernel: Kernel, machine: Machine) -> tuple[Axis, ...]:
    """The axes that the columns of a product on copies walk as one; none where it does not run on copies."""
    try:
        axes = product_axes(group, kernel)
        _check_pays(axes, group, kernel, machine)
        _guards(axes, group.nests[0].where, kernel)
    except Unfit:
        return ()
    return axes.run


def blocked(group: Group, kernel: Kernel, machine: Machine, tall: int, rows: int, depth: int) -> Blocked:
    """The group's product on copies.

    Args:
        group: Its first nest is the product.
        kernel: The kernel that it belongs to.
        machine: What it runs on.
        tall: Most rows of a tile; 0: as many as registers allow.
        rows: Rows that are copied at a time; 0: as many as half the second-level cache holds.
        depth: Steps of the reduction that are copied at a time; 0: as many as the first-level cache holds.

    Raises:
        Unfit: that is impossible, or does not pay.
    """
    if any(a.limit is not None for a in group.nests[0].axes):
        raise Unfit("a loop ends at a size of the call")
    axes = product_axes(group, kernel)
    _check_pays(axes, group, kernel, machine)
    guards = _guards(axes, group.nests[0].where, kernel)
    a, b = (
        Source(factors, tuple(kernel.tensors[x.param] for x in factors), guard)
        for factors, guard in zip((axes.a, axes.b), guards, strict=True)
    )
    before: tuple[Stmt, ...] = ()
    buffers: list[Param] = []
    if b.where is not None and len(axes.b) == 1 and not _whole_vectors(axes, b):
        done = halo(axes.b[0], b.tensors[0], b.where, axes.outer, None, axes.run[-1], group.shared, name="ph")
        if done is not None:
            b, before = Source((done.load,), (done.buffer,), None), done.fill
            buffers.append(done.buffer)
    return _copied(group, axes, a, b, before, buffers, machine, (tall, rows, depth))


def _whole_vectors(axes: ProductAxes, b: Source) -> bool:
    """Whether the guard is the same for all columns, which lie next to each other."""
    load = b.alone
    near = len(axes.run) == 1 and load is not None and coefficient(load.index[0], axes.run[0]) == 1
    return near and not set(axes.run) & set(axes_in(*conjuncts(b.where)))


def _check_pays(axes: ProductAxes, group: Group, kernel: Kernel, machine: Machine) -> None:
    """Raises Unfit unless every element is used often, and operands are more than the second-level cache holds."""
    item = kernel.tensors[group.nests[0].out].dtype.itemsize
    lanes = machine.lanes(item)
    reduction = math.prod(x.extent for x in axes.reduced)
    size = (axes.row.extent + axes.columns) * reduction * item
    rows, columns = (ROWS, VECTORS * lanes) if reduction <= LONG else (FEW_ROWS, lanes)
    conditions = (
        (axes.row.extent >= rows, f"copies pay from {rows} rows on, and there are {axes.row.extent}"),
        (axes.columns >= columns, f"copies pay from {columns} columns on, and there are {axes.columns}"),
        (reduction >= REDUCTION, f"copies pay from {REDUCTION} steps of a sum on, and there are {reduction}"),
        (size > machine.l2, f"its {size} bytes of operands fit the second-level cache of {machine.l2}"),
        (machine.registers // 2 > VECTORS, f"{machine.registers} registers are too few"),
    )
    require(conditions)


def _guards(axes: ProductAxes, where: Expr | None, kernel: Kernel) -> tuple[Expr | None, Expr | None]:
    """The guard's parts by the operand whose copy can hold them; None when a part needs rows and columns.

    Every operand exists where its own parts hold: a part on neither rows nor columns goes to both where it must.

    Raises:
        Unfit: there are other parts, or an operand does not exist where its own hold.
    """
    rows, columns, shared = None, None, None
    for part in conjuncts(simplify_guard(where)):
        axes_here = frozenset(axes_in(part))
        moves = bool(axes_here & {*axes.run, *axes.around})
        if any(True for _ in loads(part)) or (moves and axes.row in axes_here) or part == Const(False):
            raise Unfit("its guard belongs to neither operand alone")
        if moves:
            columns = both(columns, part)
        else:
            rows = both(rows, part)
            shared = shared if axes.row in axes_here else both(shared, part)
    if not _exists(axes.b, kernel, columns):
        columns = both(columns, shared)
    if not (_exists(axes.a, kernel, rows) and _exists(axes.b, kernel, columns)):
        raise Unfit("an operand does not exist everywhere where its part of the guard holds")
    return rows, columns


def _exists(factors: Sequence[Load], kernel: Kernel, guard: Expr | None) -> bool:
    return all(inside(x, kernel.tensors, guard) for x in factors)


def _cut(reduced: Sequence[Axis], fitting: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Mapping[Expr, Expr]]:
    """Reduction axes as (loops over parts, axes inside a part, what replaces the axes that were cut)."""
    parts: list[Axis] = []
    inner = list(reduced)
    mapping: dict[Expr, Expr] = {}
    while inner and math.prod(x.extent for x in inner) > fitting:
        axis = inner.pop(0)
        rest = math.prod(x.extent for x in inner)
        size = max((n for n in range(1, axis.extent) if axis.extent % n == 0 and n * rest <= fitting), default=1)
        if size == 1 and rest * 2 < REDUCTION:
            inner.insert(0, axis)  # a prime number of short steps: the panel is larger than it should be
            break
        outside = Axis(f"k{len(parts)}", axis.extent // size)
        parts.append(outside)
        within = Axis(axis.name, size)
        mapping[axis] = outside * size + within if size > 1 else outside
        if size > 1:
            inner.insert(0, within)
            break
    return tuple(parts), tuple(inner), mapping


def _copied(
    group: Group,
    axes: ProductAxes,
    a: Source,
    b: Source,
    before: tuple[Stmt, ...],
    buffers: list[Param],
    machine: Machine,
    wanted: tuple[int, int, int],
) -> Blocked:
    tall, rows, most = wanted
    nest = group.nests[0]
    item, lanes = a.dtype.itemsize, machine.lanes(a.dtype.itemsize)
    width = VECTORS * lanes
    whole = math.prod(x.extent for x in axes.reduced)
    # Sums of parts wait in the output, in whole vectors.
    in_place = len(group.nests) == 1 and group.nests[0].index[-1] == axes.run[-1]
    fitting = (most or machine.l1 * 5 // 8 // (width * item)) if in_place else whole
    parts, inner, mapping = _cut(axes.reduced, fitting)
    a, b = a.substitute(mapping), b.substitute(mapping)
    depth = math.prod(x.extent for x in inner)
    tall = tall or row_limit(VECTORS, machine.registers)
    fit = machine.l2 // 2 // (depth * item)
    if not in_place:
        fit = max(fit, UNCUT_ROWS)
    size = rows or rows_per_block(axes.row.extent, fit, tall, VECTORS)
    block = Block(axes.row, Axis("y0", axes.row.extent), size) if size < axes.row.extent else None
    load, copies = a.factors[0], ()
    if len(a.factors) > 1 or a.where is not None or axes.columns >= REUSED or not _streams(a, inner):
        packed = row_block(a, axes.row, inner, block)
        load, copies = packed.load, packed.fill
        buffers = [*buffers, packed.buffer]
    panel_axis = Axis("cb", -(-axes.columns // width))
    panel = panels(b, axes.run, inner, VECTORS, lanes, panel_axis)
    buffers = [*buffers, panel.buffer]
    first = replace(nest, axes=(*group.shared, *inner), body=Apply("mul", (load, panel.load)), where=None)
    sizes = {p.name: p.type.capacity for p in (*a.tensors, *b.tensors, *buffers)}
    operands = Operands(
        Group((first, *group.nests[1:]), group.shared),
        axes.run[-1],
        True,
        block,
        copies,
        panel,
        panel_axis,
        width,
        tuple(buffers),
        0,
        0,
        sizes,
    )
    return Blocked(operands, axes.row, axes.run, axes.outer, axes.around, parts, before, depth, tall)


def _streams(a: Source, inner: Sequence[Axis]) -> bool:
    """Whether a row is read front to back as it lies: no copy would be faster."""
    at = offset(a.factors[0].index, a.tensors[0].shape)
    stride = 1
    for x in reversed(inner):
        if coefficient(at, x) != stride:
            return stride >= 2 * REDUCTION
        stride *= x.extent
    return True
