"""A graph, drawn: a box per node in rows, each below all that it reads, and a line per value.

Everything here is numbers and escaped names; the template writes them. `folding.js` draws the same on the page when
boxes are folded, with this module's sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dlc.base.diagnostics import escape
from dlc.record.record import Node

BOX, ROW = (190.0, 46.0), 84.0
"""Width and height of a box, and the distance of rows, in the drawing's own units."""
GAP = 24.0
LETTERS = 24
"""Characters of a line in a box."""
DRAWN = 300
"""Boxes at most; of a larger graph the first rows are drawn."""
FOLDED: Final = 4000
"""Nodes at most of a graph that is folded on the page."""


@dataclass(frozen=True)
class Box:
    """A node."""

    number: int
    """In the record."""
    x: float
    y: float
    kind: str
    """What it computes, cut."""
    name: str
    """Nodes of the model that it comes from, cut."""
    title: str
    """Shown on hover: names whole, and the type of the result."""
    layer: int | None
    """That it leads to."""
    is_input: bool


@dataclass(frozen=True)
class Picture:
    """A graph, drawn."""

    caption: str
    anchor: str
    """What ids of its boxes begin with."""
    prefix: str
    """What ids of layers begin with."""
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    """Paths, from what is read to what reads it."""
    left_out: int
    """Nodes that are not drawn."""


def picture(caption: str, nodes: Sequence[Node], anchor: str = "node-", prefix: str = "") -> Picture:
    """The graph with its boxes."""
    rows, left_out = _rows(nodes)
    widest = max((len(row) for row in rows), default=1)
    width = widest * (BOX[0] + GAP) + GAP
    places: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        start = (width - len(row) * (BOX[0] + GAP) + GAP) / 2
        for at, node in enumerate(row):
            places[node] = start + at * (BOX[0] + GAP), GAP + number * ROW
    boxes = tuple(_box(k, nodes[k], *places[k]) for row in rows for k in row)
    ends = [(x, k) for row in rows for k in row for x in nodes[k].reads if x in places]
    lines = tuple(_line(places[x], places[k]) for x, k in ends)
    return Picture(caption, anchor, prefix, width, len(rows) * ROW + GAP, boxes, lines, left_out)


def _rows(nodes: Sequence[Node]) -> tuple[list[list[int]], int]:
    """Nodes in rows, each behind all that it reads, in a row near the middle of what it reads; how many are left out.

    Nodes stand behind what they read in records, too.
    """
    depth: list[int] = []
    first: dict[int, int] = {}
    for node in nodes:
        depth.append(1 + max((depth[x] for x in node.reads), default=-1))
        for x in node.reads:
            first[x] = min(first.get(x, depth[-1]), depth[-1])
    rows: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        # An input stands just above its first reader, not in a row of inputs far away from it.
        at = first[k] - 1 if not node.reads and k in first else depth[k]
        rows.setdefault(at, []).append(k)
    drawn: list[list[int]] = []
    column: dict[int, float] = {}
    for number in sorted(rows):
        if drawn and sum(map(len, drawn)) + len(rows[number]) > DRAWN:
            break
        row = sorted(rows[number], key=lambda k: _middle(column[x] for x in nodes[k].reads if x in column))
        column |= {k: at - len(row) / 2 for at, k in enumerate(row)}
        drawn.append(row[:DRAWN])
    return drawn, len(nodes) - sum(map(len, drawn))


def _middle(columns: Iterable[float]) -> float:
    found = list(columns)
    return sum(found) / len(found) if found else 0.0


def _box(number: int, node: Node, x: float, y: float) -> Box:
    whole = ", ".join(map(escape, node.names))
    layer = node.layers[0] if node.layers else None
    return Box(number, x, y, _cut(escape(node.op)), _cut(whole), title_of(node), layer, node.op.startswith("input"))


def title_of(node: Node) -> str:
    """What is shown of a node on hover."""
    given = [f"output {escape(name)}" for name in node.outputs]
    layers = [f"layer {', '.join(map(str, node.layers))}"] if node.layers else []
    names = ", ".join(map(escape, node.names))
    return "\n".join(filter(None, [names, escape(node.op), node.type, *layers, *given]))


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the lower edge of a box to the upper one of another."""
    (a, b), (c, d) = start, end
    half = BOX[0] / 2
    b += BOX[1]
    bend = max((d - b) / 2, ROW / 4)
    points = (a + half, b), (a + half, b + bend), (c + half, d - bend), (c + half, d)
    return "M{:g} {:g}C{:g} {:g} {:g} {:g} {:g} {:g}".format(*(n for point in points for n in point))


def folding(nodes: Sequence[Node], prefix: str) -> dict[str, Any] | None:
    """What the page's script draws a model folded into layers from; None where that is too much, or no layer is known.

    Texts are escaped for people as everywhere; the template escapes them for JSON in HTML.
    """
    if len(nodes) > FOLDED or not any(n.layers for n in nodes):
        return None
    boxes = [
        [_cut(escape(n.op)), _cut(", ".join(map(escape, n.names))), title_of(n), list(n.reads), list(n.layers[:1])]
        for n in nodes
    ]
    return {"box": BOX, "row": ROW, "gap": GAP, "drawn": DRAWN, "prefix": prefix, "nodes": boxes}
