"""Training programs of small networks: what their tests in C share."""

from __future__ import annotations

from pathlib import Path

from dlc_backend_c.backend import C
from dlc_backend_c.training_runtime import TrainingModel

from dlc import Backend, Report, Spec
from dlc.api.function_names import FUNCTIONS
from dlc.api.plan import Plan
from dlc.api.schedules import with_schedules
from dlc.api.training import Bundle, FunctionName
from dlc.graph import Graph
from dlc.passes.autodiff import Autodiff
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.rematerialise import Rematerialise
from dlc.passes.simplify import Simplify
from dlc.runtime.install import install
from dlc.training.step.bundling import make_bundle
from tests.backend_c.models import Bench


def bundle_of(
    model: Graph,
    options: str,
    template: tuple[str, bytes] = ("", b""),
    backend: Backend | None = None,
    again: Rematerialise | None = None,
) -> Bundle:
    """The training program of a model: `options` of the pass `autodiff`."""
    stage = Autodiff.from_spec(Spec.parse(f"autodiff{{{options}}}"))
    plans: dict[FunctionName, Plan] = {
        name: _plan(
            Autodiff.from_spec(Spec.parse(f"autodiff{{{options} give={name}}}")).run(model, Report()),
            backend or C(),
            again or Rematerialise(),
        )
        for name in FUNCTIONS[stage.updates]
    }
    facts = {"loss": str(stage.loss), "optimizer": str(stage.optimizer), "updates": stage.updates}
    return make_bundle(plans, stage.training(), template=template, facts=facts)


def _plan(graph: Graph, backend: Backend, again: Rematerialise) -> Plan:
    report = Report()
    kernels = Fuse().run(Lower().run(Simplify().run(graph, report), report), report)
    ordered = Order().run(with_schedules(kernels, backend, report), report)
    return PlanMemory().run(again.run(ordered, report), report)


def trainer(bundle: Bundle, directory: Path, bench: Bench, spec: str = "c{prefix=net}") -> TrainingModel:
    """The bundle, built and loaded."""
    backend = C.from_spec(Spec.parse(spec))
    install(backend.build(backend.emit_training(bundle, Report()), bench), directory)
    found = backend.load(directory)
    assert isinstance(found, TrainingModel)
    return found
