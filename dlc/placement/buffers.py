"""Buffers with fixed lifetimes, and the least memory any placement of them can need."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Buffer:
    """A block of memory that must stay untouched by others while it is live.

    Live in the half-open step interval [birth, death); two buffers whose intervals
    only touch may share bytes.
    """

    id: int  # chosen by the caller, used in messages and to break ties
    size: int  # bytes, before rounding to the alignment
    birth: int  # first step at which the buffer is live
    death: int  # first step at which it no longer is
    fixed: int | None = None  # the offset that it must have


@dataclass(frozen=True)
class Placement:
    """Offsets for a sequence of buffers, with the bound that tells how good they are."""

    offsets: tuple[int, ...]  # bytes from the start of the arena, one per buffer in the order given
    arena: int  # bytes needed to hold every buffer
    bound: int  # largest sum of aligned sizes live at one step; no placement can be smaller
    bound_step: int  # the first step at which the bound is reached
    method: str  # which rule found these offsets, for the report
    proven: bool  # no smaller arena exists
    tries: int  # complete or abandoned placements attempted
    floor: int  # bytes: smaller arenas are proven impossible; the bound, or more where a complete search refuted more
    late: bool = False  # a time limit ended the search: another run may find another placement

    @property
    def gap(self) -> float:
        """How far the arena is above the bound, as a fraction of the bound."""
        return (self.arena - self.bound) / self.bound if self.bound else 0.0


def aligned(size: int, align: int) -> int:
    """The size in bytes rounded up to a multiple of align."""
    return -(-size // align) * align


def check_arguments(buffers: Sequence[Buffer], align: int) -> None:
    """Raise ValueError for sizes, lifetimes or alignments that have no meaning."""
    if align < 1:
        raise ValueError(f"alignment must be at least 1, got {align}")
    for buffer in buffers:
        if buffer.size < 0:
            raise ValueError(f"buffer {buffer.id} has a negative size, {buffer.size}")
        if buffer.birth >= buffer.death:
            raise ValueError(f"buffer {buffer.id} has an empty lifetime, [{buffer.birth}, {buffer.death})")
        if buffer.fixed is not None and (buffer.fixed < 0 or buffer.fixed % align):
            raise ValueError(f"buffer {buffer.id} is fixed at {buffer.fixed}, no multiple of {align}")


def end_of_fixed(buffers: Sequence[Buffer], align: int) -> int:
    """Where the highest buffer ends whose offset is given."""
    return max((b.fixed + aligned(b.size, align) for b in buffers if b.fixed is not None), default=0)


def live_profile(buffers: Sequence[Buffer], align: int) -> tuple[list[int], list[int]]:
    """Steps at which the live total can change, ascending, and the aligned live bytes from each step on."""
    change: dict[int, int] = {}
    for buffer in buffers:
        size = aligned(buffer.size, align)
        change[buffer.birth] = change.get(buffer.birth, 0) + size
        change[buffer.death] = change.get(buffer.death, 0) - size
    steps = sorted(change)
    totals: list[int] = []
    live = 0
    for step in steps:
        live += change[step]
        totals.append(live)
    return steps, totals


def max_live(buffers: Sequence[Buffer], align: int) -> tuple[int, int]:
    """The largest aligned live total in bytes, and the first step where it occurs; (0, 0) for no buffers."""
    check_arguments(buffers, align)
    steps, totals = live_profile(buffers, align)
    if not totals:
        return 0, 0
    bound = max(totals)
    return bound, steps[totals.index(bound)]
