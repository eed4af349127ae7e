"""Tile heights for open rows: every number of rows is covered, exactly where the heights divide it."""

from __future__ import annotations

import pytest

from dlc.kernel.schedules.open_rows import OpenRows, heights

CASES = [
    (OpenRows(32, 128, 8, 128), 30, 1),
    (OpenRows(16, 64, 4, 64), 14, 2),
    (OpenRows(8, 32, 2, 32), 14, 2),
    (OpenRows(1, 128, 1, 128), 14, 2),
    (OpenRows(1, 70, 1, 70), 30, 1),
    (OpenRows(0, 127, 1, 127), 6, 2),
    (OpenRows(64, 1024, 64, 1024), 14, 2),
    (OpenRows(1, 3, 1, 3), 6, 2),
]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("sizes", "limit", "vectors"), CASES)
def test_every_number_of_rows_is_covered(sizes: OpenRows, limit: int, vectors: int, again: bool) -> None:
    found = heights(sizes, limit, vectors, again)
    assert found is not None
    assert found.tall <= min(limit, sizes.high)
    cases = {sum(parts): parts for parts in found.rests}
    for rows in range(max(1, sizes.low), sizes.high + 1, sizes.unit):
        left = found.rest(rows)
        assert left == 0 or left in cases
        whole = -(-rows // found.step) * found.step
        assert (whole - left) % found.tall == 0
        if found.exact:
            assert whole == rows
        if not again:
            assert whole <= sizes.high  # there is room behind the last row


def test_few_rows_more_than_a_tile_are_shared_by_two() -> None:
    found = heights(OpenRows(8, 32, 2, 32), 6, 2, False)
    assert found is not None
    assert found.parts(found.rest(8)) == (4, 4)


def test_as_many_rows_as_one_tile_holds_are_one_tile() -> None:
    """Every tile reads all of the other factor again, as long as the cache of a decoder is."""
    found = heights(OpenRows(1, 16, 1, 16), 14, 2, False)
    assert found is not None
    for rows in range(1, 15):
        left = found.rest(rows)
        assert (rows - left + found.step - 1) // found.tall + len(found.parts(left)) == 1


def test_rows_that_no_height_divides() -> None:
    assert heights(OpenRows(1, 7, 1, 2), 6, 2, False) is not None  # single rows always do
    found = heights(OpenRows(1, 7, 1, 3), 6, 2, False)
    assert found is not None
    assert found.step == 1
