"""Records and differences of records, as `dlc report` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dlc.base.diagnostics import escape
from dlc.cli.bench_text import duration, nodes
from dlc.cli.terminal import columns, size, terminal_width

if TYPE_CHECKING:
    from dlc.record.diff import Difference, Figure, LayerChange
    from dlc.record.record import Function, Kernel, Layer, Record

_LISTED: Final = 15
"""Layers that are listed: others are counted."""
_DIGITS: Final = 12
"""Of a digest that stands for a kernel."""


def record_text(record: Record, *, whole: bool = False) -> str:
    """What a build came to, and the layers of each function: all, or those that take longest."""
    lines = [f"{escape(record.model)} for {escape(record.target)}"]
    if record.passes:
        hits = sum(p.cached for p in record.passes)
        took, made = (sum(times) for times in zip(*((p.milliseconds, p.made_ms) for p in record.passes), strict=True))
        told = f"{hits} of {len(record.passes)} from the cache, which took {duration(made)} when they ran"
        lines.append(f"build: {len(record.passes)} steps in {duration(took)}; {told}" if hits else _fresh(record, took))
    for run in record.runs:
        own = run.programs[0]
        if own.median_ms is not None:
            lines.append(f"call on {run.threads} thread{'s' * (run.threads > 1)}: {_rate(own.median_ms)}")
    kernels = {k.digest: k for k in record.kernels}
    for function in record.functions:
        lines += ["", *_function(function, kernels, whole)]
    return "\n".join(lines)


def _fresh(record: Record, took: float) -> str:
    return f"build: {len(record.passes)} steps in {duration(took)}, none from the cache"


def _rate(ms: float) -> str:
    return f"{duration(ms)}, {1000 / ms:,.4g} inferences per second"


def _function(function: Function, kernels: dict[str, Kernel], whole: bool) -> list[str]:
    measured = any(layer.ms is not None for layer in function.layers)

    def cost(layer: Layer) -> float:
        kernel = kernels.get(layer.kernel)
        return (layer.ms or 0.0) if measured else float(kernel.cycles if kernel else 0)

    total = sum(map(cost, function.layers))
    rows = [
        (
            "layer",
            "time" if measured else "cycles",
            "share",
            "MACs",
            "operations",
            "bytes",
            "kernel",
            "function",
            "nodes",
        )
    ]
    shown = function.layers if whole else sorted(function.layers, key=lambda x: -cost(x))[:_LISTED]
    for layer in shown:
        kernel = kernels.get(layer.kernel)
        known = cost(layer)
        rows.append(
            (
                str(layer.number),
                (duration(known) if measured else f"{known:,.0f}") if known else "-",
                f"{100 * known / total:.1f} %" if known else "-",
                "-" if layer.macs is None else f"{layer.macs:,}",
                "-" if layer.operations is None else f"{layer.operations:,}",
                size(layer.constant_bytes + layer.moved_bytes),
                layer.kernel[:_DIGITS] or "-",
                escape(f"{kernel.file}:{kernel.line}") if kernel and kernel.file else "-",
                nodes(layer.nodes),
            )
        )
    title = f"function {escape(function.name)}: " if function.name else ""
    memory = f"; arena {function.memory.arena:,} B" if function.memory else ""
    weights = sum(w.bytes for w in function.weights)
    lines = [f"{title}{len(function.layers):,} layers, weights {weights:,} B{memory}"]
    lines.append(columns(rows, right=(0, 1, 2, 3, 4, 5), width=terminal_width()))
    if rest := len(function.layers) - len(shown):
        lines.append(f"and {rest:,} more (--all)")
    return lines


def difference_text(found: Difference, *, whole: bool = False) -> str:
    """The figures of both, and the layers that differ."""
    lines = [f"before: {escape(found.before)}", f"after:  {escape(found.after)}", ""]
    rows = [("figure", "before", "after", "change")]
    rows += [(f.name, _number(f.before), _number(f.after), change(f)) for f in found.figures]
    lines += [columns(rows, right=(1, 2, 3)), ""]
    states = [layer.state for layer in found.layers]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("same", "changed", "added", "gone") if s in states)
    lines.append(f"layers: {counts or 'none'}")
    layers = found.layers if whole else found.changed
    if layers:
        table = [("before", "after", "state", "ms", "cycles", "schedule", "nodes"), *map(_layer, layers)]
        lines.append(columns(table, right=(0, 1), width=terminal_width()))
    return "\n".join(lines)


def _layer(layer: LayerChange) -> tuple[str, ...]:
    known = {f.name: f for f in layer.figures}
    schedules = dict.fromkeys(escape(s) for s in (layer.schedule_before, layer.schedule_after) if s)
    return (
        "-" if layer.before is None else str(layer.before),
        "-" if layer.after is None else str(layer.after),
        layer.state,
        _pair(known.get("ms")),
        _pair(known.get("estimated cycles")),
        " → ".join(schedules) or "-",
        nodes(layer.nodes),
    )


def _pair(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    before, after = _number(figure.before), _number(figure.after)
    return before if before == after else f"{before} → {after}"


def change(figure: Figure) -> str:
    """+12.5 %, or "" where that means nothing."""
    part = figure.change
    return "" if part is None else "0 %" if part == 0 else f"{100 * part:+.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
