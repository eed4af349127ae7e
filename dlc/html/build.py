"""The HTML report of a record: graph, layers, roofline, memory over time, weights, kernels, passes, measurements.

One file without network access. Everything that comes from the model passes through the template's escaping; drawings
are computed here and beside as numbers. A script folds the graph; without it, the page says the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dlc.api.function_names import LEARNING
from dlc.base.diagnostics import escape
from dlc.html.charts import Bars, Roofline, bars, roofline
from dlc.html.graph import BOX, Picture, folding, picture
from dlc.html.memory import Memory, arena, render
from dlc.record.build import named_boxes
from dlc.record.record import Function, Kernel, Layer, Ops, Record, Run

_LABELS: Final = {
    "arena": "arena in bytes",
    "bound": "lower bound in bytes",
    "bound_step": "layer with the lower bound",
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
_SHORT: Final = 12
"""Digits of a kernel's digest that stand for it."""


@dataclass(frozen=True)
class KernelRow:
    """A kernel with the layers that call it."""

    kernel: Kernel
    layers: tuple[int, ...]
    times: Mapping[str, str]
    """Kind of sub-step → milliseconds, and whether the cache had it."""


@dataclass(frozen=True)
class LayerRow:
    """A layer with what belongs to it."""

    layer: Layer
    nodes: tuple[tuple[str, int | None], ...]
    """(name, number of its box in the graph of the model)."""
    kernel: Kernel | None
    share: float | None
    """Of the time of all layers, 0 to 1."""


@dataclass(frozen=True)
class FunctionPart:
    """A function of the program on the page."""

    function: Function
    prefix: str
    """What its anchors begin with."""
    rows: tuple[LayerRow, ...]
    charts: tuple[Bars, ...]
    graph: Picture
    memory: Memory | None
    weights: Bars | None


def report_html(record: Record, pages: Sequence[str] = ()) -> str:
    """The page; `pages` are names of further ones beside it, which it refers to."""
    ordered = sorted(record.functions, key=lambda f: f.name not in LEARNING)
    prefixes = {f.name: f"f{k}-" if k else "" for k, f in enumerate(ordered)}
    whole = picture("The model as it was read", record.graph) if record.graph else None
    parts = [_part(record, f, prefixes[f.name], whole) for f in ordered]
    first = parts[0] if parts else None
    return render(
        "report.html.j2",
        record=record,
        model=escape(record.model),
        parts=parts,
        inputs=[f"{escape(p.name)}: {p.type}" for p in record.inputs],
        outputs=[f"{escape(p.name)}: {p.type}" for p in record.outputs],
        facts={_LABELS.get(k, k.replace("_", " ")): v for k, v in record.facts.items()},
        pages=pages,
        box=BOX,
        whole=whole,
        folding=folding(record.graph, "") if first else None,
        kernels=_kernel_rows(record, ordered[0] if ordered else None),
        job_kinds=tuple(dict.fromkeys(job.step for k in record.kernels for job in k.jobs)),
        passes=[_pass(p) for p in record.passes],
        hits=sum(p.cached for p in record.passes),
        ops=[_ops(row) for row in record.ops],
        runs=[_run(r) for r in record.runs],
        short=_SHORT,
    )


def _part(record: Record, function: Function, prefix: str, whole: Picture | None) -> FunctionPart:
    kernels = {k.digest: k for k in record.kernels}
    drawn = {box.number for box in whole.boxes} if whole else set[int]()
    boxes = {name: k for name, k in named_boxes(record.graph).items() if k in drawn}
    total = sum(layer.ms or 0.0 for layer in function.layers)
    rows = tuple(
        LayerRow(
            layer,
            tuple((escape(name), boxes.get(name)) for name in layer.nodes),
            kernels.get(layer.kernel),
            layer.ms / total if layer.ms is not None and total else None,
        )
        for layer in function.layers
    )
    weights: dict[int, int] = {}
    for w in function.weights:
        for number in w.layers[:1]:
            weights[number] = weights.get(number, 0) + w.bytes
    layers, title = function.layers, "The program as it runs, a box per layer"
    return FunctionPart(
        function,
        prefix,
        rows,
        _layer_charts(layers, kernels, prefix),
        picture(title, function.graph, f"{prefix}box-", prefix),
        arena(function.memory, len(function.layers)) if function.memory else None,
        bars("Weights by layer", "KiB", layers, lambda x: weights.get(x.number, 0) / 1024, _digits, prefix),
    )


def _layer_charts(layers: Sequence[Layer], kernels: Mapping[str, Kernel], prefix: str) -> tuple[Bars, ...]:
    """Time by layer: as measured, or else as estimated; and operations where neither is known."""

    def estimate(layer: Layer) -> float:
        return kernels[layer.kernel].cycles / 1e6 if layer.kernel in kernels else 0.0

    tried = (
        bars("Time by layer, measured", "ms", layers, lambda x: x.ms, _digits, prefix),
        bars("Time by layer, estimated", "million cycles", layers, estimate, _digits, prefix),
        bars("Operations by layer", "million", layers, lambda x: (x.operations or 0) / 1e6, _digits, prefix),
    )
    found = [chart for chart in tried if chart is not None]
    return tuple(found[:2])


def _digits(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _kernel_rows(record: Record, function: Function | None) -> list[KernelRow]:
    layers: dict[str, list[int]] = {}
    for layer in function.layers if function else ():
        layers.setdefault(layer.kernel, []).append(layer.number)
    return [
        KernelRow(
            k,
            tuple(layers.get(k.digest, ())),
            {job.step: f"{job.made_ms:,.1f}{' (hit)' if job.cached else ''}" for job in k.jobs},
        )
        for k in record.kernels
    ]


def _ops(row: Ops) -> dict[str, Any]:
    most = list(row.kinds.items())
    more = [f"{len(most) - _KINDS} more kinds"] if len(most) > _KINDS else []
    more += [f"{row.kernels:,} different kernels"] if row.kernels else []
    kinds = ", ".join([*(f"{name} {n:,}" for name, n in most[:_KINDS]), *more])
    title = f"{row.function}: {row.step}" if row.function else row.step
    return {"title": escape(title), "row": row, "kinds": kinds}


def _pass(step: Any) -> dict[str, Any]:
    counts = ", ".join(f"{what} {n:,}" for what, n in step.counts.items())
    missed = f"{len(step.missed)} {escape(step.missed_as)}" if step.missed else ""
    return {
        "title": escape(f"{step.function}: {step.title}" if step.function else step.title),
        "spec": escape(step.step),
        "ms": f"{step.milliseconds:,.1f}",
        "made": f"{step.made_ms:,.1f}",
        "cached": step.cached,
        "counts": ", ".join(filter(None, [counts, missed])),
        "notes": [escape(note) for note in step.notes],
    }


def _run(run: Run) -> dict[str, Any]:
    picture: Roofline | None = roofline(run.steps, run.limits) if run.limits else None
    rows = [(p, escape(p.reason), max((float(d.max_abs) for d in p.outputs), default=None)) for p in run.programs]
    steps = [(s, escape(", ".join(s.nodes))) for s in run.steps]
    return {"run": run, "rows": rows, "steps": steps, "roofline": picture, "no_steps": escape(run.no_steps)}
