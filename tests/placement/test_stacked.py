"""Placements made again for smaller buffers: sound at any sizes, never higher than before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.placement import Buffer, check_placement, place
from dlc.placement.stacked import resting, stacked

ALIGN = 64


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Buffer], list[int]]:
    """Buffers, and smaller sizes for them."""
    buffers: list[Buffer] = []
    sizes: list[int] = []
    for k in range(draw(st.integers(1, 16))):
        birth = draw(st.integers(0, 10))
        most = draw(st.integers(1, 8))
        buffers.append(Buffer(k, most * ALIGN, birth, birth + draw(st.integers(1, 6))))
        sizes.append(draw(st.integers(0, most)) * ALIGN)
    return buffers, sizes


@settings(deadline=None, max_examples=300)
@given(cases(), st.sampled_from(["none", "greedy", "search"]))
def test_smaller_buffers_lie_apart_and_lower(case: tuple[list[Buffer], list[int]], strategy: str) -> None:
    buffers, sizes = case
    placed = place(buffers, align=ALIGN, strategy=strategy, budget=50)  # type: ignore[arg-type]
    rests = resting(buffers, placed.offsets)
    order = sorted(range(len(buffers)), key=lambda k: placed.offsets[k])
    offsets, arena = stacked(order, rests, sizes)
    shrunk = [Buffer(b.id, size, b.birth, b.death) for b, size in zip(buffers, sizes, strict=True)]
    assert check_placement(shrunk, offsets, ALIGN, arena) == []
    assert all(new <= old for new, old in zip(offsets, placed.offsets, strict=True))
    assert arena <= placed.arena
    _, whole = stacked(order, rests, [b.size for b in buffers])
    assert whole <= placed.arena
    assert whole == placed.arena or not placed.proven


@settings(deadline=None, max_examples=100)
@given(cases())
def test_only_what_lies_directly_below_is_told(case: tuple[list[Buffer], list[int]]) -> None:
    """What a buffer rests on through another is left out: those are as few as can be."""
    buffers, _ = case
    placed = place(buffers, align=ALIGN, strategy="none")
    rests = resting(buffers, placed.offsets)
    for k, below in enumerate(rests):
        deeper = {i for j in below for i in rests[j]}
        assert not deeper & set(below), (k, below)
