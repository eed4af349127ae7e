"""The nine real architectures of the onnx package, compiled by `dlc build MODEL --target c`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest

from dlc.api.plan import Plan
from dlc.driver.state_text import print_state
from dlc.graph import Graph
from tests.models.building import Bench, Built, assert_close, compute_nodes, random_inputs, reference
from tests.models.zoo import LIGHT, expected, image, light, light_path

# Compute nodes, without constants: the smaller of onnxsim 0.7 and onnxslim 0.1, and onnxruntime 1.31 with extended
# optimisations. Reshapes count as nodes on both sides.
SIMPLIFIED = {
    "bvlc_alexnet": 22,
    "densenet121": 491,
    "inception_v1": 138,
    "inception_v2": 154,
    "resnet50": 123,
    "shufflenet": 154,
    "squeezenet": 65,
    "vgg19": 44,
    "zfnet512": 22,
}
FUSED = {
    "bvlc_alexnet": 15,
    "densenet121": 432,
    "inception_v1": 83,
    "inception_v2": 110,
    "resnet50": 90,
    "shufflenet": 137,
    "squeezenet": 39,
    "vgg19": 26,
    "zfnet512": 15,
}
LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
MODELS = [pytest.param(name, marks=[pytest.mark.timeout(900)] if name in LARGE else []) for name in LIGHT]
MAX_GAP = 2.0
"""Per cent of the lower bound that an arena may be larger."""


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def built(name: str, bench: Bench) -> Generator[Built]:
    with TemporaryDirectory(prefix="dlc-light-") as directory:
        yield bench.build(light_path(name), Path(directory))


@pytest.fixture(scope="module")
def states(built: Built, bench: Bench) -> dict[str, Graph | Plan]:
    return bench.states(built.source)


def test_the_output_is_what_the_onnx_package_expects(name: str, built: Built) -> None:
    (got,) = built(image(light(name))).values()
    np.testing.assert_allclose(got, expected(name), rtol=1e-3, atol=1e-7)


def test_the_arena_is_as_small_as_the_bound_or_the_gap_is_reported(built: Built) -> None:
    memory = built.memory
    assert memory["arena"] >= memory["bound"] > 0
    gap = 100 * (memory["arena"] - memory["bound"]) / memory["bound"]
    assert gap <= MAX_GAP
    assert float(memory["overhead_percent"]) == pytest.approx(gap, abs=0.01)


def test_simplified_graphs_have_no_more_nodes_than_other_simplifiers_leave(
    name: str, states: dict[str, Graph | Plan]
) -> None:
    graph = states["simplify"]
    assert isinstance(graph, Graph)
    assert compute_nodes(graph) <= SIMPLIFIED[name]


def test_fused_graphs_have_no_more_nodes_than_onnxruntime_leaves(name: str, states: dict[str, Graph | Plan]) -> None:
    graph = states["fuse"]
    assert isinstance(graph, Graph)
    assert compute_nodes(graph) <= FUSED[name]


def test_no_dump_is_a_tenth_larger_than_the_model_file(built: Built, states: dict[str, Graph | Plan]) -> None:
    """What is folded does not make a model larger; schedules are no part of one, a line for each kernel."""
    limit = 1.1 * built.source.stat().st_size
    large = {step: model_text(print_state(state, origins=True)) for step, state in states.items()}
    assert {step: length for step, length in large.items() if length > limit} == {}


def model_text(dump: str) -> int:
    """Characters of a dump without its schedules."""
    return sum(len(line) for line in dump.splitlines(keepends=True) if not line.startswith("  schedule "))


@pytest.mark.timeout(900)
def test_with_random_weights_the_output_is_that_of_onnxruntime(bench: Bench, place: Path) -> None:
    """One of those whose weights are not random in test_machines.py, which have no layers of other kinds."""
    built = bench.compile(light("bvlc_alexnet", seed=1), place)
    feeds = random_inputs(built.program)
    assert_close(built(feeds), reference(built.source, feeds))


def test_random_weights_differ_everywhere() -> None:
    model = light("squeezenet", seed=3)
    assert model == light("squeezenet", seed=3)
    weights = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert len(weights) == 52
    assert all(len(np.unique(w)) > 0.9 * w.size for w in weights)
