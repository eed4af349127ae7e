"""The pass keeps what a graph computes, gradients of convolutions among it, and says why it leaves one alone."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.base.report import Report
from dlc.graph import Graph, evaluate, parse_graph
from dlc.plugins.builtin import dlc_ops
from dlc.spec import Spec
from tests.passes.conftest import STRUCTURE
from tests.passes.test_properties import PASSES

GRAPH = """graph(%0 "x": f32[1,8,SIZE,SIZE], %1 "w": f32[8,8,3,3] weight) {
  %2 = relu(%0)
  %3 = conv(%2, %1, none) pads=(1,1,1,1)
  %4 = relu(%3)
  %5 = conv(%4, %1, none) pads=(1,1,1,1)
  %6 = mul(%5, %5)
  %7 = reduce_sum(%6) axes=(0,1,2,3)
  return %7 "loss"
}"""


def run(text: str, size: int) -> tuple[Graph, Report]:
    """The graph after the passes of a pipeline, and the report of the last."""
    ops = {op.text_name: op for op in dlc_ops()} | STRUCTURE
    graph, report = parse_graph(GRAPH.replace("SIZE", str(size)), ops), Report()
    for spec in Spec.parse_pipeline(text, "test"):
        report = Report()
        graph = PASSES[spec.name].from_spec(spec).run(graph, report)
    return graph, report


@pytest.mark.parametrize("tile", [2, 4])
def test_gradients(tile: int) -> None:
    before = "gradient{wrt=x,w},simplify,lower,layout,fuse"
    plain, _ = run(before, 12)
    made, report = run(f"{before},winograd{{vector-bytes=32 tile={tile}}}", 12)
    assert report.counts[f"F({tile}x{tile},3x3)"] == 3  # but not of the first, whose channels come first
    rng = np.random.default_rng(0)
    feeds = {i.name: rng.standard_normal(i.type.shape).astype(np.float32) for i in plain.inputs}
    want = evaluate(plain, feeds)
    for name, got in evaluate(made, feeds).items():
        assert np.abs(got - want[name]).max() <= 1e-4 * np.abs(want[name]).max(), name


def test_weights_that_would_be_larger_than_a_step_of_the_program() -> None:
    _, report = run("lower,layout,fuse,winograd{vector-bytes=32}", 5)
    assert any("it would take more than the" in reason for _, reason in report.misses)
