"""Sums of products of bytes by words, for machines without vectors that have an instruction for such dot products.

    for rows, columns: for k, j<4: t[r,c] += i32(x[r, 4·k + j])·i32(w[k, c, j])
    →
    for r<R step 2: for c<C step 2: for k: a0, a1 = words of x;  b0, b1 = words of w;  c0_0 += dots of a0 and b0; …

The tiles are those of `scalar_tiles`; what differs is that each step takes four terms of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from dlc.kernel.expr import Axis
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.loop_plan import tile_of
from dlc.kernel.schedules.scalar_tiles import Grid, smallest, usable_axes
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.schedules.words import check_bytes, in_words, of_words, step_of_terms, word_factors
from dlc.kernel.schedules.words_copy import TERMS
from dlc.spec import option


@dataclass(frozen=True)
class ScalarWords(Choice):
    """Register tiles of a sum of products of bytes without vectors, four terms of it at a time."""

    name = "scalar-words"
    columns: int = option(0, "columns of a tile, of the output axis whose elements are neighbours", low=0)
    rows: int = option(0, "rows of a tile", low=0)

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        if place.machine.words and word_factors(place) is not None:
            check_bytes(place, vectors=False)
            yield cls()

    def apply(self, place: Place) -> Applied:
        check_bytes(place, vectors=False)
        require(((place.machine.words, "there is no instruction for dot products of bytes"),))
        kernel = place.kernel
        group, column = in_words(place)
        if step_of_terms(group, kernel) != 1:
            raise Unfit("four terms of a column do not lie next to each other")
        scope = open_scope(group, kernel, (column,))
        terms = tuple(a for a in scope.nests[0].axes if a.name == TERMS)
        inside = replace(place, group=group, scope=scope)
        rows: list[Axis | None] = [None, *(a for a in usable_axes(scope) if a != column)]
        grids = [
            Grid(inside, of_words(tile_of(scope, kernel, place.machine, row, column, terms), kernel), row)
            for row in rows
        ]
        grid, (tall, wide) = smallest([g for g in grids if g.shares], self.rows, self.columns)
        return Applied(replace(self, rows=tall, columns=wide), grid.loops(tall, wide), ())
