"""How many rows register tiles have: as registers allow, and as covers all rows fastest."""

from __future__ import annotations

from functools import lru_cache

# Two multiply-adds per cycle with a latency of four: fewer than eight accumulators leave the units waiting.
LATENCY = 4.0
TALLEST = 16
"""Rows of a tile at most: of 28 rows, each its own stream of scalars, some processors reach half of their peak."""


def row_limit(vectors: int, registers: int) -> int:
    """Most rows whose accumulators, one scalar and the column vectors fit the registers."""
    if vectors * 2 > registers // 2 - 1:
        return 1
    return max(1, min(TALLEST, (registers - 1 - vectors) // vectors))


def cycles(rows: int, vectors: int) -> float:
    """Cycles per step of the reduction: multiply-adds, their latency, or loads, whichever is longest.

    Scalars of the rows come from the nearest cache, two in a cycle; vectors of a panel from the second level.
    """
    return max(rows * vectors * 0.5, LATENCY, rows * 0.5 + vectors)


def split_rows(rows: int, limit: int, vectors: int) -> tuple[int, ...]:
    """Tile heights that cover `rows` fastest, tallest first; at most the last few differ from `limit`."""
    tall = _tall(rows, limit)
    return (*([limit] * tall), *_few(rows - tall * limit, limit, vectors))


def alike_rows(rows: int, limit: int, vectors: int) -> tuple[int, ...]:
    """The same, all of one height where that is as fast: they are one loop."""
    found = split_rows(rows, limit, vectors)
    height, rest = divmod(rows, len(found)) if found else (0, 0)
    if rest or len(found) * cycles(height, vectors) > sum(cycles(h, vectors) for h in found):
        return found
    return (height,) * len(found)


def rows_cycles(rows: int, limit: int, vectors: int, start: float = 0.0) -> float:
    """Cycles per step of the reduction, of all tiles that cover `rows`, however many; `start` more for each tile."""
    tall = _tall(rows, limit)
    few = _few(rows - tall * limit, limit, vectors)
    return tall * (cycles(limit, vectors) + start) + sum(cycles(h, vectors) + start for h in few)


def rows_per_block(rows: int, fitting: int, limit: int, vectors: int) -> int:
    """Equal blocks of whole tiles, at most `fitting` rows if possible; the tiles that differ are all in the last."""
    tall = _tall(rows, limit)
    whole = (tall + _few(rows - tall * limit, limit, vectors).count(limit)) * limit
    for blocks in range(-(-rows // max(fitting, limit)), 1, -1):
        size = -(-rows // blocks // limit) * limit
        if last_block(rows, size) <= whole:
            return size
    return rows


def _tall(rows: int, limit: int) -> int:
    """Tiles of the largest height, before the last rows, for which several heights are tried."""
    return max(0, (rows - 4 * limit) // limit)


@lru_cache(maxsize=1024)
def _few(rows: int, limit: int, vectors: int) -> tuple[int, ...]:
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for n in range(1, rows + 1):
        options = [
            (best[n - h][0] + cycles(h, vectors) + 0.01, (*best[n - h][1], h)) for h in range(1, min(limit, n) + 1)
        ]
        best.append(min(options))
    return tuple(sorted(best[rows][1], reverse=True))


def last_block(rows: int, size: int) -> int:
    """The first row of the last of blocks of `size` rows."""
    return (rows - 1) // size * size
