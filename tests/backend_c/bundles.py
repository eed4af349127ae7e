"""Bundles of small networks: what tests of training programs in C share."""

from __future__ import annotations

from dlc import Report
from dlc.graph import Graph
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.schedule import Schedule
from dlc.passes.simplify import Simplify
from dlc.plan import Plan
from dlc.training.bundle import ALIGN, Bundle, Classes, Function, FunctionName, Place, RegionName
from dlc.training.functions import FUNCTIONS, Updates, training_function
from dlc.training.losses import parse_loss
from dlc.training.optimizers import parse_optimizer
from dlc.training.recipe import Recipe
from dlc.training.weights import chosen


def _plan(graph: Graph) -> Plan:
    report = Report()
    kernels = Lower().run(Simplify().run(graph, report), report)
    return PlanMemory().run(Schedule().run(Fuse().run(kernels, report), report), report)


def bundle_of(
    model: Graph,
    loss: str = "cross-entropy",
    optimizer: str = "sgd{lr=0.1}",
    updates: Updates = "final",
    accumulate: int = 1,
    classes: Classes | None = None,
    clip: float = 0.0,
) -> Bundle:
    """The training program of a model: places in the order in which functions name them."""
    recipe = Recipe(parse_loss(loss, "loss"), parse_optimizer(optimizer, "optimizer"), "y", clip, accumulate)
    weights = chosen(("weights",), (model.outputs[0],))
    graphs: dict[FunctionName, Graph] = {
        name: training_function(name, model, 0, weights, recipe).graph for name in FUNCTIONS[updates]
    }
    places = _places(graphs, list(weights))
    regions: dict[RegionName, tuple[Place, ...]] = {
        region: tuple(p for p in places.values() if p.region == region)
        for region in ("parameters", "state", "gradients")
    }
    functions: dict[FunctionName, Function] = {}
    for name, graph in graphs.items():
        at = [places.get(i.name) for i in graph.inputs], [places.get(n) for n in graph.names]
        functions[name] = Function(_plan(graph), tuple(at[0]), tuple(at[1]))
    facts = {"loss": loss, "optimizer": optimizer, "updates": updates}
    return Bundle(functions, regions, "y", classes, accumulate, (".onnx", b"template"), facts)


def _places(graphs: dict[FunctionName, Graph], weights: list[str]) -> dict[str, Place]:
    """Every tensor that is no argument, by name."""
    inputs = {i.name: i for g in graphs.values() for i in g.inputs if i.role in ("weight", "state")}
    types = {i.name: i.type for i in inputs.values()}
    types |= {
        n: o.type for g in graphs.values() for n, o in zip(g.names, g.outputs, strict=True) if n.endswith(".gradient")
    }
    ends = dict.fromkeys(("parameters", "state", "gradients"), 0)
    found: dict[str, Place] = {}
    final = "update" in graphs
    running = {i.name for i in graphs["predict"].inputs}
    for name, of in types.items():
        region: RegionName = "parameters" if name in running else "state"
        if final and name.endswith(".gradient"):
            region = "gradients"
        start = inputs[name].initial if name in inputs and region != "gradients" else None
        found[name] = Place(region, name, of, ends[region], start, name in weights)
        ends[region] += -(-of.nbytes // ALIGN) * ALIGN
    return found
