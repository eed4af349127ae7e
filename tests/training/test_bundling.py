"""A bundle from plans: what lies where, and what every function is bound to."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dlc import DlcError, Report
from dlc.api.function_names import FUNCTIONS, IGNORED, FunctionName
from dlc.api.passes import run_passes
from dlc.api.plan import Plan
from dlc.api.training import ALIGN, Bundle, Classes, Place
from dlc.base.types import Type, f32, i64
from dlc.graph import Constant, Graph, Input, Tensor, make_graph
from dlc.ops.elementwise import Add, Mul
from dlc.passes.autodiff import Autodiff
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.spec import Spec
from dlc.training.step.bundling import make_bundle, memory_of
from dlc.training.step.losses import parse_loss
from tests.training.test_functions import BATCH, CLASSES, model


def bundle_of(graph: Graph, options: str = "") -> Bundle:
    """What the driver makes, without its cache."""
    stage = Autodiff.from_spec(Spec.parse_options("autodiff", options, "test"))
    plans: dict[FunctionName, Plan] = {}
    for name in FUNCTIONS[stage.updates]:
        plain: dict[str, Any] = {f.name: f.default for f in fields(stage) if f.name in IGNORED[name]}
        steps = (replace(stage, **plain, give=name), Lower(), Order(), PlanMemory())
        plans[name] = run_passes(steps, graph, Report())
    return make_bundle(plans, stage.training(), stage.of)


def names(places: tuple[Place | None, ...]) -> list[str]:
    return [place.name if place else "" for place in places]


WEIGHTS = ["w1", "b1", "bn.scale", "bn.bias", "w2", "b2"]
RUNNING = ["bn.mean", "bn.var"]
GRADIENTS = [f"{w}.gradient" for w in WEIGHTS]


def test_regions_hold_every_tensor_once() -> None:
    bundle = bundle_of(model(), "optimizer=sgd{momentum=0.9}")
    regions = {name: [p.name for p in places] for name, places in bundle.regions.items()}
    assert regions["parameters"] == [*WEIGHTS, *RUNNING]
    assert regions["gradients"] == GRADIENTS
    assert regions["state"][-1] == "step"
    assert {n.rpartition(".")[0] for n in regions["state"][:-1]} == set(WEIGHTS)
    assert [p.name for p in bundle.regions["parameters"] if p.trained] == WEIGHTS
    for places in bundle.regions.values():
        assert places[0].offset == 0
        for place, after in pairwise(places):
            assert place.offset % ALIGN == 0
            assert place.offset + place.type.nbytes <= after.offset < place.offset + place.type.nbytes + ALIGN


def test_places_begin_with_what_the_model_holds() -> None:
    graph = model()
    stored = {op.name: op.tensor for op in graph.ops if isinstance(op, Constant) and op.name}
    for place in bundle_of(graph).regions["parameters"]:
        assert isinstance(place.initial, Tensor)
        np.testing.assert_array_equal(place.initial.array(), stored[place.name].array())


@pytest.mark.parametrize("options", ["", "accumulate=3", "updates=immediate", "updates=immediate accumulate=2"])
def test_functions_are_bound_by_name(options: str) -> None:
    bundle = bundle_of(model(), f"optimizer=adam{{}} {options}")
    for name, function in bundle.functions.items():
        for place, port in zip(function.inputs, function.plan.signature.inputs, strict=True):
            assert place is None or (place.name, place.type) == (port.name, port.type)
        for place, port in zip(function.outputs, function.plan.signature.outputs, strict=True):
            assert place is None or (place.name, place.type) == (port.name, port.type)
        for i, j in function.plan.signature.aliases:
            assert function.outputs[i] is function.inputs[j] is not None
        unbound = [p.name for p, i in zip(function.plan.signature.inputs, function.inputs, strict=True) if i is None]
        assert unbound == {"update": [], "predict": ["x"]}.get(name, ["x", "y"])
    assert [p.name for p in bundle.arguments] == ["x", "y"]
    assert [p.type for p in bundle.arguments] == [Type(f32, (BATCH, 5)), Type(i64, (BATCH,))]


def test_gradients_are_outputs_and_with_accumulation_inputs_too() -> None:
    once = bundle_of(model()).functions["gradients"]
    assert names(once.outputs) == ["", *GRADIENTS, *RUNNING, "step"]
    assert not {*GRADIENTS} & {*names(once.inputs)}
    several = bundle_of(model(), "accumulate=2").functions["gradients"]
    assert {*GRADIENTS} <= {*names(several.inputs)} & {*names(several.outputs)}


def test_immediate_updates_have_no_region_of_gradients() -> None:
    bundle = bundle_of(model(), "updates=immediate accumulate=2")
    assert bundle.regions["gradients"] == ()
    assert {*GRADIENTS} <= {p.name for p in bundle.regions["state"]}  # which sums over steps
    assert bundle.accumulate == 2


def test_memory_is_reported() -> None:
    bundle = bundle_of(model())
    sizes = {name: bundle.size(name) for name in bundle.regions}
    arena = max(f.plan.regions["arena"] for f in bundle.functions.values())
    text = memory_of(bundle, {})
    assert (text["arena_bytes"], text["peak_bytes"]) == (arena, arena + sum(sizes.values()))
    assert memory_of(bundle, {"arena_bytes": 7})["peak_bytes"] == 7 + sum(sizes.values())


@pytest.mark.parametrize(
    ("loss", "classes"),
    {
        "cross-entropy": Classes(CLASSES),
        "cross-entropy{ignore=-100}": Classes(CLASSES, -100),
        "cross-entropy{one-hot=yes}": None,
        "cross-entropy{axis=0}": Classes(BATCH),
        "nll{ignore=2}": Classes(CLASSES, 2),
        "mse": None,
        "sum{losses=nll{ignore=1},cross-entropy{ignore=1}}": Classes(CLASSES, 1),
        "sum{losses=nll{ignore=1},cross-entropy{}}": Classes(CLASSES),
    }.items(),
)
def test_losses_tell_which_integers_are_labels(loss: str, classes: Classes | None) -> None:
    assert parse_loss(loss).classes(Type(f32, (BATCH, CLASSES))) == classes


def test_tensors_of_one_name_are_refused() -> None:
    """A weight that is called like the optimizer's state of another."""
    x = Input("x", Type(f32, (2,)))
    w, other = (Constant(Tensor.of(np.ones(2, np.float32)), name) for name in ("w", "w.momentum"))
    graph = make_graph((x,), {"p": Add(Mul(x, w), other)})
    with pytest.raises(DlcError, match=r'would be named "w\.momentum"'):
        bundle_of(graph, "loss=mse optimizer=sgd{momentum=0.9}")
