"""Memory over time, drawn: addresses by operation, the live bytes, and the lower bound of all plans.

It knows steps, values and places, whatever the steps are: calls of kernels, or instructions of a target. Plugins draw
the memory of their own programs with it, `storages_html(title, drawn(…))`. Everything that comes from the model
passes through the templates' escaping; drawings are computed here as numbers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Final

from dlc.api.plan import Plan
from dlc.base.diagnostics import escape
from dlc.base.pages import environment
from dlc.record.build import memory_of
from dlc.record.memory_roles import AGAIN, COPY, FORWARD, GRADIENT, MASK, MOVED, WORKSPACE
from dlc.record.record import VALUE
from dlc.record.record import Memory as Arena

WIDTH, HEIGHT = 1000, 420
"""Of the drawing, in its own units; the page scales it."""
LETTER, _LINE, _LEAST_LETTERS = 9.5, 18.0, 5
"""Width of a character of a label, height of its line, and the fewest characters that tell something."""
_LISTED = 12
"""Values at most that are listed as live at the peak."""
_HUES: Final = {
    VALUE: 210,
    FORWARD: 210,
    AGAIN: 210,
    GRADIENT: 25,
    MASK: 285,
    MOVED: 60,
    WORKSPACE: 120,
    COPY: 340,
}
"""Role of a value of a program → hue in degrees."""
STRIPES: Final = 9
"""Distance of the stripes of what is hatched."""


@dataclass(frozen=True)
class Held:
    """Bytes of a memory that hold something for a while; names may be anything, they are escaped."""

    name: str
    kind: str
    """What it is: its type, or the class of memory that it lies in."""
    begin: int
    """First step that uses it."""
    end: int
    """The one behind the last."""
    offset: int
    size: int
    """In bytes."""
    role: str = ""
    """What it is for, which its hue tells; by default, that is its kind."""
    hatched: bool = False
    """Whether its rectangle is hatched, as that of what is computed again."""


@dataclass(frozen=True)
class Rectangle:
    """One value or storage: its lifetime to the right, its addresses upwards."""

    x: float
    y: float
    width: float
    height: float
    hue: int
    title: str
    """Shown on hover."""
    label: str
    """As much of its name as it has room for; "" where that says nothing."""
    peak: bool = False
    """Whether it is live where most bytes are."""
    stripes: str = ""
    """Path of the lines that hatch it."""


@dataclass(frozen=True)
class Level:
    """A number along an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Memory:
    """A memory over time, drawn."""

    rectangles: tuple[Rectangle, ...]
    curve: str
    """Points of the line of live bytes."""
    arena: int
    """Bytes of the memory."""
    bound: int
    """Bytes that every plan needs."""
    bound_y: float
    peak_x: float
    """A step at which most bytes are live."""
    peak: tuple[tuple[str, int, str], ...]
    """What is live there, the largest first: (name, bytes, kind)."""
    unit: str
    """What steps are called, one of them."""
    begin: int
    """First step that is drawn."""
    end: int
    """The one behind the last."""
    base: int
    """Lowest address."""
    marks: tuple[tuple[float, str], ...]
    """(x, name) where a part of the program begins."""
    key: tuple[tuple[str, int, bool], ...]
    """(role, hue, whether it is hatched), where hues tell roles."""
    levels: tuple[Level, ...]
    """Addresses along the axis."""
    times: tuple[Level, ...]
    """Steps along the axis."""

    @property
    def top(self) -> int:
        """Where the drawing begins, above the addresses: with names of parts, or with the name of the axis."""
        return -50 if self.marks else -34

    @property
    def height(self) -> int:
        """Of the drawing with its axes."""
        return HEIGHT + 56 - self.top

    @property
    def overhead(self) -> str:
        """What the memory has beyond the lower bound, in per cent of it."""
        return f"{100 * (self.arena - self.bound) / self.bound:.2f} %" if self.bound else "0.00 %"


def drawn(
    held: Sequence[Held],
    *,
    span: tuple[int, int] | None = None,
    memory: tuple[int, int] | None = None,
    bound: int | None = None,
    unit: str = "step",
    marks: Sequence[tuple[int, str]] = (),
    key: Mapping[str, int] | None = None,
) -> Memory:
    """Memory over time: a rectangle for each value that is live, the line of live bytes, the bound.

    Args:
        held: What lies in the memory. Of bytes that several share at a step, such as views, each counts once.
        span: First step and the one behind the last; by default, those of what is held.
        memory: Lowest address and bytes; by default, from the lowest that is held to behind the highest.
        bound: Bytes that every plan needs; by default, the most that are live at a step.
        unit: What a step is called.
        marks: Steps at which a part of the program begins, with its name.
        key: Role → hue in degrees; by default, neighbours have different hues.
    """
    held = [h for h in held if h.end > h.begin]
    begin, end = span or (min((h.begin for h in held), default=0), max((h.end for h in held), default=1))
    base = min((h.offset for h in held), default=0) if memory is None else memory[0]
    arena = max((h.offset + h.size for h in held), default=base) - base if memory is None else memory[1]
    levels = list(_levels(held, begin, end))
    at, most = max(levels, key=lambda level: level[2])[::2]
    bound = most if bound is None else bound
    across, up = WIDTH / max(end - begin, 1), HEIGHT / max(arena, bound, 1)
    live = sorted((h for h in held if h.begin <= at < h.end), key=lambda h: -h.size)
    points = [(x, n) for first, behind, n in levels for x in (first, behind)]
    hatched = {h.role or h.kind for h in held if h.hatched}
    return Memory(
        tuple(
            Rectangle(
                (h.begin - begin) * across,
                HEIGHT - (h.offset - base + h.size) * up,
                (h.end - h.begin) * across,
                h.size * up,
                number * 47 % 360 if key is None else key[h.role or h.kind],
                f"{escape(h.name)}: {escape(h.kind)}, {h.size:,} B at {h.offset:,}, {unit}s {h.begin} to {h.end - 1}",
                _label(escape(h.name), (h.end - h.begin) * across, h.size * up),
                h.begin <= at < h.end,
                stripes((h.end - h.begin) * across, h.size * up) if h.hatched else "",
            )
            for number, h in enumerate(held)
        ),
        " ".join(f"{(x - begin) * across:.1f},{HEIGHT - n * up:.1f}" for x, n in points),
        arena,
        bound,
        HEIGHT - bound * up,
        (at + 0.5 - begin) * across,
        tuple((escape(h.name), h.size, escape(h.kind)) for h in live[:_LISTED]),
        unit,
        begin,
        end,
        base,
        tuple(((step - begin) * across, escape(name)) for step, name in marks if begin <= step < end),
        tuple((role, hue, role in hatched) for role, hue in (key or {}).items()),
        _addresses(base, arena, HEIGHT / max(arena, bound, 1)),
        _times(begin, end, across),
    )


def stripes(width: float, height: float) -> str:
    """The path of oblique lines across a rectangle, from its lower left corner on."""
    places = (k * STRIPES for k in range(1, int((width + height) / STRIPES) + 1))
    ends = ((min(c, width), min(c, height), c) for c in places)
    return "".join(f"M{c - y:.1f} {height - y:.1f}L{x:.1f} {height - c + x:.1f}" for x, y, c in ends)


def _label(name: str, width: float, height: float) -> str:
    """As much of a name as fits into a rectangle; "" where that is too little to tell anything."""
    room = int((width - 6) / LETTER)
    if height < _LINE or room < _LEAST_LETTERS:
        return ""
    return name if len(name) <= room else name[: room - 1] + "…"


def _addresses(base: int, size: int, up: float) -> tuple[Level, ...]:
    step = 1
    while size > 6 * step:
        step *= 2
    return tuple(Level(HEIGHT - n * up, in_bytes(base + n)) for n in range(0, size + 1, step)) if size else ()


def _times(begin: int, end: int, across: float) -> tuple[Level, ...]:
    step = 1
    while end - begin > 16 * step:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return tuple(Level((k + 0.5 - begin) * across, str(k)) for k in range(begin, end, step))


def in_bytes(n: float) -> str:
    """With as few digits as mean something: 12 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} GiB"


def _levels(held: Sequence[Held], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(first step, the one behind the last, live bytes) of the parts of a span in which the same is live."""
    changes = sorted({begin, *(h.begin for h in held), *(h.end for h in held), end})
    pending = sorted(held, key=lambda h: -h.begin)
    live: list[Held] = []
    for first, behind in pairwise(changes):
        while pending and pending[-1].begin <= first:
            live.append(pending.pop())
        live = [h for h in live if h.end > first]
        yield first, behind, _covered([(h.offset, h.size) for h in live])


def storages_html(title: str, picture: Memory) -> str:
    """A page with the picture of a memory: no scripts, no network, one file."""
    return render("storages.html.j2", title=escape(title), memory=picture)


def memory(plan: Plan) -> Memory:
    """The arena of a plan over time: a rectangle per placed value or workspace; steps may be instructions."""
    return arena(memory_of(plan), len(plan.steps))


def arena(found: Arena, steps: int) -> Memory:
    """The same of a record's function with so many layers."""
    held = [Held(v.name, v.kind, v.begin, v.end, v.offset, v.size, v.role, v.role == AGAIN) for v in found.values]
    key = {role: hue for role, hue in _HUES.items() if any(h.role == role for h in held)}
    span, whole = (0, max(steps, 1)), (0, found.arena)
    return drawn(held, span=span, memory=whole, bound=found.bound, unit="layer", key=key)


def render(template: str, **values: object) -> str:
    """A page from one of dlc's templates; values are escaped for HTML there."""
    return render_text(f'{{% include "{template}" %}}', **values)


def render_text(text: str, **values: object) -> str:
    """A page from the text of a template, which may include dlc's own, such as style.css; values are escaped there."""
    made = environment(files("dlc") / "html" / "templates")
    made.filters["bytes"] = in_bytes
    made.filters["shown"] = escape
    known = {"width": WIDTH, "height": HEIGHT, "alone": False, "fill": "--hue: {}".format}
    return made.from_string(text).render({**known, **values})


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Bytes that (offset, size) spans cover together: views and results in place share theirs."""
    total = end = 0
    for offset, size in sorted(spans):
        total += max(0, offset + size - max(end, offset))
        end = max(end, offset + size)
    return total
