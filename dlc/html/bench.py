"""One HTML page about a measurement: programs, steps, and their roofline. No scripts, no network, one file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dlc.api.profile import Limits
from dlc.base.diagnostics import escape
from dlc.html.memory import HEIGHT, WIDTH, render

if TYPE_CHECKING:
    from dlc.bench.result import Result
    from dlc.bench.steps import Measured
    from dlc.verify.compare import Comparison

_LEAST, _MOST = 2.0**-4, 2.0**10
"""Operations per byte at the edges of the drawing."""
_RADIUS: Final = (3.0, 22.0)
"""Of a step that takes no time, and of one that takes all of it."""


@dataclass(frozen=True)
class Line:
    """What a memory and the processor allow, over operations per byte."""

    name: str
    points: str
    x: float
    y: float
    """Where its name stands."""


@dataclass(frozen=True)
class Dot:
    """A step."""

    x: float
    y: float
    radius: float
    hue: int
    title: str
    """Shown on hover."""


@dataclass(frozen=True)
class Roofline:
    """Operations per second over operations per byte, both logarithmic."""

    lines: tuple[Line, ...]
    dots: tuple[Dot, ...]
    ticks: tuple[tuple[float, str], ...]
    """(x, operations per byte)."""
    levels: tuple[tuple[float, str], ...]
    """(y, 10^9 operations per second)."""


def bench_html(results: Sequence[Result]) -> str:
    """The page: a part for each number of threads, with what it gains over the first."""
    first = results[0]
    return render("bench.html.j2", model=escape(first.model), parts=[_part(r, first) for r in results])


def _part(result: Result, first: Result) -> dict[str, object]:
    return {
        "result": result,
        "gains": result is not first,
        "no_steps": escape(result.no_steps),
        "rows": [
            (row, escape(row.reason), result.relative(row), _worst(row.differences), result.gain(first, row))
            for row in result.rows
        ],
        "steps": [(s, escape(", ".join(s.work.nodes)), result.step_gain(first, s)) for s in result.steps],
        "roofline": roofline(result.steps, result.limits) if result.limits else None,
    }


def _worst(differences: Sequence[Comparison]) -> float | None:
    return max((d.max_abs for d in differences), default=None)


def roofline(steps: Sequence[Measured], limits: Limits) -> Roofline:
    """The drawing; steps without operations or bytes are left out."""
    drawn = [s for s in steps if s.work.operations and s.work.bytes and s.operations_rate]
    top = limits.operations * 2
    bottom = min([top / 1e3, *((s.operations_rate or top) / 2 for s in drawn)])

    def x(intensity: float) -> float:
        part = math.log(intensity / _LEAST) / math.log(_MOST / _LEAST)
        return WIDTH * min(max(part, 0.0), 1.0)

    def y(rate: float) -> float:
        part = math.log(max(rate, bottom) / bottom) / math.log(top / bottom)
        return HEIGHT * (1 - min(part, 1.0))

    lines: list[Line] = []
    for m in limits.memories:
        knee = limits.operations / m.rate
        first = max(_LEAST, bottom / m.rate)
        points = [(first, m.rate * first), (knee, limits.operations), (_MOST, limits.operations)]
        text = " ".join(f"{x(i):.1f},{y(r):.1f}" for i, r in points)
        lines.append(Line(m.name, text, x(math.sqrt(first * knee)), y(m.rate * math.sqrt(first * knee))))
    dots = [
        Dot(
            x((s.work.operations or 0) / (s.work.bytes or 1)),
            y(s.operations_rate or 0.0),
            _RADIUS[0] + (_RADIUS[1] - _RADIUS[0]) * math.sqrt(s.share),
            s.work.number * 47 % 360,
            f"step {s.work.number}, {100 * s.share:.1f} % of the time: {escape(', '.join(s.work.nodes))}",
        )
        for s in drawn
    ]
    exponents = range(round(math.log2(_LEAST)), round(math.log2(_MOST)) + 1, 2)
    decades = range(math.ceil(math.log10(bottom)), math.floor(math.log10(top)) + 1)
    return Roofline(
        tuple(lines),
        tuple(dots),
        tuple((x(2.0**e), f"{2.0**e:g}") for e in exponents),
        tuple((y(10.0**e), f"{10.0 ** (e - 9):g}") for e in decades),
    )
