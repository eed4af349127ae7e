"""Operands of a product copied into what tiles read: blocks of rows, and panels of columns.

    pa[m, k] = a(y0 + m, k)                 a block of rows, every row front to back
    pb[k, j] = b(k, cb·W + j)               a panel of W columns, all columns of one step next to each other

`b`'s columns may be several axes walked as one; vectors that lie together in `b` are copied as vectors. Where a guard
does not hold, and behind the last column, a copy is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.base.types import DType, Type
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, axes_in, both, substitute
from dlc.kernel.loops.program import For, If, Lanes, Stmt, Store, loop, wrap
from dlc.kernel.nest import Param, zero
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.pack import Block, Packed
from dlc.kernel.simplify import conjuncts, simplify, simplify_guard

# Rows that lie next to each other are copied in groups of a cache line of single precision.
TOGETHER = 16
APART = 8


@dataclass(frozen=True)
class Source:
    """An operand: a product of loads without data in their subscripts, and where it counts (None: everywhere)."""

    factors: tuple[Load, ...]
    tensors: tuple[Param, ...]
    where: Expr | None

    def substitute(self, mapping: Mapping[Expr, Expr]) -> Source:
        """The operand in terms of other axes."""
        where = None if self.where is None else simplify_guard(substitute(self.where, mapping))
        changed = (Load(x.param, tuple(simplify(substitute(i, mapping)) for i in x.index)) for x in self.factors)
        return replace(self, factors=tuple(changed), where=where)

    @property
    def dtype(self) -> DType:
        """Type of the values."""
        return self.tensors[0].dtype

    @property
    def loads(self) -> tuple[Load, ...]:
        """The factors as flat loads."""
        pairs = zip(self.factors, self.tensors, strict=True)
        return tuple(Load(p.name, (offset(x.index, p.shape),)) for x, p in pairs)

    @property
    def value(self) -> Expr:
        """The product of flat loads."""
        return _product(self.loads)

    def steps(self, axis: Axis) -> tuple[int | None, ...]:
        """How far each factor moves per step of an axis."""
        return tuple(coefficient(x.index[0], axis) for x in self.loads)

    @property
    def alone(self) -> Load | None:
        """The flat load of an operand with one factor."""
        value = self.value
        return value if isinstance(value, Load) else None


def _product(factors: Sequence[Expr]) -> Expr:
    first, *rest = factors
    for x in rest:
        first = apply("mul", first, x)
    return first


def row_block(a: Source, row: Axis, inner: Sequence[Axis], block: Block | None) -> Packed:
    """The copy of a block of rows over the axes `inner`."""
    size = block.size if block else row.extent
    depth = tuple(x.extent for x in inner)
    whole = math.prod(depth)
    # Rows a power of two apart would share few lines of the cache.
    buffer = Param("pa", Type(a.dtype, (size, whole + APART)))
    start: Expr = block.start if block else Const(0)
    stop: Expr = apply("min", Const(size), Const(row.extent) - start) if block else Const(size)
    own = Axis("hr", size)
    steps = {x: Axis(f"h{k}", x.extent) for k, x in enumerate(inner)}
    source = a.substitute({**steps, row: start + own})
    place = own * (whole + APART) + offset(tuple(steps.values()), depth)
    write: tuple[Stmt, ...] = (Store("pa", place, source.value),)
    if source.where is not None:
        write = (If(source.where, write, (Store("pa", place, zero(a.dtype)),)),)
    if source.alone is not None and coefficient(source.alone.index[0], own) == 1:
        first = Axis("hg", size)
        near = For(own, first, apply("min", first + TOGETHER, stop), write)
        fill: Stmt = For(first, Const(0), stop, wrap(tuple(steps.values()), (near,)), TOGETHER)
    else:
        fill = For(own, Const(0), stop, wrap(tuple(steps.values()), write))
    return Packed(buffer, Load("pa", (row - start, offset(tuple(inner), depth))), (fill,))


def panels(b: Source, run: Sequence[Axis], inner: Sequence[Axis], vectors: int, lanes: int, base: Axis) -> Packed:
    """The copy of panel number `base`: `vectors` times `lanes` columns of the axes `run` walked as one."""
    width = vectors * lanes
    steps = tuple(Axis(f"h{k}", x.extent) for k, x in enumerate(inner))
    buffer = Param("pb", Type(b.dtype, (*(x.extent for x in inner), width)))
    panel = _Panel(b.substitute(dict(zip(inner, steps, strict=True))), tuple(run), steps, buffer, base)
    found = b.steps(run[-1])
    near = 1 in found and all(step in (0, 1) for step in found)
    if near and run[-1].extent >= lanes and not set(run) & set(axes_in(*conjuncts(b.where))):
        fill = panel.by_vectors(vectors, lanes)
    else:
        fill = panel.one_by_one(Const(0), Axis("hj", width))
    spot: Expr = Const(0)
    for x in run:
        spot = spot * x.extent + x
    return Packed(buffer, Load("pb", (*inner, spot - base * width)), fill)


@dataclass(frozen=True)
class _Panel:
    """A panel to be filled: what with, the axes of its columns, those of its steps, and its number."""

    source: Source
    run: tuple[Axis, ...]
    steps: tuple[Axis, ...]
    buffer: Param
    base: Axis

    @property
    def width(self) -> int:
        return self.buffer.shape[-1]

    @property
    def columns(self) -> int:
        return math.prod(x.extent for x in self.run)

    def axes_at(self, spot: Expr) -> dict[Expr, Expr]:
        """Every axis of the run at position `spot` of the run."""
        out: dict[Expr, Expr] = {}
        stride = 1
        for k, x in reversed(list(enumerate(self.run))):
            value = spot // stride
            out[x] = value % x.extent if k else value
            stride *= x.extent
        return out

    def place(self, column: Expr) -> Expr:
        """Where a column of the panel's current step lies."""
        return offset((*self.steps, column), self.buffer.shape)

    def by_vectors(self, vectors: int, lanes: int) -> tuple[Stmt, ...]:
        """All vectors in one pass where their columns lie together, else those that do, and the others one by one."""
        stores: list[Stmt] = []
        guards: list[Expr | None] = []
        for v in range(vectors):
            store, guard = self._vector(Const(v * lanes), lanes)
            stores.append(store)
            guards.append(guard)
        fast = self._each_step(tuple(stores), [Const(v * lanes) for v in range(vectors)], lanes)
        number = Axis("hv", vectors)
        store, together = self._vector(number * lanes, lanes)
        if together is None:
            return fast
        one = self._each_step((store,), [number * lanes], lanes)
        slow = If(together, one, self.one_by_one(number * lanes, Axis("hj", lanes)))
        all_together: Expr | None = None
        for guard in guards:
            all_together = both(all_together, guard)
        return fast if all_together is None else (If(all_together, fast, (loop(number, slow),)),)

    def _each_step(self, stores: tuple[Stmt, ...], columns: Sequence[Expr], lanes: int) -> tuple[Stmt, ...]:
        """Vectors of every step; zeros where the source does not count, which is the same for all columns."""
        where = self.source.where
        if where is not None:
            zeros = tuple(Store("pb", self.place(c), zero(self.buffer.dtype), lanes) for c in columns)
            stores = (If(where, stores, zeros),)
        return wrap(self.steps, stores)

    def _vector(self, column: Expr, lanes: int) -> tuple[Stmt, Expr | None]:
        """The copy of a vector from a column on, and the guard that its elements lie together."""
        first = self.base * self.width + column
        at = self.axes_at(first)
        steps = self.source.steps(self.run[-1])
        loads = self.source.substitute(at).loads
        value = _product([Lanes(x, lanes) if step == 1 else x for x, step in zip(loads, steps, strict=True)])
        together: Expr | None = None
        if self.run[-1].extent % lanes and len(self.run) > 1:
            together = simplify(at[self.run[-1]] <= self.run[-1].extent - lanes)
        if self.columns % self.width:
            together = both(together, first + lanes <= self.columns)
        return Store("pb", self.place(column), value, lanes), together

    def one_by_one(self, first: Expr, lane: Axis) -> tuple[Stmt, ...]:
        """One column after the other, zeros behind the last."""
        spot = self.base * self.width + first + lane
        source = self.source.substitute(self.axes_at(spot))
        place = self.place(first + lane)
        past = (Store("pb", place, zero(self.buffer.dtype)),)
        write: tuple[Stmt, ...] = (Store("pb", place, source.value),)
        if source.where is not None:
            write = (If(source.where, write, past),)
        body = wrap(self.steps, write)
        if self.columns % self.width:
            body = (If(spot < self.columns, body, wrap(self.steps, past)),)
        return (loop(lane, *body),)
