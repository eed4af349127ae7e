"""A plan with values in the memory of inputs that may be consumed, `plan-memory{inputs=consumed}`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dlc.api.plan import INPUTS, Plan
from dlc.placement import Buffer, Placement, Region, Regional, check_regions
from dlc.placement.regions import Placer, bound_beside, place_beside

ONLY: Final = "arena"
"""Name of the memory where there is one."""


def consumable(plan: Plan) -> tuple[Region, ...]:
    """The memory of each input that belongs to the program, free behind the step that reads it last.

    Inputs that an output may share, that are copied first, or whose size is open, are left alone; so are weights and
    states, which later calls read too.
    """
    graph = plan.graph
    shared = {j for _, j in graph.aliases}
    return tuple(
        Region(f"{INPUTS}:{j}", x.type.nbytes, plan.last_uses.get(x.digest, -1) + 1)
        for j, x in enumerate(graph.inputs)
        if j not in shared and x.role in ("data", "label") and not x.type.is_open and x.type.symbol is None
    )


@dataclass(frozen=True)
class Beside:
    """Places in the memory of inputs and in an arena that were checked."""

    names: tuple[str, ...]
    """Of the memories, the arena last."""
    found: Regional
    placement: Placement
    """Of the arena, with what it needs at least beside the inputs."""

    def place(self, buffer: int) -> tuple[str, int]:
        """(memory, offset) of a buffer."""
        return self.names[self.found.of[buffer]], self.found.offsets[buffer]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that are used of each memory; inputs in which nothing lies have no entry."""
        sizes = zip(self.names, (p.arena for p in self.found.placements), strict=True)
        return {name: size for name, size in sizes if size or name == ONLY}

    @property
    def facts(self) -> dict[str, int | str]:
        """For the plan."""
        p = self.placement
        return {
            "arena": p.arena,
            "bound": p.bound,
            "bound_step": p.bound_step,
            "overhead_percent": f"{100 * p.gap:.2f}",
            "method": p.method,
            "in_inputs": sum(size for name, size in self.sizes.items() if name != ONLY),
        }

    @property
    def note(self) -> str:
        """For people."""
        p = self.placement
        return (
            f"arena {p.arena:,} B, bound {p.bound:,} B at operation {p.bound_step}, overhead {100 * p.gap:.2f} %; "
            f"{self.facts['in_inputs']:,} B in the memory of inputs"
        )


def beside_inputs(buffers: Sequence[Buffer], free: Sequence[Region], align: int, placer: Placer) -> Beside:
    """Places in the memory of inputs behind their last readers, as far as that makes the arena smaller."""
    found = place_beside(buffers, free, align, placer)
    arena = found.placements[-1].arena
    places = list(zip(found.of, found.offsets, strict=True))
    wrong = check_regions(buffers, places, [*(r.size for r in free), arena], align)
    early = [b.id for b, (r, _) in zip(buffers, places, strict=True) if r < len(free) and b.birth < free[r].since]
    assert not wrong and not early, (wrong, early)
    bound, step = bound_beside(buffers, free, align)
    last = replace(found.placements[-1], bound=bound, bound_step=step, floor=bound, proven=arena == bound)
    return Beside((*(r.name for r in free), ONLY), found, last)
