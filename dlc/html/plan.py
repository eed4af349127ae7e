"""What `dlc plan` draws: a page or an SVG file with the memory of every function, strategies side by side.

The drawing is that of `dlc.html.memory`. A page has the style sheet of all pages, for light and dark screens; an SVG
file stands alone, with the light half of the same rules and colours written out, which editors and converters read.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from dlc.api.plan import Plan
from dlc.base.diagnostics import escape
from dlc.base.pages import STYLESHEET
from dlc.html.memory import LETTER, WIDTH, Memory, memory, render, stripes

_HEAD = 64
"""Height of what stands above a drawing in an SVG file."""


@dataclass(frozen=True)
class View:
    """A plan of a memory: a row of the table, and a drawing."""

    function: str
    """"" where there is only one."""
    strategy: str
    """How its offsets were chosen; "" where only one way is shown."""
    steps: int
    """Operations, or buffers of a file of these."""
    arena: int
    """Bytes."""
    bound: int
    """Bytes that no offsets can do without."""
    proven: bool
    """Whether no smaller arena exists for these lifetimes."""
    unshared: int
    """Bytes that everything would take without sharing."""
    method: str
    """How the offsets were found."""
    seconds: float
    """That finding them took."""
    memory: Memory | None
    """None: nothing needs memory."""

    @property
    def title(self) -> str:
        """What it shows."""
        return ", ".join(filter(None, (self.function, self.strategy))) or "main"

    @property
    def overhead(self) -> str:
        """Beyond the lower bound, and whether that is known to be necessary."""
        percent = 100 * (self.arena - self.bound) / self.bound if self.bound else 0.0
        return f"{percent:.2f} %" + (" (optimal)" if self.proven and self.arena > self.bound else "")


def view_of(plan: Plan, function: str, strategy: str, seconds: float) -> View:
    """A plan with offsets, drawn."""
    found = figures(plan)
    return View(
        escape(function),
        strategy,
        len(plan.steps),
        arena := int(found["peak_bytes"]),
        bound := int(found["bound_bytes"]),
        max(bound, int(plan.facts.get("floor", 0))) == arena,
        int(found["unshared_bytes"]),
        str(found["method"]),
        seconds,
        memory(plan) if plan.slots or plan.workspaces else None,
    )


def figures(plan: Plan) -> dict[str, int | str]:
    """What the planner came to; sizes in bytes.

    `peak_bytes` has room for the values and for what kernels work in: `workspace_bytes` of it for the neediest kernel.
    `unshared_bytes` is what all that would take without sharing, `method` how the places were found, `bound_step` where
    the bytes of the lower bound are live. `held_values` are computed where a concatenation has them.
    """
    facts = plan.facts
    return {
        "steps": len(plan.steps),
        "peak_bytes": plan.memory,
        "bound_bytes": facts.get("bound", 0),
        "bound_step": facts.get("bound_step", 0),
        "overhead_percent": facts.get("overhead_percent", "0.00"),
        "workspace_bytes": plan.workspace,
        "held_values": sum(map(len, plan.held.values())),
        "unshared_bytes": facts.get("unshared", 0),
        "method": facts.get("method", ""),
    }


def plan_html(model: str, target: str, views: Sequence[View]) -> str:
    """A page with the pictures, those of a function side by side; `target` may be ""."""
    groups: dict[str, list[View]] = {}
    for view in views:
        groups.setdefault(view.function, []).append(view)
    return render("plan.html.j2", model=escape(model), target=escape(target), views=views, groups=groups)


def plan_svg(title: str, views: Sequence[View]) -> str:
    """A drawing for every view that has one, each below the one before; names are escaped."""
    placed: list[tuple[str, Memory, int, list[tuple[float, str, int, str]]]] = []
    y = 0
    for view in views:
        if view.memory:
            placed.append((view.title, view.memory, y, _key(view.memory)))
            y += _HEAD + view.memory.height
    given = {"title": escape(title), "views": placed, "total": max(y, _HEAD), "head": _HEAD, "style": _style()}
    return render("plan.svg.j2", alone=True, fill=cache(_fill), **given)


def _key(drawing: Memory) -> list[tuple[float, str, int, str]]:
    """(x, role, hue, path of stripes) of what tells the colours, as far as there is room."""
    found: list[tuple[float, str, int, str]] = []
    x = 8.0
    for role, hue, hatched in drawing.key:
        if x + len(role) * LETTER < WIDTH:
            found.append((x, role, hue, stripes(14, 14) if hatched else ""))
        x += 40 + len(role) * LETTER
    return found


def _style() -> str:
    """The rules for drawings of the style sheet of pages, in its light colours and without its variables."""
    text = STYLESHEET.read_text(encoding="utf-8")
    known = _colours(text)
    rules = "\n".join(re.findall(r"svg [^{}]+\{[^{}]*\}", re.sub(r"\w+: hsl\([^;]*;", "", text)))
    plain = re.sub(r"var\(--(\w+)\)", lambda found: known[found[1]], rules)
    return f"{plain}\n.page {{ fill: {known['page']}; }}"


def _colours(text: str) -> Mapping[str, str]:
    """What the variables of a style sheet are where a screen asks for nothing else."""
    return dict(re.findall(r"--(\w+): ([^;]+);", text[: text.index("@media")]))


def _fill(hue: int) -> str:
    """The colour that pages give to a hue, without their variables."""
    known = _colours(STYLESHEET.read_text(encoding="utf-8"))
    saturation, lightness = (float(known[name].rstrip("%")) / 100 for name in ("sat", "fill"))
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue / 360, lightness, saturation))
    return f"fill: #{red:02x}{green:02x}{blue:02x}"
