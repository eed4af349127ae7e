"""The loops around the tiles of a contraction: which axes run where, in what order, and in blocks of what size.

for batch: for row blocks: for column panels: [for parts of the reduction:] for rows: tile
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Apply, Axis, Load, loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.flat import axis_inside, coefficient, flat_simplify
from dlc.kernel.schedules.heights import row_limit, rows_cycles
from dlc.kernel.schedules.machine import LEAST_LANES, PANEL, WORD_BITS, Machine
from dlc.kernel.schedules.operands import Operands
from dlc.kernel.schedules.scope import Scope, merge_run
from dlc.kernel.schedules.tile import Tile

LEAST_ROWS = 4
"""Rows from which on a tile of those that share their columns is preferred to one of rows that do not."""
STREAMS = 4
"""Vectors of a tile whose only row reads each panel of columns once: processors foresee few streams from memory."""


@dataclass(frozen=True)
class LoopPlan:
    """Loops around the tiles.

    Attributes:
        outer: Loops outside of everything: batches, and rows that no block divides.
        block: Axis that row blocks divide; `size` of its values make a block.
        between: Row axes inside the panel loop, outside of tiles.
        outside: Part of the reduction that runs outside of the rows, its sums waiting in memory.
        once: No element may be computed twice, because a follower may overwrite what it reads.
        around: Loops around the panels of a block of rows.
        vectors: Vectors of a tile's row.
        tall: Most rows of a tile.
    """

    operands: Operands
    tile: Tile
    outer: tuple[Axis, ...]
    between: tuple[Axis, ...]
    block: Axis | None
    size: int
    outside: Axis | None
    once: bool
    around: tuple[Axis, ...] = ()
    vectors: int = 1
    tall: int = 1

    @property
    def blocked(self) -> bool:
        """Whether rows are divided into blocks."""
        return self.block is not None and (self.operands.block is not None or self.size < self.block.extent)

    @property
    def rows(self) -> tuple[Axis, ...]:
        """Axes inside a panel, outermost first."""
        return (*self.between, *([self.tile.row] if self.tile.row else []))

    @property
    def height(self) -> int:
        """Tile rows of a panel."""
        return math.prod(a.extent for a in self.rows)


def plan_loops(
    o: Operands, scope: Scope, kernel: Kernel, machine: Machine, named: set[Axis], wanted: int = 0
) -> LoopPlan:
    """The loops of a group whose operands are ready; `named` axes occur in loops that are written already.

    Blocks have the `wanted` rows, or (0) as many as the caches ask for.
    """
    tiling = tile_of(scope, kernel, machine, None, o.column)
    product = tiling.product
    others = [a for a in scope.shared if a != o.column]
    rows = _rows(product, [a for a in others if o.has_rows and a not in named], o.column)
    row = rows[-1] if rows else None
    tiling = replace(tiling, row=row, lanes=tiling.lanes if o.panel_width else _lanes(o.column, tiling.lanes))
    if o.block is not None:
        block: Axis | None = o.block.axis
        size = o.block.size
    else:
        block = rows[-2] if len(rows) > 1 else row
        size = (min(wanted, block.extent) or _rows_per_block(o, block, machine)) if block else 0
    within = [block] if block is not None and block != row else []
    outer = tuple(a for a in others if a != row and a not in within)
    once = overwrites(tiling.followers, kernel)
    return hoisted(LoopPlan(o, tiling, outer, tuple(within), block, size, None, once), machine)


def _lanes(column: Axis, lanes: int) -> int:
    """Elements of a vector: half as many, and again, while all columns fit; many processors then do twice as many."""
    while column.limit is None and column.extent <= lanes // 2 and lanes > LEAST_LANES:
        lanes //= 2
    return lanes


def overwrites(assignments: Iterable[Nest], kernel: Kernel) -> bool:
    """Whether an assignment may overwrite what it reads, so that no element may be computed twice."""
    read = {name for n in assignments for name in n.reads()}
    # By size, because a result may have been given other dimensions here than it has elsewhere.
    found = (kernel.param_names[name] for name in read if name in kernel.param_names)
    return any((p.dtype, p.type.capacity) in kernel.result_kinds for p in found)


def tile_of(
    scope: Scope, kernel: Kernel, machine: Machine, row: Axis | None, column: Axis, frozen: Sequence[Axis] = ()
) -> Tile:
    """What the tiles of a group in flat form have in common; `frozen` axes of the reduction stay as they are."""
    product, *followers = scope.nests
    reduced = tuple(a for a in product.axes if a not in scope.shared)
    reduced = reduced if machine.ordered else _by_stride(product, column, reduced)
    (product,), reduced = merge_run((product,), reduced, frozen)
    dtypes = {p.name: p.dtype for p in kernel.tensors.values()} | dict.fromkeys(
        ("tile", "part"), kernel.tensors[product.out].dtype
    )
    return Tile(
        product,
        tuple(followers),
        scope.scalars.get(product.out),
        scope.scalars,
        row,
        column,
        reduced,
        machine.lanes(kernel.tensors[product.out].dtype.itemsize),
        kernel.start_of(product.out),
        dtypes,
        packed={p.name: WORD_BITS // p.storage.bits for p in kernel.params if p.packed},
    )


def hoisted(plan: LoopPlan, machine: Machine) -> LoopPlan:
    """The plan with its reduction cut where a whole panel does not stay in the cache from tile to tile.

    for rows: for k: s   →   for outer part of k: for rows: for the rest of k: s
    """
    t = plan.tile
    row_bytes = 2 * t.lanes * t.dtype.itemsize
    panel = row_bytes * math.prod(a.extent for a in t.reduced)
    if any(a.limit is not None for a in t.reduced):
        return plan
    if panel <= machine.l2 // 2 or not 8 <= plan.height <= machine.l1 // row_bytes or t.product.where is not None:
        return plan
    first, *rest = t.reduced
    if not rest:
        fitting = [n for n in range(4, first.extent, 4) if first.extent % n == 0 and n * row_bytes <= machine.l2 // 4]
        if not fitting:
            return plan
        first, inner = Axis("kb", first.extent // fitting[-1]), Axis(first.name, fitting[-1])
        body = flat_simplify(substitute(t.product.body, {t.reduced[0]: first * inner.extent + inner}))
        axes = tuple(y for x in t.product.axes for y in ((first, inner) if x == t.reduced[0] else (x,)))
        t, rest = replace(t, product=replace(t.product, body=body, axes=axes)), [inner]
    return replace(plan, tile=replace(t, reduced=tuple(rest)), outside=first)


def _by_stride(product: Nest, column: Axis, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Reduction axes in the order in which the column operand lies in memory: a panel is read front to back."""
    factors = product.body.args if isinstance(product.body, Apply) else (product.body,)
    loads = [e for e in factors if isinstance(e, Load) and axis_inside(e, column)]
    strides = [[abs(coefficient(e.index[0], a) or 0) for e in loads] for a in axes]
    return tuple(a for _, a in sorted(zip(strides, axes, strict=True), key=lambda x: x[0], reverse=True))


def _rows(product: Nest, axes: Sequence[Axis], column: Axis) -> list[Axis]:
    """Axes that rows walk, that of a tile last: one that no operand of the columns has, so that rows share these."""
    rows = [a for a in axes if _is_row(product, a, column)]
    apart = [a for a in rows if a.limit is None and a.extent >= LEAST_ROWS and _is_apart(product, a, column)]
    if not apart or rows[-1] in apart or rows[-1].limit is not None:
        return rows
    return [*(a for a in rows if a != apart[-1]), apart[-1]]


def _is_row(product: Nest, axis: Axis, column: Axis) -> bool:
    """Whether operands without the column move along an axis, or those with it, but not both: rows share the other."""
    match product.body:
        case Apply("mul", args) if sum(axis_inside(a, column) for a in args) == 1:
            across = [x for a in args if axis_inside(a, column) for x in loads(a) if axis_inside(x, column)]
            both = all(axis_inside(a, axis) for a in args)
            return any(axis_inside(a, axis) for a in args) and not (both and all(axis_inside(x, axis) for x in across))
        case _:
            return _is_apart(product, axis, column)


def _is_apart(product: Nest, axis: Axis, column: Axis) -> bool:
    """Whether only operands without the column move along an axis."""
    moving = [x for x in loads(product.body) if axis_inside(x, axis)]
    return bool(moving) and not any(axis_inside(x, column) for x in moving)


def _rows_per_block(o: Operands, block: Axis, machine: Machine) -> int:
    """Values of the block axis per block, as the caches ask for; of several threads each gets as many blocks.

    Not where the rows have fewer bytes than the columns: then threads share the columns.
    """
    found, threads = _rows_by_caches(o, block, machine), machine.parallelism
    if threads == 1 or o.row_bytes < o.column_bytes or block.extent < 2 * threads:
        return found
    return -(-block.extent // (-(-block.extent // (found * threads)) * threads))


def _rows_by_caches(o: Operands, block: Axis, machine: Machine) -> int:
    """Values of the block axis per block; all of them when blocks would move more bytes than they save."""
    budget = machine.l2 // 2
    if o.row_bytes <= budget:
        return block.extent
    blocks = -(-o.row_bytes // budget)
    panels = max(1, o.column.extent // PANEL)
    by_panel = o.column_bytes + o.row_bytes * panels
    by_block = o.row_bytes + o.column_bytes * (blocks if o.column_bytes > budget else 1)
    return block.extent if by_panel <= by_block else max(1, block.extent // blocks)


def widths(plan: LoopPlan, machine: Machine) -> list[int]:
    """Vectors per tile, fastest first by the cycle model."""
    lanes = plan.tile.lanes
    rows = plan.tile.row.extent if plan.tile.row else 1
    columns = plan.tile.column.extent

    def cost(vectors: int) -> float:
        tiles = rows_cycles(rows, row_limit(vectors, machine.registers), vectors)
        return tiles * -(-columns // (vectors * lanes))

    if plan.operands.panel_width:
        return [plan.operands.panel_width // lanes]
    streams = STREAMS if plan.operands.has_rows and plan.tile.row is None else machine.registers // 2
    fitting = [v for v in (2, 3, 1, 4, 6, 8) if v * lanes <= max(columns, lanes) and v <= streams]
    return sorted(fitting, key=cost)
