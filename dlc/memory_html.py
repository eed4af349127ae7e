"""The memory of plans, drawn: time by address, with the bytes alive at every step, and the bound of all plans.

It knows steps, values and places, whatever the steps are: calls of kernels, or instructions of a target. Everything
that comes from the model passes through the templates' escaping; drawings are computed here as numbers only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from dlc.diagnostics import escape
from dlc.graph.op import Op
from dlc.plan import Plan, results_of

WIDTH, HEIGHT = 1000, 420
"""Of the drawing, in its own units; the page scales it."""


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


@dataclass(frozen=True)
class Memory:
    """The arena over time, drawn."""

    rectangles: tuple[Rectangle, ...]
    curve: str
    """Points of the line of bytes alive at every step."""
    arena: int
    bound: int
    bound_y: float
    peak_x: float
    """The step at which most bytes are alive."""
    peak: tuple[tuple[str, int], ...]
    """Values alive there, the largest first: (origin, bytes)."""


def memory(plan: Plan) -> Memory:
    """Time by address: a rectangle per placed value, the bytes alive per step, the bound; steps may be instructions."""
    count = max(len(plan.steps), 1)
    last = plan.last_uses
    # An input that is kept is copied to its place before the first step.
    values = {i.digest: (0, i.type) for i in plan.kept}
    values |= {digest: (born, type) for digest, (born, type) in plan.values.items() if digest in plan.slots}
    arena = max(plan.regions.get("arena", 0), 1)
    owners = _owners(plan)
    rectangles: list[Rectangle] = []
    alive: list[set[str]] = [set() for _ in range(count)]
    for number, (digest, (born, type)) in enumerate(values.items()):
        slot, end = plan.slots[digest], max(last.get(digest, born), born)
        for step in range(born, end + 1):
            alive[step].add(digest)
        title = f"{owners[digest]}  {type}  {slot.size:,} B at {slot.offset:,}, steps {born} to {end}"
        rectangles.append(
            Rectangle(
                born * WIDTH / count,
                HEIGHT - (slot.offset + slot.size) * HEIGHT / arena,
                (end + 1 - born) * WIDTH / count,
                slot.size * HEIGHT / arena,
                number * 47 % 360,
                title,
            )
        )
    live = [_covered([(plan.slots[d].offset, plan.slots[d].size) for d in held]) for held in alive]
    points = [
        f"{x * WIDTH / count:.1f},{HEIGHT - n * HEIGHT / arena:.1f}" for k, n in enumerate(live) for x in (k, k + 1)
    ]
    bound = int(plan.facts.get("bound", 0))
    peak = max(range(count), key=lambda k: live[k])
    held = sorted(((owners[d], plan.slots[d].size) for d in alive[peak]), key=lambda item: -item[1])
    return Memory(
        tuple(rectangles),
        " ".join(points),
        plan.regions.get("arena", 0),
        bound,
        HEIGHT - bound * HEIGHT / arena,
        (peak + 0.5) * WIDTH / count,
        tuple(held[:12]),
    )


def plan_html(model: str, target: str, plans: Mapping[str, Plan]) -> str:
    """A page with a picture for every function of a program; an ordinary one has a single function, named ""."""
    drawn = [(name, figures(plan), memory(plan) if plan.slots else None) for name, plan in plans.items()]
    return render("plan.html.j2", model=escape(model), target=target, functions=drawn)


def figures(plan: Plan) -> dict[str, int | str]:
    """What the planner came to; sizes in bytes.

    `unshared_bytes` is what the values would take without sharing, `method` how the places were found, `bound_step`
    where the bytes of the lower bound are alive.
    """
    facts = plan.facts
    return {
        "steps": len(plan.steps),
        "peak_bytes": plan.regions.get("arena", 0),
        "bound_bytes": facts.get("bound", 0),
        "bound_step": facts.get("bound_step", 0),
        "gap_percent": facts.get("gap_percent", "0.00"),
        "unshared_bytes": facts.get("unshared", 0),
        "method": facts.get("method", ""),
    }


def render(template: str, **values: object) -> str:
    """A page from one of dlc's templates; values are escaped for HTML there."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def text(name: str) -> str:
        return (files("dlc") / "templates" / name).read_text(encoding="utf-8")

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(text)
    )
    environment.filters["grouped"] = lambda n: f"{n:,}"
    return environment.get_template(template).render(width=WIDTH, height=HEIGHT, **values)


def origin_of(plan: Plan, step: Op) -> str:
    """The nodes of the model that a step comes from, for people."""
    return ", ".join(escape(name) for name in plan.graph.origin(step))


def _owners(plan: Plan) -> Mapping[str, str]:
    """Digest of a value → what it came from, for people."""
    found = {
        v.digest: origin_of(plan, step) or f"step {number}"
        for number, step in enumerate(plan.steps)
        for v in results_of(step)
    }
    return {**{i.digest: f"input {escape(i.name)}" for i in plan.kept}, **found}


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Bytes that (offset, size) spans cover together: views and results in place share theirs."""
    total = end = 0
    for offset, size in sorted(spans):
        total += max(0, offset + size - max(end, offset))
        end = max(end, offset + size)
    return total
