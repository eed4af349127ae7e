"""The memory of a training program, as its functions find and check it."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.api.training import RegionName
from dlc_backend_c.package import Package, refuse
from dlc_backend_c.weights import ALIGN


def pointers(regions: Iterable[RegionName]) -> list[str]:
    """Declarations of the regions as bytes."""
    return [f"    unsigned char *const {r} = (unsigned char *)t->{r};" for r in regions]


def region_checks(
    package: Package,
    regions: Iterable[RegionName],
    *,
    arena: bool,
    weights: bool = False,
    arguments: tuple[list[str], list[str]] | None = None,
) -> list[str]:
    """Statements that refuse before anything is written.

    Args:
        package: The program.
        regions: Memory that must be there.
        arena: Whether the arena must be, too.
        weights: Whether weights that the user gives must be there.
        arguments: Conditions under which arguments are absent, and under which they are misaligned.
    """
    regions = tuple(regions)
    null, skew = [f"t->{r} == NULL" for r in regions], [f"(uintptr_t)t->{r} % {ALIGN}u != 0" for r in regions]
    if arena and package.arena_bytes:
        null += ["t->arena == NULL"] * package.asks_for_arena
        skew.append(f"(uintptr_t)t->arena % {ALIGN}u != 0")
    if arguments is not None:
        null += ["inputs == NULL", "outputs == NULL", *arguments[0]]
        skew += arguments[1]
    lines = refuse(null, f"{package.macro}_ERROR_NULL") + refuse(skew, f"{package.macro}_ERROR_ALIGNMENT")
    return lines + refuse(["w == NULL"] * (weights and package.needs_weights), f"{package.macro}_ERROR_WEIGHTS")
