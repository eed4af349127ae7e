"""What a build prints of its cost. Imports no arrays: a build that the cache has prints it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

READINGS: Final[tuple[Literal["parallel", "serial"], ...]] = ("parallel", "serial")
"""How a PE may compute, see `cost.cycles`."""


def cost_lines(facts: Mapping[str, int | str]) -> Sequence[str]:
    """The figures in two lines; nothing where there are none."""
    if "cost_of" not in facts:
        return ()
    number = {key: f"{value:,}" for key, value in facts.items() if isinstance(value, int)}
    cycles = [f"{number[f'cycles_{r}']} {r} (array {facts[f'use_{r}_percent']} % used)" for r in READINGS]
    return (
        f"{facts['cost_of']}: {number['instructions']} instructions, {number['macs']} MACs; "
        f"over the link {number['link_in_bytes']} B in, {number['link_out_bytes']} B out",
        f"cycles: {', '.join(cycles)}; "
        f"of {number['steps']} broadcast steps, mosaics of images would leave {number['packed_steps']}",
    )
