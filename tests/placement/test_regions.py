"""Several memories: places are sound, sizes are kept, fast memory has what is used most, the judge sees all faults."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.placement import Buffer, Placement, Region, check_regions, max_live, place, place_in_regions
from tests.placement.test_place import buffer_lists


def greedy(align: int = 1):
    def placer(buffers: Sequence[Buffer], enough: int | None) -> Placement:
        del enough
        return place(buffers, align=align, strategy="greedy")

    return placer


def regions(*sizes: int) -> list[Region]:
    return [Region(f"m{k}", size) for k, size in enumerate(sizes)]


@settings(deadline=None, max_examples=100)
@given(buffer_lists(), st.lists(st.integers(1, 900), min_size=1, max_size=3), st.sampled_from((1, 8)), st.data())
def test_places_are_sound(buffers: list[Buffer], sizes: list[int], align: int, data: st.DataObject) -> None:
    used = data.draw(st.lists(st.integers(0, 999), min_size=len(buffers), max_size=len(buffers)))
    found = place_in_regions(buffers, regions(*sizes), used, align, greedy(align))
    places = list(zip(found.of, found.offsets, strict=True))
    last = sizes[-1] if found.fits else sum(b.size + align for b in buffers)
    assert check_regions(buffers, places, [*sizes[:-1], last], align) == []
    if max_live(buffers, align)[0] > sum(sizes) or max((b.size for b in buffers), default=0) > max(sizes):
        assert not found.fits


def test_fast_memory_holds_what_is_used_most_per_live_byte() -> None:
    buffers = [Buffer(0, 100, 0, 10), Buffer(1, 100, 0, 2), Buffer(2, 50, 2, 4), Buffer(3, 60, 0, 10)]
    used = (2000, 400, 400, 60)  # per byte and step: 2, 2, 4, 0.1
    found = place_in_regions(buffers, regions(150, 1000), used, 1, greedy())
    assert found.of == (0, 1, 0, 1)
    assert [p.arena for p in found.placements] == [150, 160]


def test_what_the_last_memory_lacks_is_taken_from_the_others() -> None:
    """By density the small one would be in fast memory, and the large one nowhere."""
    buffers = [Buffer(0, 100, 0, 4), Buffer(1, 10, 0, 4)]
    found = place_in_regions(buffers, regions(100, 50), (1, 1000), 1, greedy())
    assert (found.fits, found.of) == (True, (0, 1))


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([(0, 0), (0, 8), (1, 0)], "buffers 0 and 1 share bytes [8, 10) at step 0"),
        ([(0, 0), (1, 0), (2, 0)], "buffer 2 is in memory 2 of 2"),
        ([(0, 0), (1, 0), (0, 15)], "memory 0: buffer 2 ends at 25, beyond the arena of 20 bytes"),
        ([(0, 0), (1, 0)], "3 buffers but 2 places"),
        ([(0, 0), (1, -1), (0, 10)], "memory 1: buffer 1 has the negative offset -1"),
    ],
)
def test_the_judge_names_each_fault(places: list[tuple[int, int]], said: str) -> None:
    buffers = [Buffer(k, 10, 0, 2) for k in range(3)]
    assert check_regions(buffers, [(0, 0), (1, 0), (0, 10)], [20, 10], 1) == []
    assert any(said in fault for fault in check_regions(buffers, places, [20, 10], 1))
