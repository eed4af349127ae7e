"""A plan in several memories, `plan-memory{regions=fast:64KiB,slow:8MiB}`: which value lies in which.

Fast memory gets the values with most accesses per byte and step that they live. Accesses are counted by operands and
results: every byte once per step, workspaces twice; how often loops come back to a byte is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlc.api.plan import Plan, results_of
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.graph.graph import Graph
from dlc.placement import Buffer, Region, Regional, check_regions, max_live, place_in_regions
from dlc.placement.regions import Placer

_SHOWN: Final = 5
"""Buffers that messages name."""


def check_sizes(graph: Graph) -> None:
    """Raise DlcError (USAGE) for a program whose calls have different sizes: places there depend on each other."""
    open_ = dict.fromkeys(i.name for i in graph.inputs if i.type.is_open)
    if open_:
        raise error(
            "open-regions",
            f"several memories need known sizes, and inputs have open ones: {', '.join(open_)}",
            help="fix them with --dim NAME=N or --input NAME:SHAPE, or plan for one memory",
            exit_code=ExitCode.USAGE,
        )


def accesses(
    plan: Plan, count: int, values: Mapping[str, tuple[int, int]], workspaces: Mapping[str, int], sizes: Sequence[int]
) -> tuple[int, ...]:
    """Bytes that steps read and write of each buffer.

    Args:
        plan: The steps.
        count: Of the buffers.
        values: Digest of a value → (its buffer, bytes).
        workspaces: Digest of a step → the buffer that it works in.
        sizes: Bytes of the buffers.
    """
    found = [0] * count
    for step in plan.steps:
        for value in (*step.operands, *results_of(step)):
            if value.digest in values:
                buffer, size = values[value.digest]
                found[buffer] += size
        if step.digest in workspaces:
            found[workspaces[step.digest]] += 2 * sizes[workspaces[step.digest]]
    return tuple(found)


@dataclass(frozen=True)
class Several:
    """Places in several memories that were checked."""

    regions: tuple[Region, ...]
    found: Regional
    bound: int
    """Most bytes that are live together."""
    step: int
    """Where."""
    accesses: tuple[int, ...]
    """Per buffer."""

    def place(self, buffer: int) -> tuple[str, int]:
        """(memory, offset) of a buffer."""
        return self.regions[self.found.of[buffer]].name, self.found.offsets[buffer]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that are used of each memory."""
        return {r.name: p.arena for r, p in zip(self.regions, self.found.placements, strict=True)}

    def notes(self) -> Iterator[str]:
        """What lies in each memory."""
        whole = sum(self.accesses)
        for number, (region, placed) in enumerate(zip(self.regions, self.found.placements, strict=True)):
            own = sum(self.accesses[k] for k in self.found.members(number))
            part = f"{100 * own / whole:.1f} % of all accesses" if whole else "no accesses"
            yield f"{region.name} {placed.arena:,} B of {region.size:,}, bound {placed.bound:,} B, {part}"


def several(
    buffers: Sequence[Buffer],
    regions: Sequence[tuple[str, int]],
    accessed: tuple[int, ...],
    align: int,
    placer: Placer,
    described: Callable[[int], str],
) -> Several:
    """Places in several memories.

    Raises:
        DlcError: (LIMIT) they are too small, or no places were found: with the largest buffers at the peak, which
            `described` names.
    """
    memories = tuple(Region(name, size) for name, size in regions)
    bound, step = max_live(buffers, align)
    found = place_in_regions(buffers, memories, accessed, align, placer)
    if not found.fits:
        raise _too_large(buffers, memories, found, bound, step, described)
    places = list(zip(found.of, found.offsets, strict=True))
    wrong = check_regions(buffers, places, [r.size for r in memories], align)
    assert not wrong, wrong
    return Several(memories, found, bound, step, accessed)


def _too_large(
    buffers: Sequence[Buffer],
    regions: Sequence[Region],
    found: Regional,
    bound: int,
    step: int,
    described: Callable[[int], str],
) -> DlcError:
    """The error that says by how much, whether that is proven, and who holds the most."""
    whole = sum(r.size for r in regions)
    largest = max(buffers, key=lambda b: b.size)
    room = max(r.size for r in regions)
    used = ", ".join(f"{r.name} {p.arena} of {r.size}" for r, p in zip(regions, found.placements, strict=True))
    if largest.size > room:
        proof = f"one value alone takes {largest.size} bytes, and no memory has more than {room}: it cannot be met"
        step = largest.birth
    elif bound > whole:
        proof = f"{bound} bytes are live together at step {step}, {bound - whole} more than all memories have"
    else:
        proof = "whether other places would do is not known: it is not disproved"
    live = sorted((b for b in buffers if b.birth <= step < b.death), key=lambda b: -b.size)
    return error(
        "memory-limit",
        f"the values do not fit into {' and '.join(f'{r.name} ({r.size} bytes)' for r in regions)}",
        notes=(
            proof,
            f"bytes at best: {used}",
            f"the peak is at step {step}",
            *(f"in use there: {b.size} bytes, {described(b.id)}" for b in live[:_SHOWN]),
        ),
        help="larger memories, a smaller batch or input; or plan-memory{strategy=auto}",
        exit_code=ExitCode.LIMIT,
    )
