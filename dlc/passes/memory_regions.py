"""A plan in several memories, `plan-memory{regions=fast:64KiB,slow:8MiB}`: which value lies in which.

Fast memory gets the values with most accesses per byte and step that they live. Accesses are counted by operands and
results: every byte once per step, workspaces twice; how often loops come back to a byte is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dlc.api.plan import Plan
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.memories import costs_of
from dlc.base.report import Report
from dlc.graph.graph import Graph
from dlc.graph.structure import Copy
from dlc.passes.memory_copies import accesses, moved, tracks_of
from dlc.passes.memory_wanted import Wanted
from dlc.placement import Buffer, Region, Regional, check_regions, max_live, place_in_regions
from dlc.placement.pieces import pieces_of
from dlc.placement.regions import Placer, placed_in
from dlc.placement.routes import Room
from dlc.placement.transfers import transfers

_SHOWN: Final = 5
"""Buffers that messages name."""
_TRIES: Final = 4
"""Sizes of memories that are tried with copies."""
_LEAST: Final = 1e-6
"""What copies have to save, as a part of the cost."""


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


@dataclass(frozen=True)
class Memories:
    """What a user says of several memories."""

    regions: tuple[Region, ...]
    """The fastest first."""
    costs: tuple[float, ...]
    """Of reading or writing a byte of each, relative to each other."""
    copies: bool
    """Whether values may be copied between them."""
    align: int
    """Of every offset, in bytes."""

    @classmethod
    def of(
        cls, regions: Sequence[tuple[str, int]], costs: Sequence[tuple[str, float]], copies: bool, align: int
    ) -> Memories:
        """Memories with their costs, be they given or usual."""
        return cls(tuple(Region(name, size) for name, size in regions), costs_of(regions, costs), copies, align)

    def cost(self, accessed: Sequence[int]) -> float:
        """Of so many bytes that are accessed of each."""
        return sum(n * cost for n, cost in zip(accessed, self.costs, strict=True))


@dataclass(frozen=True)
class Several:
    """A plan whose values have places in several memories, which were checked."""

    memories: Memories
    plan: Plan
    wanted: Wanted
    found: Regional

    def place(self, buffer: int) -> tuple[str, int]:
        """(memory, offset) of a buffer."""
        return self.memories.regions[self.found.of[buffer]].name, self.found.offsets[buffer]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that are used of each memory."""
        return {r.name: p.arena for r, p in zip(self.memories.regions, self.found.placements, strict=True)}

    @cached_property
    def accesses(self) -> tuple[int, ...]:
        """Bytes that steps read and write of each memory, copies among them."""
        own = accesses(self.plan, self.wanted)
        return tuple(sum(own[k] for k in self.found.members(n)) for n in range(len(self.memories.regions)))

    @property
    def cost(self) -> float:
        """Of all accesses."""
        return self.memories.cost(self.accesses)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The steps that copy."""
        return tuple(step for step in self.plan.steps if isinstance(step, Copy))

    def notes(self) -> Iterator[str]:
        """What lies in each memory."""
        whole = sum(self.accesses)
        for region, placed, own in zip(self.memories.regions, self.found.placements, self.accesses, strict=True):
            part = f"{100 * own / whole:.1f} % of all accesses" if whole else "no accesses"
            yield f"{region.name} {placed.arena:,} B of {region.size:,}, bound {placed.bound:,} B, {part}"

    def facts(self, before: Several | None, floor: float) -> dict[str, int | str]:
        """Of the plan: its copies, and what is accessed with and without them."""
        found: dict[str, int | str] = {
            "copies": len(self.copies),
            "copied_bytes": sum(c.type.nbytes for c in self.copies),
        }
        names = [r.name for r in self.memories.regions]
        found |= {f"accesses {name}": n for name, n in zip(names, self.accesses, strict=True)}
        found["access_cost"] = round(self.cost)
        if before is not None and before is not self:
            found |= {f"accesses {name} without copies": n for name, n in zip(names, before.accesses, strict=True)}
            found["access_cost_without_copies"] = round(before.cost)
        return {**found, "access_cost_bound": math.ceil(floor - _LEAST * floor)} if floor else found


def several(plan: Plan, wanted: Wanted, memories: Memories, placer: Placer, report: Report) -> Plan:
    """The plan in several memories, with copies between them where these make accesses cheaper.

    Raises:
        DlcError: (USAGE) open sizes; (LIMIT) the memories are too small, or no places were found: with the largest
            buffers at the peak.
    """
    check_sizes(plan.graph)
    buffers, align = wanted.lives.buffers, memories.align
    bound, step = max_live(buffers, align)
    found = place_in_regions(buffers, memories.regions, accesses(plan, wanted), align, placer)
    plain = Several(memories, plan, wanted, found) if found.fits else None
    better, floor = _with_copies(plan, wanted, memories, placer, plain) if memories.copies else (None, 0.0)
    made = better or plain
    if made is None:
        raise _too_large(buffers, memories.regions, found, bound, step, lambda b: wanted.described(plan, b))
    places = list(zip(made.found.of, made.found.offsets, strict=True))
    wrong = check_regions(made.wanted.lives.buffers, places, [r.size for r in memories.regions], align)
    assert not wrong, wrong
    for note in made.notes():
        report.note(note)
    if made is not plain:
        _tell_copies(made, plain, floor, report)
    whole = sum(made.sizes.values())
    before = [number for number, s in enumerate(made.plan.steps) if not isinstance(s, Copy)]
    facts: dict[str, int | str] = {
        "arena": whole,
        "bound": bound,
        "bound_step": before[step] if before else 0,
        "overhead_percent": f"{100.0 * (whole - bound) / bound if bound else 0.0:.2f}",
        "method": ", ".join(dict.fromkeys(p.method for p in made.found.placements if p.arena)),
        "unshared": wanted.unshared,
        **made.facts(plain, floor),
    }
    return made.wanted.plan(made.plan, made.place, made.sizes, facts)


def _with_copies(
    plan: Plan, wanted: Wanted, memories: Memories, placer: Placer, plain: Several | None
) -> tuple[Several | None, float]:
    """(a plan that costs less than the one without copies, what every plan of its kind costs at least).

    Live bytes decide what fits. Where offsets leave gaps, so that a memory overflows, it is tried again with less.
    """
    if plain is not None and not any(plain.found.of):
        return None, 0.0
    tracks = tracks_of(plan, wanted, memories.align)
    room = [r.size for r in memories.regions]
    start: Sequence[int] | None = plain.found.of if plain is not None else None
    floor = 0.0
    for number in range(_TRIES):
        rooms = [Room(size, cost) for size, cost in zip(room, memories.costs, strict=True)]
        found = transfers(tracks, rooms, start)
        if found is None:
            break
        floor = found.bound if number == 0 else floor
        if plain is not None and found.cost >= plain.cost * (1 - _LEAST):
            break
        pieces = pieces_of(tracks, rooms, found.routes)
        placed = placed_in(pieces.buffers, pieces.memory, memories.regions, placer)
        if placed.fits:
            return Several(memories, *moved(plan, wanted, pieces), placed), floor
        over = [max(0, p.arena - r.size) for p, r in zip(placed.placements, memories.regions, strict=True)]
        room, start = [max(1, size - more) for size, more in zip(room, over, strict=True)], None
    return None, floor


def copies_text(count: int, copied: int) -> str:
    """So many copies of so many bytes in all."""
    if not count:
        return "no copies between memories"
    return f"{count} {'copy' if count == 1 else 'copies'} of {copied:,} B between memories"


def _tell_copies(made: Several, plain: Several | None, floor: float, report: Report) -> None:
    """Say what is copied where, and what that is good for."""
    report.missed_as = "copied"
    regions = {d: made.place(buffer)[0] for d, (buffer, _) in made.wanted.values.items()}
    for copy in made.copies:
        (source,) = copy.operands
        names = ", ".join(made.plan.graph.origin(copy)) or "a value"
        report.missed(
            names, f"{copy.type}, {copy.type.nbytes:,} B from {regions[source.digest]} to {regions[copy.digest]}"
        )
    if made.copies:
        report.count("copies between memories", len(made.copies))
    before = f"{plain.cost:,.0f} → " if plain else ""
    least = f", at least {floor:,.0f}" if floor else ""
    copied = copies_text(len(made.copies), sum(c.type.nbytes for c in made.copies))
    report.note(f"{copied}: accesses cost {before}{made.cost:,.0f}{least} in this order")


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
