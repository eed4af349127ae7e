"""Tile heights for a number of rows that is known when the program runs: few of them, and one for whatever is left.

    n = q·H + r      →   q tiles of H rows, one of r
                         q - 1 tiles of H rows, two that share the other H + r, where r is little

Where n is always a multiple of some number, heights divide it or are multiples of it, and tiles cover exactly the rows
that there are. Else what is left is rounded up to the next height.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from dlc.kernel.schedules.heights import cycles, rows_cycles

TALL: Final = 4
"""Of more rows than so many of the tallest tiles, what is left hardly matters."""
CODE: Final = 0.0004
"""Share of the time that one more accumulator in the text of a program must save."""
START: Final = 2.0
"""Cycles per step of the reduction that a tile costs besides: short ones wait longer."""


@dataclass(frozen=True)
class OpenRows:
    """How many rows there are: from `low` to `high`, in multiples of `unit`, in blocks of `block`."""

    low: int
    high: int
    unit: int
    block: int


@dataclass(frozen=True)
class Heights:
    """How rows are covered.

    Attributes:
        tall: Rows of the tiles of which there are many.
        step: All heights are multiples of it.
        shared: What is left up to here joins the last tall tile, and two tiles share both.
        exact: Whether the number of rows is always a multiple of the step.
        low: The fewest rows there are.
    """

    tall: int
    step: int
    shared: int
    exact: bool
    low: int

    def rest(self, rows: int) -> int:
        """Rows that no tall tile covers, rounded up to a multiple of the step."""
        tall = max(0, (rows - self.shared - 1) // self.tall) if self.shared else rows // self.tall
        return -(-(rows - tall * self.tall) // self.step) * self.step

    @cached_property
    def rests(self) -> tuple[tuple[int, ...], ...]:
        """All that may be left, ascending: each as the tiles that cover it."""
        first = self.shared + self.step if self.shared else self.step
        if self.shared and self.low <= self.shared:
            first = max(-(-self.low // self.step), 1) * self.step
        last = self.tall + self.shared - (self.step if self.exact and not self.shared else 0)
        return tuple(self.parts(rows) for rows in range(first, last + 1, self.step))

    def parts(self, rest: int) -> tuple[int, ...]:
        """The tiles that cover what is left."""
        if rest <= self.tall:
            return (rest,) if rest else ()
        half = -(-rest // 2 // self.step) * self.step
        return half, rest - half

    def time(self, rows: int, vectors: int) -> float:
        """Cycles per step of the reduction."""
        rest = self.rest(rows)
        tall = max(0, rows - rest + self.step - 1) // self.tall
        return tall * _time((self.tall,), vectors) + _time(self.parts(rest), vectors)

    @property
    def text(self) -> int:
        """Rows of all tiles that are written down."""
        return self.tall + sum(map(sum, self.rests))


@lru_cache(maxsize=256)
def heights(sizes: OpenRows, limit: int, vectors: int, again: bool) -> Heights | None:
    """The heights that cover rows fastest on average; None where every height would compute what it must not.

    Args:
        limit: Most rows of a tile.
        vectors: Vectors of a tile.
        again: Whether a row may be computed twice.
    """
    limit = min(limit, sizes.high)
    first = max(-(-sizes.low // sizes.unit), 1) * sizes.unit
    counts = range(first, min(sizes.high, TALL * limit) + 1, sizes.unit) or (sizes.high,)
    best = {n: rows_cycles(n, limit, vectors, START) for n in counts}
    found: list[tuple[float, Heights]] = []
    for step in range(1, limit + 1):
        divides = not (sizes.unit % step and sizes.high % step) and sizes.block % step == 0
        if not divides and not again:
            continue
        for tall in range(step, limit + 1, step):
            for shared in range(0, tall // 2 + 1, step):
                each = Heights(tall, step, shared, sizes.unit % step == 0, sizes.low)
                slower = sum(each.time(n, vectors) / time for n, time in best.items()) / len(counts)
                found.append((slower + CODE * each.text * vectors, each))
    return min(found, key=lambda x: x[0])[1] if found else None


def _time(rows: Iterable[int], vectors: int) -> float:
    return sum(cycles(h, vectors) + START for h in rows)
