"""The HTML page of the difference of two records. One file, no scripts, no network."""

from __future__ import annotations

from typing import Final

from dlc.base.diagnostics import escape
from dlc.html.memory import render
from dlc.record.diff import Difference, Figure, LayerChange

_WORSE: Final = 0.01
"""What part a figure may grow by before that is marked."""


def difference_html(found: Difference) -> str:
    """The page."""
    states = [layer.state for layer in found.layers]
    return render(
        "diff.html.j2",
        before=escape(found.before),
        after=escape(found.after),
        counts={s: states.count(s) for s in ("same", "changed", "added", "gone")},
        figures=[_figure(f) for f in found.figures],
        layers=[_layer(layer) for layer in found.changed],
        passes=[_figure(f) for f in found.passes],
    )


def _figure(figure: Figure) -> dict[str, object]:
    part = figure.change
    text = "" if part is None else "0 %" if part == 0 else f"{100 * part:+.1f} %"
    worse = part is not None and part > _WORSE
    return {
        "name": escape(figure.name),
        "before": _number(figure.before),
        "after": _number(figure.after),
        "change": text,
        "worse": worse,
    }


def _layer(layer: LayerChange) -> dict[str, object]:
    known = {f.name: _figure(f) for f in layer.figures}
    schedules = dict.fromkeys(escape(s) for s in (layer.schedule_before, layer.schedule_after) if s)
    return {
        "layer": layer,
        "nodes": escape(", ".join(layer.nodes)),
        "schedules": " → ".join(schedules),
        "figures": [known.get(name) for name in ("ms", "estimated cycles", "operations", "bytes", "workspace")],
    }


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
