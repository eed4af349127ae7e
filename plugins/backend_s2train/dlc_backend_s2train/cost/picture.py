"""The memory of a program: its peak, the bound that no plan goes below, and a page that shows both over time.

Nothing here is the planner's: what is live is counted anew from the storages.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.html.memory import Held, Memory, drawn, storages_html
from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.program import Program, Storage

PLANNED = (Arena.FEATURES, Arena.FEATURE_GRADIENTS, Arena.WEIGHT_GRADIENTS)
"""Arenas whose storages a planner places over time; the others stay from one run to the next."""
_HUES = {Arena.FEATURES: 210, Arena.FEATURE_GRADIENTS: 130, Arena.WEIGHT_GRADIENTS: 285}
_NAMED = 4
"""Tensors at most that are named of one storage."""


def planned(program: Program) -> tuple[int, ...]:
    """Numbers of the storages that are placed over time."""
    return tuple(n for n, s in enumerate(program.storages) if s.arena in PLANNED)


def live_bytes(storages: Sequence[Storage]) -> list[tuple[int, int]]:
    """(instruction, bytes in use from there on) at every instruction where that changes, in order."""
    changes: dict[int, int] = {}
    for storage in storages:
        if storage.end > storage.begin:
            changes[storage.begin] = changes.get(storage.begin, 0) + storage.size
            changes[storage.end] = changes.get(storage.end, 0) - storage.size
    level, found = 0, list[tuple[int, int]]()
    for at in sorted(changes):
        level += changes[at]
        found.append((at, level))
    return found


def peak_and_bound(storages: Sequence[Storage]) -> tuple[int, int]:
    """(peak, bound) in bytes.

    The peak is the extent of all addresses, from the lowest to behind the highest; the bound is the largest sum of
    sizes that are in use at the same time. A plan without gaps and without clashes has peak ≥ bound.
    """
    used = [s for s in storages if s.end > s.begin]
    if not used:
        return 0, 0
    peak = max(s.address + s.size for s in used) - min(s.address for s in used)
    return peak, max(level for _, level in live_bytes(used))


def picture(program: Program) -> Memory:
    """The storages that are placed over time."""
    names = _names(program)
    storages = [(n, program.storages[n]) for n in planned(program)]
    held = [Held(names.get(n, "no tensor"), _arena(s.arena), s.begin, s.end, s.address, s.size) for n, s in storages]
    return drawn(
        held,
        bound=peak_and_bound([s for _, s in storages])[1],
        unit="instruction",
        marks=[(entry.begin, entry.name) for entry in program.entries],
        key={_arena(arena): hue for arena, hue in _HUES.items()},
    )


def memory_html(program: Program, title: str) -> str:
    """The page: no scripts, no network, one file. Names are escaped."""
    return storages_html(title, picture(program))


def _arena(arena: Arena) -> str:
    return arena.name.lower().replace("_", " ")


def _names(program: Program) -> dict[int, str]:
    """Storage → the tensors in it, for people."""
    held: dict[int, list[str]] = {}
    for tensor in program.tensors:
        held.setdefault(tensor.storage, []).append(tensor.name)
    return {
        n: ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        for n, names in held.items()
    }
