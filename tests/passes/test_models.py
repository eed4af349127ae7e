"""The passes on real models: few ops are left, no text outgrows its model, and plans meet their bound."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.frontend import Onnx

from dlc.api.plan import Plan
from dlc.api.source import Source
from dlc.base.report import Report
from dlc.driver.state_text import print_state
from dlc.graph import Graph, evaluate
from dlc.graph.constants import compute_ops
from dlc.passes.presets import PIPELINES
from dlc.passes.views import is_view
from dlc.spec import Spec
from dlc.verify.kit.random_graphs import feeds
from dlc.verify.plan_check import check_plan as find_faults
from tests.passes.arena import check_plan, execute
from tests.passes.test_properties import PASSES

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
MODELS = Path(__file__).parents[1] / "data/models"

# Ops that compute something. After `simplify`: the fewer of what onnxsim 0.8.1 and onnxslim 0.1.98 leave, which 2 more
# are of cct_vit, and many more of quantised values, whose steps are ops until they are fused. After `fuse`: the fewest
# that any tool leaves, onnxruntime 1.31.1 at its extended level included. `benchmarks/node_counts.py` counts them.
COUNTS = {
    "light_bvlc_alexnet": (22, 15),
    "light_densenet121": (491, 432),
    "light_inception_v1": (138, 83),
    "light_inception_v2": (154, 110),
    "light_resnet50": (123, 90),
    "light_shufflenet": (154, 137),
    "light_squeezenet": (65, 39),
    "light_vgg19": (44, 26),
    "light_zfnet512": (22, 15),
    "cct_vit/model": (58, 56),
    "micro_kws/fp32": (18, 13),
    "micro_kws/qdq": (155, 27),
    "mnist_cntk/model": (8, 6),
    "mnist_mlp/model": (6, 5),
    "super_resolution/model": (10, 7),
    "tinyvit/model": (144, 144),
}
DIMS = {"micro_kws/qdq": ("unk__68:1",), "super_resolution/model": ("batch_size:1",)}


def through_passes(path: Path, dims: tuple[str, ...] = (), parts: int = 0) -> dict[str, Graph | Plan]:
    """Name of the step → its result, for a model in the pipeline that builds use; `parts`: the option `bytes`."""
    state: Graph | Plan = Onnx(dims=dims).parse(Source(path), Report())
    steps: dict[str, Graph | Plan] = {"parse": state}
    pipeline = PIPELINES["infer"].replace("parts", f"parts{{bytes={parts}}}")
    for spec in Spec.parse_pipeline(pipeline, "infer"):
        state = PASSES[spec.name].from_spec(spec).run(state, Report())
        steps[spec.name] = state
    return steps


@pytest.mark.parametrize("name", COUNTS)
def test_little_is_left_of_models(name: str) -> None:
    path = (MODELS if "/" in name else LIGHT) / f"{name}.onnx"
    steps = through_passes(path, DIMS.get(name, ()))
    simplified, fused, plan = steps["simplify"], steps["fuse"], steps["plan-memory"]
    assert isinstance(simplified, Graph) and isinstance(fused, Graph) and isinstance(plan, Plan)
    most, fewest = COUNTS[name]
    assert len(compute_ops(simplified)) <= most
    assert len([op for op in compute_ops(fused) if not is_view(op)]) <= fewest
    room = 1.1 * path.stat().st_size
    sizes = {step: len(print_state(state, origins=True).encode()) for step, state in steps.items()}
    assert {step: size for step, size in sizes.items() if size > room} == {}
    check_plan(plan)
    assert plan.regions["arena"] == plan.facts["bound"]


SMALL = ("mnist_cntk/model", "mnist_mlp/model", "quantised/model", "micro_kws/fp32", "tinyvit/model")


@pytest.mark.parametrize("name", SMALL)
def test_small_models_run_in_their_arena(name: str) -> None:
    steps = through_passes(MODELS / f"{name}.onnx")
    parsed, plan = steps["parse"], steps["plan-memory"]
    assert isinstance(parsed, Graph) and isinstance(plan, Plan)
    check_plan(plan)
    values = feeds(parsed, 0)
    for output, want in evaluate(parsed, values).items():
        got = execute(plan, values)[output]
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * float(np.abs(want).max()))


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet"])
def test_plans_are_right_where_concatenations_hold_values(name: str) -> None:
    steps = through_passes(LIGHT / f"{name}.onnx", parts=4096)
    ordered, plan = steps["order"], steps["plan-memory"]
    assert isinstance(ordered, Plan) and isinstance(plan, Plan)
    assert len(plan.beside) > 4
    assert find_faults(ordered) == [] == find_faults(plan)
