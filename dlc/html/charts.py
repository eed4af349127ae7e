"""Charts as numbers: bars over layers, and rooflines. Templates draw them; all texts are escaped for people here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dlc.base.diagnostics import escape
from dlc.html.memory import HEIGHT, WIDTH, Level
from dlc.record.record import Layer, MachineLimits, StepTimes

BARS: Final = 260
"""Height of a chart of bars, in its own units."""
_LEAST, _MOST = 2.0**-4, 2.0**10
"""Operations per byte at the edges of the drawing."""
_RADIUS: Final = (4.0, 24.0)
"""Of a step that takes no time, and of one that takes all of it."""
_TICKS: Final = 4
_MARKS: Final = 16
"""Numbers of layers along an axis, at most."""


@dataclass(frozen=True)
class Bar:
    """What a layer has of something."""

    x: float
    y: float
    width: float
    height: float
    hue: int
    title: str
    """Shown on hover."""
    href: str
    """Where it leads to on the page."""


@dataclass(frozen=True)
class Bars:
    """Something by layer."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    levels: tuple[Level, ...]
    marks: tuple[Level, ...]
    height: int = BARS


def bars(
    title: str,
    unit: str,
    layers: Sequence[Layer],
    value: Callable[[Layer], float | None],
    shown: Callable[[float], str],
    prefix: str,
) -> Bars | None:
    """A bar for each layer; None where all are nothing.

    Args:
        title: Of the chart.
        unit: Of the values, for the axis.
        layers: In their order.
        value: Of a layer; None: nobody knows.
        shown: A value in words, without its unit.
        prefix: Of the anchors of layers.
    """
    found = [value(layer) or 0.0 for layer in layers]
    most = max(found, default=0.0)
    if not most:
        return None
    step = nice(most / _TICKS)
    top = step * math.ceil(most / step)
    width = WIDTH / len(layers)
    gap = min(width * 0.15, 4.0)
    drawn = tuple(
        Bar(
            k * width + gap / 2,
            BARS * (1 - v / top),
            width - gap,
            BARS * v / top,
            hue(layer.number),
            f"layer {layer.number}: {shown(v)} {unit}; {escape(', '.join(layer.nodes)) or escape(layer.operation)}",
            f"#{prefix}layer-{layer.number}",
        )
        for k, (layer, v) in enumerate(zip(layers, found, strict=True))
    )
    levels = tuple(Level(BARS * (1 - k * step / top), shown(k * step)) for k in range(math.floor(top / step + 0.5) + 1))
    return Bars(title, unit, drawn, levels, marks(len(layers)))


def marks(count: int) -> tuple[Level, ...]:
    """Numbers of layers below an axis, each in the middle of its layer."""
    step = max(1, round(nice(count / _MARKS)))
    return tuple(Level(WIDTH * (k + 0.5) / count, str(k)) for k in range(0, count, step))


def nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-9))


def hue(number: int) -> int:
    """Degrees: neighbours have different ones."""
    return number * 47 % 360


@dataclass(frozen=True)
class Roof:
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
    href: str
    """Where it leads to on the page."""


@dataclass(frozen=True)
class Roofline:
    """Operations per second over operations per byte, both logarithmic."""

    lines: tuple[Roof, ...]
    dots: tuple[Dot, ...]
    ticks: tuple[Level, ...]
    """Operations per byte."""
    levels: tuple[Level, ...]
    """10^9 operations per second."""


def roofline(steps: Sequence[StepTimes], limits: MachineLimits, prefix: str = "") -> Roofline:
    """The drawing; steps without operations or bytes are left out."""
    drawn = [s for s in steps if s.operations and s.bytes and s.gflops]
    top = max([limits.gflops * 2, *((s.gflops or 0.0) * 1.25 for s in drawn)])
    bottom = min([top / 1e3, *((s.gflops or top) / 2 for s in drawn)])

    def x(intensity: float) -> float:
        part = math.log(intensity / _LEAST) / math.log(_MOST / _LEAST)
        return WIDTH * min(max(part, 0.0), 1.0)

    def y(rate: float) -> float:
        part = math.log(max(rate, bottom) / bottom) / math.log(top / bottom)
        return HEIGHT * (1 - min(part, 1.0))

    lines: list[Roof] = []
    for k, m in enumerate(limits.memories):
        rate = m.gbytes_per_second
        knee = limits.gflops / rate
        first = max(_LEAST, bottom / rate)
        points = [(first, rate * first), (knee, limits.gflops), (_MOST, limits.gflops)]
        text = " ".join(f"{x(i):.1f},{y(r):.1f}" for i, r in points)
        # Names stand apart from each other, whatever lines run close to each other.
        at = first * (knee / first) ** (0.35 + 0.12 * (k % 4))
        lines.append(Roof(escape(m.name), text, x(at), y(rate * at)))
    dots = [
        Dot(
            x((s.operations or 0) / (s.bytes or 1)),
            y(s.gflops or 0.0),
            _RADIUS[0] + (_RADIUS[1] - _RADIUS[0]) * math.sqrt(s.share),
            hue(s.step),
            f"layer {s.step}: {s.ms:.4g} ms, {100 * s.share:.1f} % of the time, {s.gflops or 0:.1f} GFLOP/s; "
            f"{escape(', '.join(s.nodes))}",
            f"#{prefix}layer-{s.step}",
        )
        for s in drawn
    ]
    exponents = range(round(math.log2(_LEAST)), round(math.log2(_MOST)) + 1, 2)
    decades = range(math.ceil(math.log10(bottom)), math.floor(math.log10(top)) + 1)
    return Roofline(
        tuple(lines),
        tuple(dots),
        tuple(Level(x(2.0**e), f"{2.0**e:g}") for e in exponents),
        tuple(Level(y(10.0**e), f"{10.0**e:g}") for e in decades),
    )
