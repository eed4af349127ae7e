"""A graph, drawn: a box per op in rows, each below all that it reads, and a line per value.

Constants and what depends on nothing else are left out: they are weights, and would be most of the picture. Everything
here is numbers and escaped names; the template writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.api.plan import Plan
from dlc.base.diagnostics import escape
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.kernel.kernel import Kernel
from dlc.kernel.work import applied

BOX, ROW = (170.0, 42.0), 76.0
"""Width and height of a box, and the distance of rows, in the drawing's own units."""
_GAP = 24.0
_LETTERS = 24
"""Characters of a line in a box."""
DRAWN = 300
"""Boxes at most; of a larger graph the first rows are drawn."""


@dataclass(frozen=True)
class Box:
    """An op or an input."""

    x: float
    y: float
    kind: str
    """What it computes: the op's name, what a kernel does, "input" or "output"."""
    name: str
    """Nodes of the model that it comes from, cut."""
    title: str
    """Shown on hover: names whole, and the type of the result."""


@dataclass(frozen=True)
class Picture:
    """A graph, drawn."""

    caption: str
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    """Paths, from what is read to what reads it."""
    left_out: int
    """Ops that are not drawn."""


def picture(caption: str, state: Graph | Plan) -> Picture:
    """The graph, or that of a plan."""
    graph = state.graph if isinstance(state, Plan) else state
    rows, left_out = _rows(graph)
    widest = max((len(row) for row in rows), default=1)
    width = widest * (BOX[0] + _GAP) + _GAP
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        start = (width - len(row) * (BOX[0] + _GAP) + _GAP) / 2
        for at, op in enumerate(row):
            places[op.digest] = start + at * (BOX[0] + _GAP), _GAP + number * ROW
    boxes = tuple(_box(graph, op, *places[op.digest]) for row in rows for op in row)
    ends = [(x, op) for row in rows for op in row for x in _read(op) if x.digest in places]
    lines = tuple(_line(places[x.digest], places[op.digest]) for x, op in dict.fromkeys(ends))
    return Picture(caption, width, len(rows) * ROW + _GAP, boxes, lines, left_out)


def _rows(graph: Graph) -> tuple[list[list[Op]], int]:
    """Ops in rows, each behind all that it reads, in a row near the middle of what it reads; how many are left out."""
    memo: dict[str, bool] = {}
    shown = [op for op in graph.ops if not isinstance(op, Item) and not is_constant(op, memo)]
    depth: dict[str, int] = {}
    first: dict[str, int] = {}
    for op in shown:
        depth[op.digest] = 1 + max((depth.get(x.digest, -1) for x in _read(op)), default=-1)
        for x in _read(op):
            first[x.digest] = min(first.get(x.digest, depth[op.digest]), depth[op.digest])
    # An input stands just above its first reader, not in a row of inputs far away from it.
    depth |= {x.digest: first[x.digest] - 1 for x in shown if isinstance(x, Input) and x.digest in first}
    rows: dict[int, list[Op]] = {}
    for op in shown:
        rows.setdefault(depth[op.digest], []).append(op)
    drawn: list[list[Op]] = []
    column: dict[str, float] = {}
    for number in sorted(rows):
        if drawn and sum(map(len, drawn)) + len(rows[number]) > DRAWN:
            break
        row = sorted(rows[number], key=lambda op: _middle(column[x.digest] for x in _read(op) if x.digest in column))
        column |= {op.digest: at - len(row) / 2 for at, op in enumerate(row)}
        drawn.append(row[:DRAWN])
    return drawn, len(shown) - sum(map(len, drawn))


def _middle(columns: Iterable[float]) -> float:
    found = list(columns)
    return sum(found) / len(found) if found else 0.0


def _read(op: Op) -> list[Op]:
    """What an op reads; one result of several stands for all that the op gives."""
    return [x.of if isinstance(x, Item) else x for x in op.operands]


def _box(graph: Graph, op: Op, x: float, y: float) -> Box:
    names = (op.name,) if isinstance(op, Input) else graph.origin(op)
    given = ", ".join(name for name, out in zip(graph.names, graph.outputs, strict=True) if _read_of(out) is op)
    whole = ", ".join(map(escape, names))
    title = [whole, ", ".join(map(str, op.types)), *([f"output {escape(given)}"] if given else [])]
    return Box(x, y, _cut(_kind(op)), _cut(whole), "\n".join(filter(None, title)))


def _read_of(out: Op) -> Op:
    return out.of if isinstance(out, Item) else out


def _kind(op: Op) -> str:
    match op:
        case Input():
            return f"input {op.role}" if op.role != "data" else "input"
        case Call():
            return (
                " → ".join(dict.fromkeys(nest.reduce or "map" for nest in op.body.nests)) + f" ({op.body.digest[:6]})"
            )
        case _:
            return op.text_name


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the lower edge of a box to the upper one of another."""
    (a, b), (c, d) = start, end
    half = BOX[0] / 2
    b += BOX[1]
    bend = max((d - b) / 2, ROW / 4)
    points = (a + half, b), (a + half, b + bend), (c + half, d - bend), (c + half, d)
    return "M{:g} {:g}C{:g} {:g} {:g} {:g} {:g} {:g}".format(*(n for point in points for n in point))


def pictures(first: Graph | None, plan: Plan | None) -> Sequence[Picture]:
    """The model as it was read, and the program as it runs."""
    found = {"The model as it was read": first, "The program as it runs, a box per kernel": plan}
    return [picture(caption, state) for caption, state in found.items() if state is not None]


def operation(kernel: Kernel) -> str:
    """What a kernel does, in a few words: its reductions and functions."""
    words: dict[str, None] = {}
    for nest in kernel.nests:
        if nest.reduce:
            words[f"{nest.reduce}-reduce"] = None
        words.update(dict.fromkeys(sorted(e.fn for e in applied(nest.body))))
    return ", ".join(words) or "copy"
