"""Sums of products of bytes or of bf16 in 32 bits, a word of terms at a time: quantised networks, `--math bf16`.

    for rows, columns: for k, j<4: t[r,c] += i32(x[r, 4·k + j])·i32(w[k, c, j])
    →
    for tiles: for k: b = words of w[k, c…];  a = word of x[r, 4·k];  t_r += dots of a and b

A word has four bytes: four terms where x is of u8 and w of i8, which are added as i32, or two where both are of bf16,
which are added as f32, on machines that allow it. Where w is constant, the pass `layout` stores the terms of a column
next to each other. Machines have instructions for such dot products; their C has another form for those that have none.
Followers run over a tile as soon as it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from dlc.base.types import bf16, f32, i8, i32, u8
from dlc.kernel.expr import Apply, Axis, Const, Load, axes_in, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import WORD, wrap
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.contraction import applied, columns_of_group, panels_of
from dlc.kernel.schedules.flat import coefficient, flat_simplify, offset
from dlc.kernel.schedules.groups import Group
from dlc.kernel.schedules.heights import row_limit
from dlc.kernel.schedules.loop_plan import LoopPlan, hoisted, plan_loops, tile_of, widths
from dlc.kernel.schedules.machine import PANEL, Machine
from dlc.kernel.schedules.operands import Operands
from dlc.kernel.schedules.reductions import check_reduction
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.tile import Tile
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.schedules.words_copy import TERMS, WordsCopy, copied_words, factors_of
from dlc.kernel.simplify import simplify_nest
from dlc.spec import option


@dataclass(frozen=True)
class WordTiles(Choice):
    """Register tiles of a sum of products of bytes or bf16, as many terms of it at a time as four bytes hold."""

    name = "words"
    panels: bool = option(False, "copy the factor of the columns, so that its words lie next to each other")
    vectors: int = option(0, "vectors of a tile's row", low=0)
    rows: int = option(0, "most rows of a tile", low=0)
    block: int = option(0, "rows that run through all columns before the next ones do", low=0)

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        if word_factors(place) is None:
            return  # other kernels need no word about it
        check_bytes(place, vectors=True)
        yield cls()
        yield cls(panels=True)

    def apply(self, place: Place) -> Applied:
        check_bytes(place, vectors=True)
        machine, kernel = place.machine, place.kernel
        group, column = in_words(place)
        if self.panels and kernel.tensors[group.nests[0].out].dtype is f32:
            raise Unfit("words of bf16 are read where they lie")
        copy = copied_words(group, kernel, column) if self.panels else None
        if copy is None and step_of_terms(group, kernel) != 1:
            raise Unfit("the terms of a word of a column do not lie next to each other")
        batch: tuple[Axis, ...] = ()
        if copy is not None:
            group, batch = copy.group, copy.batch
            kernel = Kernel((*kernel.params, copy.buffer), kernel.results, kernel.locals, kernel.nests)
        o = _operands(group, kernel, column)
        scope = open_scope(group, kernel, (column, *batch))
        plan = plan_loops(o, scope, kernel, machine, set(batch), self.block)
        tile = of_words(tile_of(scope, kernel, machine, plan.tile.row, column), kernel)
        plan = hoisted(replace(plan, tile=tile, outside=None), machine)
        problem = Unfit("no vector fits a row")
        for vectors in [self.vectors] if self.vectors else widths(plan, machine):
            try:
                return self._tiled(place, plan, vectors, copy)
            except Unfit as found:
                problem = found
        raise problem

    def _tiled(self, place: Place, plan: LoopPlan, vectors: int, copy: WordsCopy | None) -> Applied:
        machine = place.machine
        rows = self.rows or row_limit(vectors, machine.registers)
        if rows * vectors > machine.registers:
            raise Unfit(f"{rows} rows of {vectors} vectors are more than {machine.registers} registers hold")
        plan = replace(plan, vectors=vectors, tall=rows)
        body = panels_of(plan, machine)
        choice = replace(self, vectors=vectors, rows=rows, block=plan.size if plan.blocked else 0)
        waiting = plan.height * vectors * plan.tile.lanes if plan.outside else 0
        if copy is None:
            return applied(choice, place, plan, wrap(plan.outer, body), (), waiting)
        inside = tuple(a for a in plan.outer if a not in copy.batch)
        body = wrap(copy.batch, (*copy.fill, *wrap(inside, body)))
        return applied(choice, place, plan, body, (copy.buffer,), waiting)


def of_words(tile: Tile, kernel: Kernel) -> Tile:
    """The tile without the axis of a word's terms."""
    nest = tile.product
    found = factors_of(nest)
    assert found is not None
    size = WORD // kernel.tensors[found[1].param].storage.itemsize
    terms = next((a for a in tile.reduced if a.name == TERMS), None)
    if terms is None or terms.extent != size:
        raise Unfit("other terms lie next to those of a word in both factors")
    body = flat_simplify(substitute(nest.body, {terms: Const(0)}))
    nest = replace(nest, body=body, axes=tuple(a for a in nest.axes if a != terms))
    reduced = _in_order(nest, tuple(a for a in tile.reduced if a != terms))
    return replace(tile, product=nest, reduced=reduced, words=size)


def word_factors(place: Place) -> tuple[Load, Load] | None:
    """The factors of a sum of products whose terms may be multiplied several at a time."""
    found = factors_of(place.group.nests[0])
    if found is None or place.kernel.tensors[place.group.nests[0].out].dtype is i32:
        return found
    kinds = {place.kernel.tensors[f.param].stored for f in found}
    return found if place.machine.pairs and kinds == {bf16} else None


def check_bytes(place: Place, *, vectors: bool) -> None:
    """Raise Unfit for anything but a sum of products of bytes on a machine with vectors, or on one without.

    With vectors it may be one of bf16.
    """
    kernel, nest = place.kernel, place.group.nests[0]
    types = [kernel.tensors[f.param].storage for f in word_factors(place) or ()]
    sums = i32 if types == [u8, i8] else f32 if vectors and types == [bf16, bf16] else None
    conditions = (
        ((place.machine.vector_bytes >= 16) == vectors, _unlike(place.machine, vectors)),
        (sums is not None, "it is no sum of products of u8 and i8, nor of bf16 where the machine may add two at once"),
        (kernel.tensors[nest.out].dtype is sums, "its sums have not 32 bits"),
        (nest.where is None, "it has a guard"),
        (not any(p.type.is_open for p in kernel.tensors.values()), "sizes are not known"),
    )
    require(conditions)
    check_reduction(place)


def _unlike(machine: Machine, vectors: bool) -> str:
    return f"vectors have {machine.vector_bytes} bytes, tiles need 16" if vectors else "there are vectors"


def in_words(place: Place) -> tuple[Group, Axis]:
    """The group with the reduction axis that both factors have innermost in two, and the axis of the columns.

    The factor that has the columns is the second.
    """
    group, kernel = place.group, place.kernel
    nest = group.nests[0]
    found = factors_of(nest)
    assert found is not None and isinstance(nest.body, Apply)
    a, b = found
    if kernel.tensors[nest.out].dtype is i32:
        columns = [c for c in columns_of_group(place) if c in axes_in(b) and c not in axes_in(a)]
    else:  # results may lie in another order than columns, and factors may stand in any
        columns = [c for c in group.shared if _lies_in_words(b, c, kernel)]
        if not columns:
            nest, (a, b) = replace(nest, body=Apply("mul", nest.body.args[::-1])), found[::-1]
            columns = [c for c in group.shared if _lies_in_words(b, c, kernel)]
    if len(columns) != 1:
        raise Unfit("no output axis that the second factor alone has is innermost in the result")
    size = WORD // kernel.tensors[b.param].storage.itemsize
    place_of = offset(a.index, kernel.tensors[a.param].shape)
    near = [x for x in nest.axes if x in nest.reduction_axes and coefficient(place_of, x) == 1]
    if len(near) != 1 or near[0].extent % size:
        raise Unfit(f"{size} terms of the sum do not lie next to each other")
    (k,) = near
    outer, terms = Axis(k.name, k.extent // size), Axis(TERMS, size)
    axes = tuple(x for y in nest.axes for x in ((outer, terms) if y == k else (y,)))
    cut = simplify_nest(nest.substitute({k: outer * size + terms}, axes))
    return Group((cut, *group.nests[1:]), group.shared), columns[0]


def _lies_in_words(factor: Load, column: Axis, kernel: Kernel) -> bool:
    """Whether words of neighbouring columns lie next to each other in a factor of bf16."""
    lane = Axis("lane", PANEL)
    place = substitute(offset(factor.index, kernel.tensors[factor.param].shape), {column: lane})
    return coefficient(flat_simplify(place), lane) == WORD // bf16.itemsize


def step_of_terms(group: Group, kernel: Kernel) -> int | None:
    """How far apart the terms of a word are in the factor of the columns."""
    found = factors_of(group.nests[0])
    assert found is not None
    terms = next(a for a in group.nests[0].axes if a.name == TERMS)
    return coefficient(offset(found[1].index, kernel.tensors[found[1].param].shape), terms)


def _operands(group: Group, kernel: Kernel, column: Axis) -> Operands:
    found = factors_of(group.nests[0])
    assert found is not None
    rows, columns = (kernel.tensors[f.param].type.capacity for f in found)
    sizes = {p.name: p.type.capacity for p in kernel.tensors.values()}
    return Operands(group, column, True, None, (), None, Axis("cb", 1), 0, (), rows, columns, sizes)


def _in_order(nest: Nest, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Reduction axes in the order in which the weights lie in memory."""
    found = factors_of(nest)
    assert found is not None
    return tuple(sorted(axes, key=lambda x: -abs(coefficient(found[1].index[0], x) or 0)))
