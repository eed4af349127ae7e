"""Rows of several sums one after another, whose loops run for neighbouring rows at the same time (software pipelining).

    for i: m = max x[i]; for j: t[j] = exp(x[i,j] - m); s = sum t; for j: r[i,j] = t[j]/s      →
    for i: for j: m' = max(m', x[i,j]); e = exp(x[i-1,j] - m); s' += e; r[i-2,j] = t[j]/s; t[j] = e

What waits for a sum of its row is computed while later rows are added up: arithmetic, loads from memory and stores to
it overlap, where a processor that looks a few hundred instructions ahead sees one loop at a time. Operands are fetched
some kilobytes ahead. Rows run in blocks, whose first and last iterations have fewer stages. Rows that a cache
holds gain from it where functions such as exp are waited for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dlc.base.types import DType, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, loads, substitute, walk
from dlc.kernel.loops.program import (
    Block,
    Fold,
    For,
    Let,
    Local,
    Prefetch,
    Set,
    Stmt,
    Store,
    wrap,
)
from dlc.kernel.nest import Nest, identity, zero
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.by_vectors import by_vectors
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.estimate import BESIDES, Estimate
from dlc.kernel.schedules.flat import at, coefficient
from dlc.kernel.schedules.fold import PARTIAL
from dlc.kernel.schedules.lanes import has_lanes, vectorise
from dlc.kernel.schedules.levels import LONG
from dlc.kernel.schedules.prefetch import LINE
from dlc.kernel.schedules.row_stages import RowStages, stages_of
from dlc.kernel.schedules.rows import inside
from dlc.kernel.schedules.scalar_loops import scalar_group
from dlc.kernel.schedules.scope import Scope
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import simplify
from dlc.spec import option

BLOCK = 128
"""Rows of a block: of the first and last few, fewer stages overlap."""
AHEAD = 8192
"""Bytes between what is read and what is fetched, as far as whole rows allow."""
SHARE = 0.25
"""Of the time that memory takes, what arithmetic takes at least: less of it hides behind memory by itself."""
SHORT = 8
"""Vectors of rows in a cache from which on several loops at the same time are faster than one after the other."""
LONG_FUNCTIONS: Final = frozenset(name for name, fn in SCALARS.items() if fn.lanes and fn.cycles >= 20.0)
"""Functions whose operations wait for each other for longer than a processor looks ahead: exp and the like."""


@dataclass(frozen=True)
class Pipelined(Choice):
    """Rows of several sums, what waits for a sum of one row beside the sums of the next ones."""

    name = "pipelined"
    rows: int = option(0, "rows of a block", low=0)

    def apply(self, place: Place) -> Applied:
        scope, machine = place.scope, place.machine
        if scope is None or not scope.shared:
            raise Unfit("it has no rows")
        if machine.ordered or machine.vector_bytes < 16:
            raise Unfit("there are no vectors" if not machine.ordered else "sums keep their order")
        row = scope.shared[-1]
        count = self.rows or min(BLOCK, -(-row.extent // machine.parallelism))
        stages = stages_of(place, scope, count)
        last = max(stages.of)
        types = {place.kernel.tensors[n.out].dtype for n in stages.nests}
        conditions = (
            (len(types) == 1 and types <= {f32, f64}, "its elements are not floats of one type"),
            (stages.inner.extent * min(t.itemsize for t in types) >= machine.vector_bytes, "a row fills no vector"),
            (stages.inner.extent <= LONG * machine.lanes(4), "its sums are long"),
            (last > 0, "nothing waits for a sum of its row"),
            (row.limit is None and row.extent >= count, f"there are {row.extent} rows"),
            (count > last, f"{count} rows are fewer than {last + 1} stages"),
        )
        require(conditions)
        if not self.rows:
            _check_size(place, scope, stages)
        block = Axis(f"{row.name}b", row.extent // count)
        pipeline = _Pipeline(place, scope, stages, block * count, row)
        loops: list[Stmt] = [For(block, Const(0), block.stop, pipeline.block(count))]
        if full := row.extent % count:
            one = inside(scalar_group(scope, place.kernel, machine, place.written), scope.shared)
            rest = replace(one, start=Const(row.extent - full))
            loops += by_vectors((rest,), place)
        return Applied(replace(self, rows=count), wrap(scope.shared[:-1], tuple(loops)), ())

    def estimated(self, place: Place) -> tuple[Applied, Estimate]:
        applied, found = super().estimated(place)
        far = found.bytes / place.machine.memory_rate
        if not self.rows and found.near < SHARE * far:
            raise Unfit("memory takes most of the time, whatever its arithmetic waits for")
        return applied, replace(found, cycles=max(far, found.near) + BESIDES * min(far, found.near))


def _check_size(place: Place, scope: Scope, stages: RowStages) -> None:
    """Raise Unfit for rows of which caches hold fewer than are in flight, and for those where little is waited for."""
    tensors, machine, row = place.kernel.tensors, place.machine, scope.shared[-1]
    moving = {x.param for n in scope.nests for x in loads(n.body) if coefficient(x.index[0], row) != 0}
    moving |= {n.out for n in scope.nests if n.out not in scope.scalars}
    if not _is_far(place, moving - set(scope.narrow)):
        if not any(isinstance(x, Apply) and x.fn in LONG_FUNCTIONS for n in stages.nests for x in walk(n.body)):
            raise Unfit("a cache may hold its rows, whose arithmetic does not take long")
        if stages.inner.extent < SHORT * machine.lanes(4):
            raise Unfit("a cache may hold its rows, which are short")
    flight = sum(tensors[name].type.nbytes for name in moving) // math.prod(a.extent for a in scope.shared)
    if 4 * flight > machine.l2:
        raise Unfit(f"its rows take {flight} bytes, of which a cache has to hold several")


def _is_far(place: Place, moving: Collection[str]) -> bool:
    """Whether no cache holds the largest of these tensors."""
    sizes = [place.kernel.tensors[name].type.nbytes for name in moving]
    return bool(place.machine.past) and max(sizes, default=0) >= place.machine.past


@dataclass(frozen=True)
class _Pipeline:
    """A block of rows.

    Attributes:
        first: The first row of the block.
        row: The axis of rows in the nests.
    """

    place: Place
    scope: Scope
    stages: RowStages
    first: Expr
    row: Axis

    @property
    def dtype(self) -> DType:
        (found,) = {self.place.kernel.tensors[n.out].dtype for n in self.stages.nests}
        return found

    def block(self, count: int) -> tuple[Stmt, ...]:
        """All rows of a block."""
        stages = self.stages
        depth = max(stages.of) + 1
        held = [self.held(x, u) for x, made in stages.made.items() for u in range(made, stages.last[x] + 1)]
        found: list[Stmt] = [Let(x, zero(x.dtype)) for x in held]
        step = Axis(self.row.name, count)
        found += (self.iteration({u: Const(k - u) for u in range(k + 1)}) for k in range(depth - 1))
        whole = self.iteration({u: step - u for u in range(depth)})
        found.append(For(step, Const(depth - 1), Const(count), (whole,)))
        ends = range(count, count + depth - 1)
        found += (self.iteration({u: Const(k - u) for u in range(k - count + 1, depth)}) for k in ends)
        return tuple(found)

    def held(self, number: Local, behind: int) -> Local:
        """A number of the row that is so many rows behind the first one."""
        return replace(number, name=f"{number.name}_behind{behind}")

    def iteration(self, rows: Mapping[int, Expr]) -> Stmt:
        """One row of each stage, by their places in the block; then numbers move on by a row."""
        stages = self.stages
        active = [k for k, u in enumerate(stages.of) if u in rows]
        sums = {k: self.scope.scalars[stages.nests[k].out] for k in active if stages.nests[k].reduce is not None}
        lanes = self.place.machine.lanes(self.dtype.itemsize)
        extent = stages.inner.extent
        wide = min(self.partial, extent // lanes)
        main, rest = extent // (wide * lanes) * wide * lanes, extent // lanes * lanes
        parts = {k: [replace(x, name=f"{x.name}_{p}", lanes=lanes) for p in range(wide)] for k, x in sums.items()}
        body: list[Stmt] = []
        for k, x in sums.items():
            body.append(Let(x, Const(self.place.kernel.start_of(stages.nests[k].out))))
            body += (Let(p, Const(identity(stages.nests[k].reduce or "", p.dtype))) for p in parts[k])
        j = stages.inner
        steps = [s for p in range(wide) for s in self.vectors(active, rows, parts, p, lanes, fetch=True)]
        body.append(For(j, Const(0), Const(main), tuple(steps), wide * lanes))
        if main < rest:
            steps = self.vectors(active, rows, parts, 0, lanes)
            body.append(For(j, Const(main), Const(rest), tuple(steps), lanes))
        if rest < extent:
            body.append(For(j, Const(rest), Const(extent), tuple(self.elements(active, rows, sums))))
        for k, x in sums.items():
            fn = stages.nests[k].reduce or ""
            total: Expr = parts[k][0]
            for p in parts[k][1:]:
                total = Apply(fn, (total, p))
            body += () if wide == 1 else (Set(parts[k][0], total),)
            body.append(Set(x, Apply(fn, (x, Fold(fn, parts[k][0])))))
        return Block((*body, *self.moved_on(rows, sums)))

    @property
    def partial(self) -> int:
        """Vectors of an iteration of the innermost loop: the sums of all of them are in registers."""
        sums = sum(n.reduce is not None for n in self.stages.nests)
        return max(1, min(PARTIAL, self.place.machine.registers // 2 // max(1, sums)))

    def moved_on(self, rows: Mapping[int, Expr], sums: Mapping[int, Local]) -> list[Stmt]:
        """Numbers of rows in their places for the next iteration."""
        stages = self.stages
        found: list[Stmt] = []
        for x, made in stages.made.items():
            found += (Set(self.held(x, u), self.held(x, u - 1)) for u in range(stages.last[x], made, -1))
        for k, nest in enumerate(stages.nests):
            x = self.scope.scalars.get(nest.out)
            if (stage := stages.results.get(k)) is not None and (place := rows.get(stage - 1)) is not None:
                mapping = {self.row: simplify(self.first + place), **self.values(nest, stage)}
                found.append(Store(nest.out, at(nest.index[0], mapping), at(nest.body, mapping)))
            if x is None:
                continue
            behind = self.held(x, stages.made[x])
            if k in sums:
                found.append(Set(behind, x))
            elif stages.of[k] < 0 and (place := rows.get(stages.made[x] - 1)) is not None:
                mapping = self.values(nest, stages.made[x])
                found.append(Set(behind, at(nest.body, {self.row: simplify(self.first + place), **mapping})))
        return found

    def values(self, nest: Nest, stage: int) -> dict[Expr, Expr]:
        """The numbers of the row of a stage that a nest uses."""
        return {x: self.held(x, stage) for x in walk(nest.body) if isinstance(x, Local)}

    def at_row(self, k: int, rows: Mapping[int, Expr]) -> dict[Expr, Expr]:
        """What the row and its numbers are for a nest."""
        stage = self.stages.of[k]
        return {self.row: simplify(self.first + rows[stage]), **self.values(self.stages.nests[k], stage)}

    def beside(self, k: int, active: Sequence[int]) -> dict[Expr, Expr]:
        """Elements that a nest reads and others of its stage compute in the same iteration."""
        nests, of = self.stages.nests, self.stages.of
        made = {n: Local(f"e{n}", self.dtype) for n in active if of[n] == of[k] and n < k and nests[n].reduce is None}
        return {Load(nests[n].out, nests[n].index): value for n, value in made.items()}

    def vectors(
        self,
        active: Sequence[int],
        rows: Mapping[int, Expr],
        parts: Mapping[int, Sequence[Local]],
        p: int,
        lanes: int,
        fetch: bool = False,
    ) -> list[Stmt]:
        """One vector of each nest: values, sums, then stores, which loads behind them might wait for."""
        nests, inner = self.stages.nests, self.stages.inner
        lane = Axis("lane", lanes)
        values: list[Stmt] = []
        stores: list[Stmt] = []
        for k in active:
            nest, beside = nests[k], self.beside(k, active)
            wide = {x: replace(x, name=f"{x.name}_{p}", lanes=lanes) for x in beside.values() if isinstance(x, Local)}
            mapping: dict[Expr, Expr] = {inner: inner + p * lanes + lane, **self.at_row(k, rows), **wide}
            body = substitute(nest.body, beside)
            value = vectorise(body, mapping, lane, self.place.kernel.dtypes, self.dtype)
            if value is None or not has_lanes(value):
                raise Unfit("its elements have no vector form")
            if fetch:
                values += self.fetched(k, rows, p, lanes)
            if k in parts:
                values.append(Set(parts[k][p], Apply(nest.reduce or "", (parts[k][p], value))))
            else:
                element = Local(f"e{k}_{p}", self.dtype, lanes)
                values.append(Let(element, value))
                if self.is_stored(k):
                    spot = at(nest.index[0], {inner: inner + p * lanes, **self.at_row(k, rows)})
                    stores.append(Store(nest.out, spot, element, lanes))
        return [*values, *stores]

    def fetched(self, k: int, rows: Mapping[int, Expr], p: int, lanes: int) -> list[Stmt]:
        """Hints for what a later row will read where a nest reads this one, once for each line."""
        if p * lanes * self.dtype.itemsize % LINE:
            return []
        inner, stage = self.stages.inner, self.stages.of[k]
        ahead = max(1, AHEAD // (inner.extent * self.dtype.itemsize))
        later = apply("min", simplify(self.first + rows[stage]) + ahead, self.row.extent - 1)
        moving = (x for x in loads(self.stages.nests[k].body) if self.first_stage(x.param) == stage)
        along = (x for x in moving if coefficient(x.index[0], inner) == 1 and coefficient(x.index[0], self.row))
        places = ((x.param, at(x.index[0], {inner: inner + p * lanes, self.row: later})) for x in along)
        # Into the second level: hints for the first one make some placements of arrays 1.3 times slower.
        return [Prefetch(tensor, place, hint="later") for tensor, place in dict.fromkeys(places)]

    def first_stage(self, tensor: str) -> int:
        """The stage that reads a parameter first; -1 for what is none."""
        if tensor not in {p.name for p in self.place.kernel.params}:
            return -1
        return min(
            u
            for u, n in zip(self.stages.of, self.stages.nests, strict=True)
            if u >= 0 and any(x.param == tensor for x in loads(n.body))
        )

    def is_stored(self, k: int) -> bool:
        """Whether what a nest computes is a result, or read by a later stage."""
        nests, of = self.stages.nests, self.stages.of
        out = nests[k].out
        later = any(of[n] > of[k] and out in nests[n].reads() for n in range(len(nests)))
        return later or out not in self.scope.narrow

    def elements(self, active: Sequence[int], rows: Mapping[int, Expr], sums: Mapping[int, Local]) -> list[Stmt]:
        """One element of each nest, where there is no whole vector."""
        nests = self.stages.nests
        values: list[Stmt] = []
        stores: list[Stmt] = []
        for k in active:
            nest, mapping = nests[k], self.at_row(k, rows)
            value = at(substitute(nest.body, self.beside(k, active)), mapping)
            if k in sums:
                values.append(Set(sums[k], Apply(nest.reduce or "", (sums[k], value))))
            else:
                values.append(Let(Local(f"e{k}", self.dtype), value))
                if self.is_stored(k):
                    stores.append(Store(nest.out, at(nest.index[0], mapping), Local(f"e{k}", self.dtype)))
        return [*values, *stores]
