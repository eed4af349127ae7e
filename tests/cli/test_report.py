"""The report of a build: drawings that stay inside their frame, work that adds up, a page that is well formed."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dlc.api.plan import Plan
from dlc.base.types import Type, f32
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace
from dlc.graph import Graph, Op, make_graph
from dlc.graph.evaluate import is_constant
from dlc.graph.structure import Input, Item
from dlc.html.graph import BOX, DRAWN, picture
from dlc.html.memory import HEIGHT, WIDTH, memory
from dlc.ops.elementwise import Tanh
from dlc.record.build import function_of
from dlc.record.graph import nodes_of
from dlc.record.record import Layer
from tests.cli.conftest import MODELS, Dlc
from tests.cli.models import EVIL, evil, small

VOID = {"meta", "br"}


def plan_of(model: Path, *, pipeline: str | None = None) -> Plan:
    """What the backend gets."""
    space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
    prepared = space.prepare(BuildOptions(str(model), "", pipeline))
    with space.cache() as cache:
        return space.compile(prepared, cache, stop_after="plan-memory").last.value


@pytest.mark.parametrize("name", ["mnist_cntk", "tinyvit"])
def test_memory_is_drawn_inside_the_frame(name: str) -> None:
    plan = plan_of(MODELS / name / "model.onnx")
    drawn = memory(plan)
    # Views have slots, but no memory.
    assert len(drawn.rectangles) == len(plan.slots.keys() & plan.values.keys()) + len(plan.workspaces)
    for r in drawn.rectangles:
        assert r.width > 0
        assert r.x >= -0.01
        assert r.x + r.width <= WIDTH + 0.01
        assert r.y >= -0.01
        assert r.y + r.height <= HEIGHT + 0.01
    points = [tuple(map(float, p.split(","))) for p in drawn.curve.split()]
    assert (points[0][0], points[-1][0]) == (0, WIDTH)
    assert all(0 <= x <= WIDTH and -0.1 <= y <= HEIGHT for x, y in points)
    assert drawn.arena == plan.regions["arena"]
    assert 0 <= drawn.bound_y <= HEIGHT
    assert drawn.bound <= drawn.arena
    lowest = min(y for _, y in points)
    assert lowest == pytest.approx(drawn.bound_y, abs=0.1)  # pyright: ignore[reportUnknownMemberType]


def graph_of(model: Path) -> Graph:
    """What the frontend gives."""
    return Workspace.open(Terminal(quiet=True), CacheOptions("off")).graph(BuildOptions(str(model)))


@pytest.mark.parametrize("name", ["mnist_cntk", "tinyvit"])
def test_the_graph_is_drawn(name: str) -> None:
    """A box per op that is no weight, apart from all others, below what it reads; a line per value that is read."""
    model = MODELS / name / "model.onnx"
    for state in (graph_of(model), plan_of(model)):
        found = picture("", nodes_of(state))
        graph = state.graph if isinstance(state, Plan) else state
        assert len(found.boxes) + found.left_out == sum(
            1 for op in graph.ops if not isinstance(op, Item) and not is_constant(op)
        )
        places = {(box.x, box.y) for box in found.boxes}
        assert len(places) == len(found.boxes)
        for x, y in places:
            assert 0 <= x <= found.width - BOX[0]
            assert 0 <= y <= found.height - BOX[1]
            assert not [a for a, b in places if b == y and 0 < abs(a - x) < BOX[0]]
        assert len(set(found.lines)) == len(found.lines)
        for line in found.lines:
            a, b, *_, c, d = map(float, re.findall(r"[\d.]+", line))
            assert {(a - BOX[0] / 2, b - BOX[1]), (c - BOX[0] / 2, d)} <= places
            assert b < d, "what is read stands above"


def test_a_large_graph_is_drawn_in_part() -> None:
    x = Input("x", Type(f32, (2,)))
    y: Op = x
    for _ in range(2 * DRAWN):
        y = Tanh(y)
    found = picture("", nodes_of(make_graph([x], {"y": y})))
    assert len(found.boxes) == DRAWN
    assert found.left_out == DRAWN + 1


def test_the_page_has_the_pictures(dlc: Dlc) -> None:
    """0.1 promised the graph and showed none."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    assert dlc("build", "small.onnx", "-o", "out", "--html", "-q").code == 0
    page = Path("out/report.html").read_text()
    drawn = page[page.index("The program as it runs") : page.index('<h2 id="layers">')]
    for word in ("mat_mul", "relu", "product", "positive", "input", "f32[2,4]", "output y", "The model as it was read"):
        assert word in drawn, word


def layers_of(model: Path, pipeline: str | None = None) -> tuple[Layer, ...]:
    return function_of("", plan_of(model, pipeline=pipeline)).layers


def test_work_of_a_product() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    rows = layers_of(Path("small.onnx"), "lower,order,plan-memory")
    assert [row.macs for row in rows] == [2 * 3 * 4, 0, 0]
    assert [row.operations for row in rows] == [2 * 2 * 3 * 4, 8, 8]
    assert [row.nodes for row in rows] == [("product",), ("bias",), ("positive",)]
    assert [row.constant_bytes for row in rows] == [4 * 12, 4 * 4, 0]


def test_work_does_not_depend_on_fusion() -> None:
    model = MODELS / "mnist_cntk" / "model.onnx"
    fused, apart = layers_of(model), layers_of(model, "expand,lower,order,plan-memory")
    assert len(fused) < len(apart)
    assert sum(row.macs or 0 for row in fused) == sum(row.macs or 0 for row in apart)


class Balanced(HTMLParser):
    """Checks that every element is closed where it has to be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        assert all(value is not None for _, value in attrs), (tag, attrs)
        assert not any(name.startswith("on") for name, _ in attrs), (tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "name", [EVIL, '<script>alert("x")</script>', "</title></svg><b onclick='x'>", "{{ 7 * 7 }}{% raw %}"]
)
def test_names_stay_text(dlc: Dlc, name: str) -> None:
    made = evil()
    made.graph.node[0].name = name
    made.graph.input[0].name = made.graph.node[0].input[0] = name
    Path("evil.onnx").write_bytes(made.SerializeToString())
    assert dlc("build", "evil.onnx", "--html", "-o", "out", "-q", "-p", "lower,order,plan-memory").code == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert not parser.names & {"b", "iframe", "img", "object"}
    assert page.count("<script") == page.count("</script") == 2, "the graph's data, and what folds it"
