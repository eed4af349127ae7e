"""One HTML page about a build: steps, graph, memory over time, kernels. No scripts, no network, one file.

Everything that comes from the model passes through the template's escaping; drawings are computed here as numbers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dlc.api.plan import Plan
from dlc.base.diagnostics import escape
from dlc.graph.graph import Graph
from dlc.graph.structure import Call, Constant, Input, Item
from dlc.html.graph import BOX, operation, pictures
from dlc.html.memory import memory, origin_of, render
from dlc.kernel.work import work

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline

_LABELS: Final = {
    "arena": "arena in bytes",
    "bound": "lower bound in bytes",
    "bound_step": "operation with the lower bound",
    "overhead_percent": "overhead over the lower bound in %",
    "method": "allocation method",
    "order_peak": "peak of the order in bytes",
    "order_optimal": "optimal order (1: proved)",
    "workspace_bytes": "largest kernel workspace in bytes",
    "unshared": "without sharing in bytes",
}
"""Figures of a program → headings; others have the words of their name."""
_KINDS = 8
"""Kinds of ops that are counted apart."""


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
    model: str,
    pipeline: ResolvedPipeline,
    steps: Sequence[StepRecord[Any]],
    plan: Plan | None,
    artifact: Artifact,
    pages: Sequence[str] = (),
) -> str:
    """The page; of a training program, memory and kernels are those of the function whose plan is given.

    `pages` are names of further ones beside it, which it refers to.
    """
    rows = kernels(plan) if plan else ()
    return render(
        "report.html.j2",
        model=escape(model),
        pipeline=str(pipeline),
        target=artifact.target,
        steps=[_step(step) for step in steps],
        hits=sum(step.cached for step in steps),
        graphs=[row for step in steps for row in graph_rows(step)],
        inputs=[f"{escape(p.name)}: {p.type}" for p in artifact.signature.inputs],
        outputs=[f"{escape(p.name)}: {p.type}" for p in artifact.signature.outputs],
        facts={_LABELS.get(k, k.replace("_", " ")): v for k, v in artifact.facts.items()},
        graph_pictures=pictures(_first_graph(steps), plan),
        box=BOX,
        memory=memory(plan) if plan and plan.slots else None,
        pages=pages,
        kernels=rows,
        macs=sum(row.macs for row in rows),
        flops=sum(row.flops for row in rows),
    )


def _first_graph(steps: Sequence[StepRecord[Any]]) -> Graph | None:
    """What the frontend gave."""
    return next((step.handle.value for step in steps if step.handle.kind == "graph"), None)


def graph_rows(step: StepRecord[Any]) -> tuple[GraphRow, ...]:
    """What the graph or plan after a pass consists of; nothing for artifacts."""
    if step.handle.kind not in ("graph", "plan"):
        return ()
    state = step.handle.value
    graph: Graph = state.graph if isinstance(state, Plan) else state
    counts = Counter(op.text_name for op in graph.ops if not isinstance(op, Constant | Input | Item))
    sizes = [op.type.packed_bytes for op in graph.ops if isinstance(op, Constant)]
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
    steps = [(each, call) for each in plan.plans for call in each.steps]  # those of bodies follow, once each
    for number, (each, call) in enumerate(steps):
        if not isinstance(call, Call):
            continue  # an instruction of a target, whose backend tells the work; or a branch or a loop
        macs, flops = work(call.body)
        arguments = ", ".join(str(a.type) for a in call.args)
        results = ", ".join(str(r.type) for r in call.body.results)
        rows.append(
            KernelRow(number, f"({arguments}) → {results}", operation(call.body), macs, flops, origin_of(each, call))
        )
    return tuple(rows)


def _step(step: StepRecord[Any]) -> Mapping[str, Any]:
    counts = ", ".join(f"{what} {n:,}" for what, n in step.counts.items())
    return {
        "spec": escape(f"{step.function}: {step.spec}" if step.function else step.spec),
        "ms": f"{step.milliseconds:.1f}",
        "cached": step.cached,
        "counts": counts,
        "notes": [escape(note) for note in step.report.notes],
        "missed": len(step.report.misses),
        "missed_as": escape(step.report.missed_as),
    }
