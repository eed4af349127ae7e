"""One HTML page about a build: its steps, its memory over time, its kernels. No scripts, no network, one file.

Everything that comes from the model passes through the template's escaping; drawings are computed here as numbers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dlc.diagnostics import escape
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input, Item
from dlc.kernel.expr import Apply, Expr
from dlc.kernel.nest import Kernel
from dlc.plan import Plan, results_of

if TYPE_CHECKING:
    from dlc.interfaces import Artifact
    from dlc.recipe import Recipe
    from dlc.session import StepResult

WIDTH, HEIGHT = 1000, 420
"""Of the drawing, in its own units; the page scales it."""
_KINDS = 8
"""Kinds of ops that are counted apart."""


@dataclass(frozen=True)
class Rectangle:
    """One value: alive from a step to a step, at an address."""

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


@dataclass(frozen=True)
class GraphRow:
    """The graph behind one step, counted."""

    step: str
    ops: int
    """Everything but inputs and constants."""
    constants: int
    bytes: int
    """Of the constants."""
    kinds: str
    """The most frequent ops, with how often they occur."""


@dataclass(frozen=True)
class KernelRow:
    """One step of the program."""

    number: int
    shapes: str
    operation: str
    macs: int
    flops: int
    origins: str


def report_html(
    model: str, recipe: Recipe, steps: Sequence[StepResult[Any]], plan: Plan | None, artifact: Artifact
) -> str:
    """The page; of a training program, memory and kernels are those of the function whose plan is given."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["grouped"] = lambda n: f"{n:,}"
    template = environment.from_string((files("dlc") / "templates" / "report.html.j2").read_text(encoding="utf-8"))
    rows = kernels(plan) if plan else ()
    return template.render(
        model=escape(model),
        pipeline=str(recipe),
        target=artifact.target,
        steps=[_step(step) for step in steps],
        hits=sum(step.cached for step in steps),
        graphs=[row for step in steps for row in graph_rows(step)],
        inputs=[f"{escape(p.name)}: {p.type}" for p in artifact.signature.inputs],
        outputs=[f"{escape(p.name)}: {p.type}" for p in artifact.signature.outputs],
        facts={str(k): v for k, v in artifact.facts.items()},
        memory=memory(plan) if plan and plan.slots else None,
        width=WIDTH,
        height=HEIGHT,
        kernels=rows,
        macs=sum(row.macs for row in rows),
        flops=sum(row.flops for row in rows),
    )


def memory(plan: Plan) -> Memory:
    """Time by address: a rectangle per placed value, the bytes alive per step, the bound."""
    count = max(len(plan.steps), 1)
    last = plan.last_uses
    values = {digest: (born, type) for digest, (born, type) in plan.values.items() if digest in plan.slots}
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


def graph_rows(step: StepResult[Any]) -> tuple[GraphRow, ...]:
    """What the graph or plan behind a step consists of; nothing for artifacts."""
    if step.handle.kind not in ("graph", "plan"):
        return ()
    state = step.handle.value
    graph: Graph = state.graph if isinstance(state, Plan) else state
    counts = Counter(op.text_name for op in graph.ops if not isinstance(op, Constant | Input | Item))
    sizes = [op.type.nbytes for op in graph.ops if isinstance(op, Constant)]
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = [f"{len(most) - _KINDS} more kinds"] if len(most) > _KINDS else []
    kernels = {op.body.digest for op in graph.ops if isinstance(op, Call)}
    more += [f"{len(kernels):,} different kernels"] if kernels else []
    kinds = ", ".join([*(f"{name} {n:,}" for name, n in most[:_KINDS]), *more])
    title = escape(step.spec.partition("{")[0])
    title = f"{step.function}: {title}" if step.function else title
    return (GraphRow(title, sum(counts.values()), len(sizes), sum(sizes), kinds),)


def kernels(plan: Plan) -> tuple[KernelRow, ...]:
    """Every step in order, with its work."""
    rows: list[KernelRow] = []
    for number, call in enumerate(plan.steps):
        if not isinstance(call, Call):
            continue  # an instruction of a target: its backend tells the work
        macs, flops = work(call.body)
        arguments = ", ".join(str(a.type) for a in call.args)
        results = ", ".join(str(r.type) for r in call.body.results)
        rows.append(
            KernelRow(number, f"({arguments}) → {results}", _operation(call.body), macs, flops, _origin(plan, call))
        )
    return tuple(rows)


def work(kernel: Kernel) -> tuple[int, int]:
    """(multiply-accumulates, operations) of one call.

    An operation is one scalar function at one point; additions of a reduction count, index arithmetic does not.
    """
    macs = flops = 0
    for nest in kernel.nests:
        flops += nest.points * (len(_applied(nest.body)) + (nest.reduce is not None))
        if nest.reduce == "add" and isinstance(nest.body, Apply) and nest.body.fn == "mul":
            macs += nest.points
    return macs, flops


def _applied(body: Expr) -> set[Apply]:
    """The functions applied in a body, equal ones once; what stands inside subscripts is left out."""
    found: set[Apply] = set()
    pending = [body]
    while pending:
        e = pending.pop()
        if isinstance(e, Apply) and e not in found:
            found.add(e)
            pending += e.args
    return found


def _operation(kernel: Kernel) -> str:
    """What a kernel does, in a few words: its reductions and functions."""
    words: dict[str, None] = {}
    for nest in kernel.nests:
        if nest.reduce:
            words[f"{nest.reduce}-reduce"] = None
        words.update(dict.fromkeys(sorted(e.fn for e in _applied(nest.body))))
    return ", ".join(words) or "copy"


def _step(step: StepResult[Any]) -> Mapping[str, Any]:
    counts = ", ".join(f"{what} {n:,}" for what, n in step.counts.items())
    return {
        "spec": escape(f"{step.function}: {step.spec}" if step.function else step.spec),
        "ms": f"{step.milliseconds:.1f}",
        "cached": step.cached,
        "counts": counts,
        "notes": [escape(note) for note in step.notes],
        "missed": len(step.misses),
    }


def _origin(plan: Plan, call: Op) -> str:
    return ", ".join(escape(name) for name in plan.graph.origin(call))


def _owners(plan: Plan) -> Mapping[str, str]:
    """Digest of a value → what it came from, for people."""
    return {
        v.digest: _origin(plan, call) or f"step {number}"
        for number, call in enumerate(plan.steps)
        for v in results_of(call)
    }


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Bytes that (offset, size) spans cover together: views and results in place share theirs."""
    total = end = 0
    for offset, size in sorted(spans):
        total += max(0, offset + size - max(end, offset))
        end = max(end, offset + size)
    return total
