"""Working memories that a user names: `fast:64KiB,slow:8MiB`, the fastest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

DEARER: Final = 4.0
"""How much more an access costs in a memory than in the one before it, where nobody says it."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")


def problem_of(regions: Sequence[tuple[str, int]]) -> str:
    """Why memories that the user wrote cannot be used, or ""."""
    names = [name for name, _ in regions]
    for name, size in regions:
        if not _NAME.fullmatch(name):
            return f"{name!r} is no name of a memory: a small letter, then at most 31 small letters, digits and _"
        if names.count(name) > 1:
            return f"{name} stands there twice"
        if size < 1:
            return f"{name} has no bytes"
    return ""


def costs_of(regions: Sequence[tuple[str, int]], costs: Sequence[tuple[str, float]]) -> tuple[float, ...]:
    """What reading or writing a byte of each memory costs, relative to the others."""
    known = dict(costs)
    return tuple(known.get(name, DEARER**k) for k, (name, _) in enumerate(regions))


def costs_problem(regions: Sequence[tuple[str, int]], costs: Sequence[tuple[str, float]]) -> str:
    """Why the costs of memories that the user wrote cannot be used, or ""."""
    names = [name for name, _ in regions]
    for k, (name, cost) in enumerate(costs):
        if name not in names:
            return f"there is no memory {name}" + (f", but {', '.join(names)}" if names else ", as none is named")
        if name in [other for other, _ in costs[:k]]:
            return f"{name} stands there twice"
        if not 0 < cost < float("inf"):
            return f"{cost:g} for {name} is no positive number"
    for (one, a), (other, b) in pairwise(zip(names, costs_of(regions, costs), strict=True)):
        if a > b:
            return f"the fastest comes first, and {one} ({a:g}) costs more than {other} ({b:g})"
    return ""
