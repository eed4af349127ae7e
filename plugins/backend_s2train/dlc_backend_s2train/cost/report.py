"""What a program costs, for people and for programs: tables, and a page with its time line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from dlc.base.diagnostics import escape
from dlc.html.memory import render_text
from dlc_backend_s2train.build_lines import fusion_line
from dlc_backend_s2train.cost.cycles import Assumptions, Times, utilisation
from dlc_backend_s2train.cost.estimate import Cost, Total, estimate, total
from dlc_backend_s2train.cost.operand_traffic import fusion_facts
from dlc_backend_s2train.isa.instruction_set import spelled
from dlc_backend_s2train.program import Entry, Program

HEADINGS = (
    "#",
    "instruction",
    "result",
    "MACs",
    "steps",
    "use",
    "tile passes",
    "splits",
    "policy",
    "B in",
    "B out",
    "cycles",
    "bound",
)
RIGHT = (0, 3, 4, 5, 6, 7, 9, 10, 11)
"""Columns of numbers."""
WIDTH = 1000
"""Of the drawing, in its own units; the page scales it."""
LANES = ("configure", "load", "compute", "store")
_LANE_HEIGHT = 26
_HUES = {"configure": 280, "load": 212, "compute": 28, "store": 130}
"""Of the colours of lanes, in degrees."""
_MARKS = 10
"""Parts of the time axis."""


def rows(program: Program, costs: Sequence[Cost]) -> list[tuple[str, ...]]:
    """A row of `HEADINGS` for each cost; names are escaped."""
    return [_row(program, cost) for cost in costs]


def table(program: Program, assumptions: Assumptions | None = None) -> str:
    """The costs of each entry as aligned text with totals. Raises DlcError, as `estimate` does."""
    sections: list[str] = []
    for entry in sections_of(program):
        costs = estimate(program, assumptions, entry.begin, entry.end)
        lines = _aligned([HEADINGS, *rows(program, costs)], RIGHT)
        words = [f"{name}: {value}" for name, value in facts(total(costs, program.target))]
        sections.append("\n".join([f"{escape(entry.name)}:", lines, "total: " + ", ".join(words)]))
    return "\n\n".join(sections)


def data(program: Program, assumptions: Assumptions | None = None) -> list[Mapping[str, Any]]:
    """The same as plain data, a mapping for each instruction, names as they are. Raises DlcError."""
    return [
        {
            "entry": entry.name,
            "number": c.number,
            "instruction": c.title,
            "result": c.result,
            "macs": c.macs,
            "steps": c.steps,
            "tile_passes": c.work.tile_passes if c.work else 0,
            "splits": c.work.splits if c.work else 0,
            "policy": c.traffic.policy,
            "bytes_in": c.traffic.inward,
            "bytes_out": c.traffic.outward,
            "begin": c.start,
            "cycles": c.times.total,
            "bound": c.times.bound if c.times.total else None,
        }
        for entry in sections_of(program)
        for c in estimate(program, assumptions, entry.begin, entry.end)
    ]


def facts(sum_: Total) -> list[tuple[str, str]]:
    """What to say of a total: (name, value)."""
    return [
        ("instructions", f"{sum_.instructions:,}"),
        ("MACs", f"{sum_.macs:,}"),
        ("array steps", f"{sum_.steps:,}"),
        ("utilisation", f"{float(sum_.utilisation):.3f}"),
        ("bytes in", f"{sum_.inward:,}"),
        ("bytes out", f"{sum_.outward:,}"),
        ("cycles", f"{sum_.cycles:,}"),
        ("of them at least", f"{sum_.load:,} load, {sum_.compute:,} compute, {sum_.store:,} store"),
        ("bound", sum_.bound_in_words),
    ]


@dataclass(frozen=True)
class Bar:
    """Something on a lane of the time line."""

    x: float
    y: float
    width: float
    height: float
    hue: int
    title: str
    """Shown on hover."""


@dataclass(frozen=True)
class Line:
    """The time line of one entry."""

    name: str
    bars: tuple[Bar, ...]
    marks: tuple[tuple[float, str], ...]
    """(x, cycle) along the axis."""
    facts: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]


def timeline_html(program: Program, title: str, assumptions: Assumptions | None = None) -> str:
    """The page: load, computation and stores of every instruction over time. No scripts, no network, one file.

    Raises:
        DlcError: as `estimate` does.
    """
    assumptions = assumptions or Assumptions()
    density = ", ".join(f"{d:g}" for d in assumptions.density)
    said = (
        ("cost model", f"{assumptions.cost_model}, density {density}"),
        ("buffers", "double" if assumptions.overlapped else "single"),
        ("partial sums", f"{assumptions.partial_bytes} B each"),
    )
    template = files("dlc_backend_s2train") / "cost" / "templates" / "timeline.html.j2"
    return render_text(
        template.read_text(encoding="utf-8"),
        title=escape(title),
        assumptions=said,
        lines=[_line(program, entry, assumptions) for entry in sections_of(program)],
        headings=HEADINGS,
        right=RIGHT,
        lanes=[(name, k * _LANE_HEIGHT, _HUES[name]) for k, name in enumerate(LANES)],
        width=WIDTH,
        height=_LANE_HEIGHT * len(LANES),
    )


def spans(times: Times) -> dict[str, tuple[float, float]]:
    """Lane → (begin, end) in cycles from the instruction's begin; in between a lane may wait for others."""
    begin, end, chunks = times.configuration, times.total, times.chunks if times.overlapped else 1
    load, compute, store = (n / chunks for n in (times.load, times.compute, times.store))
    found = {
        "configure": (0.0, float(times.configuration)),
        "load": (float(begin), end - times.latency - compute - store),
        "compute": (begin + load, end - store),
        "store": (begin + load + compute + times.latency, float(end)),
    }
    # Of what takes no time nothing is drawn.
    busy = {"configure": times.configuration, "load": times.load, "compute": times.compute + times.latency}
    return {lane: span for lane, span in found.items() if {**busy, "store": times.store}[lane]}


def sections_of(program: Program) -> tuple[Entry, ...]:
    """The entries, or everything as one where there is none."""
    return program.entries or (Entry("all instructions", 0, len(program.instructions)),)


def _aligned(lines: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    """Cells as aligned columns, two spaces apart; those numbered in `right` end together."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = [
        [c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in cells)


def _row(program: Program, cost: Cost) -> tuple[str, ...]:
    work, moved = cost.work, cost.traffic
    array = ("", "", "", "", "")
    if work:
        use = f"{float(utilisation(work.macs, work.steps, program.target)):.3f}"
        array = (f"{work.macs:,}", f"{work.steps:,}", use, f"{work.tile_passes:,}", f"{work.splits:,}")
    return (
        str(cost.number),
        cost.title,
        escape(cost.result),
        *array,
        moved.policy or "",
        f"{moved.inward:,}",
        f"{moved.outward:,}",
        f"{cost.times.total:,}",
        cost.times.bound if cost.times.total else "",
    )


def _line(program: Program, entry: Entry, assumptions: Assumptions) -> Line:
    costs = estimate(program, assumptions, entry.begin, entry.end)
    end = max((c.end for c in costs), default=0) or 1
    bars: list[Bar] = []
    for cost in costs:
        busy = {
            "configure": cost.times.configuration,
            "load": cost.times.load,
            "compute": cost.times.compute,
            "store": cost.times.store,
        }
        for lane, (first, last) in spans(cost.times).items():
            at = cost.start * WIDTH / end + first * WIDTH / end
            y = LANES.index(lane) * _LANE_HEIGHT + 3
            name = f" → {escape(cost.result)}" if cost.result else ""
            title = (
                f"{cost.number}: {cost.title}{name}; {lane} {busy[lane]:,} of {cost.times.total:,} cycles "
                f"from {cost.start:,}; bound: {cost.times.bound}"
            )
            bars.append(Bar(at, y, (last - first) * WIDTH / end, _LANE_HEIGHT - 6, _HUES[lane], title))
    marks = tuple((k * WIDTH / _MARKS, f"{k * end // _MARKS:,}") for k in range(_MARKS))
    said = (*facts(total(costs, program.target)), ("operands", fusion_line(fusion_facts(program, entry))))
    table = [(row[0], _text(program, cost), *row[2:]) for cost, row in zip(costs, rows(program, costs), strict=True)]
    return Line(escape(entry.name), tuple(bars), marks, said, tuple(table))


def _text(program: Program, cost: Cost) -> str:
    """`conv forward [relu, bn_forward]`: an instruction with its flags."""
    flags = program.instructions[cost.number].flags
    return cost.title + (f" [{', '.join(spelled(flag) for flag in flags)}]" if flags else "")
