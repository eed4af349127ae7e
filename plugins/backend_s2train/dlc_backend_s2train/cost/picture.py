"""The memory of a program: its peak, the bound that no plan goes below, and a page that shows both over time.

Nothing here is the planner's: what is live is counted anew from the storages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from dlc.diagnostics import escape
from dlc.memory_html import HEIGHT, WIDTH, Rectangle
from dlc_backend_s2train.program import Arena, Program, Storage

PLANNED = (Arena.FEATURES, Arena.FEATURE_GRADIENTS, Arena.WEIGHT_GRADIENTS)
"""Arenas whose storages a planner places over time; the others stay from one run to the next."""
_HUES = {
    Arena.HOST: 0,
    Arena.WEIGHTS: 45,
    Arena.FEATURES: 210,
    Arena.FEATURE_GRADIENTS: 130,
    Arena.WEIGHT_GRADIENTS: 285,
}
_LISTED = 12
"""Storages at most that are listed as live at the peak."""
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


@dataclass(frozen=True)
class Picture:
    """Time by address, drawn."""

    rectangles: tuple[Rectangle, ...]
    curve: str
    """Points of the line of live bytes."""
    peak: int
    bound: int
    bound_y: float
    begin: int
    """First instruction that is drawn."""
    end: int
    base: int
    """Lowest address."""
    entries: tuple[tuple[float, str], ...]
    """(x, name) where a function of the program begins."""
    most: tuple[tuple[str, int, str], ...]
    """(tensors, bytes, arena) of the storages that are live when most bytes are, the largest first."""

    @property
    def gap(self) -> str:
        """What the plan takes beyond the bound."""
        return f"{100 * (self.peak - self.bound) / self.bound:.2f} %" if self.bound else "0 %"


def picture(program: Program, numbers: Sequence[int] | None = None) -> Picture:
    """The picture of some storages; by default, of those that are placed over time."""
    numbers = planned(program) if numbers is None else numbers
    shown = [n for n in numbers if program.storages[n].end > program.storages[n].begin]
    storages = [program.storages[n] for n in shown]
    peak, bound = peak_and_bound(storages)
    begin, end = min((s.begin for s in storages), default=0), max((s.end for s in storages), default=1)
    base = min((s.address for s in storages), default=0)
    names = _names(program)
    across, up = WIDTH / (end - begin), HEIGHT / max(peak, bound, 1)
    drawn = tuple(
        Rectangle(
            (s.begin - begin) * across,
            HEIGHT - (s.address - base + s.size) * up,
            (s.end - s.begin) * across,
            s.size * up,
            _HUES[s.arena],
            f"{names.get(n, 'no tensor')}: {_arena(s)}, {s.size:,} B at {s.address:,}, "
            f"instructions {s.begin} to {s.end - 1}",
        )
        for n, s in zip(shown, storages, strict=True)
    )
    levels = live_bytes(storages)
    points = [(begin, 0)]
    for at, level in levels:
        points += [(at, points[-1][1]), (at, level)]
    fullest = max(levels, key=lambda item: item[1], default=(0, 0))[0]
    alive = [(n, s) for n, s in zip(shown, storages, strict=True) if s.begin <= fullest < s.end]
    alive.sort(key=lambda item: (-item[1].size, item[0]))
    return Picture(
        drawn,
        " ".join(f"{(at - begin) * across:.1f},{HEIGHT - level * up:.1f}" for at, level in points),
        peak,
        bound,
        HEIGHT - bound * up,
        begin,
        end,
        base,
        tuple(((e.begin - begin) * across, escape(e.name)) for e in program.entries if begin <= e.begin < end),
        tuple((names.get(n, "no tensor"), s.size, _arena(s)) for n, s in alive[:_LISTED]),
    )


def memory_html(program: Program, title: str) -> str:
    """The page: no scripts, no network, one file. Names are escaped."""
    return render(
        "memory.html.j2", title=escape(title), memory=picture(program), width=WIDTH, height=HEIGHT, hues=_key()
    )


def render(template: str, **values: object) -> str:
    """A page from a template of this package; values are escaped for HTML there."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["grouped"] = lambda n: f"{n:,}"
    folder = files("dlc_backend_s2train") / "cost" / "templates"
    style = (folder / "style.css").read_text(encoding="utf-8")
    return environment.from_string((folder / template).read_text(encoding="utf-8")).render(style=style, **values)


def _key() -> list[tuple[str, int]]:
    return [(arena.name.lower().replace("_", " "), hue) for arena, hue in _HUES.items() if arena in PLANNED]


def _arena(storage: Storage) -> str:
    return storage.arena.name.lower().replace("_", " ")


def _names(program: Program) -> dict[int, str]:
    """Storage → the tensors in it, for people."""
    held: dict[int, list[str]] = {}
    for tensor in program.tensors:
        held.setdefault(tensor.storage, []).append(escape(tensor.name))
    return {
        n: ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        for n, names in held.items()
    }
