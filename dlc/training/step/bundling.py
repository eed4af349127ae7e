"""A `Bundle` from the plans of its functions: which tensors live in which region, and where.

Every plan names its inputs. What the function that changes weights gives back in place is state of the program; what
`predict` reads of it are its parameters. Everything is bound by these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlc.api.function_names import FunctionName
from dlc.api.plan import Plan
from dlc.api.training import ALIGN, Bundle, Function, Place, RegionName
from dlc.base.diagnostics import error, quote
from dlc.graph import Input
from dlc.training.step.config import STEP, TrainingConfig
from dlc.training.step.trained import prediction_of

Regions = Mapping[RegionName, tuple[Place, ...]]


def make_bundle(
    plans: Mapping[FunctionName, Plan],
    config: TrainingConfig,
    of: str = "",
    template: tuple[str, bytes] = ("", b""),
    facts: Mapping[str, int | str] | None = None,
) -> Bundle:
    """The training program of these functions.

    Args:
        plans: Those that `bundle.Bundle` tells of.
        config: What they were made by.
        of: The output that the loss reads; by default the first that is a float.
        template: See `Bundle.template`.
        facts: See `Bundle.facts`.

    Raises:
        DlcError: tensors of the program have one name.
    """
    regions = regions_of(plans)
    functions: dict[FunctionName, Function] = {name: _bound(name, plan, regions) for name, plan in plans.items()}
    ports = plans["predict"].signature.outputs
    prediction = ports[prediction_of([p.name for p in ports], [p.type for p in ports], of)].type
    classes = config.loss.classes(prediction)
    bundle = Bundle(functions, regions, config.label, classes, config.accumulate, template, facts or {})
    _check_names([*(p.name for places in regions.values() for p in places), *(p.name for p in bundle.arguments)])
    return bundle


def regions_of(plans: Mapping[FunctionName, Plan]) -> Regions:
    """Every region with its tensors, in order and placed."""
    parameters = {i.name for i in plans["predict"].graph.inputs}
    learns, moves = (plans["step"],) * 2 if "step" in plans else (plans["gradients"], plans["update"])
    weights = [i for i in _changed(moves) if i.role == "weight"]
    changed = {i.name: i for i in (*_changed(moves), *_changed(learns)) if i.role == "state"}
    running = [i for name, i in changed.items() if name in parameters]
    read = {i.name for i in moves.graph.inputs} - {i.name for i in _changed(moves)} - {STEP}
    gradients = [] if "step" in plans else [i for i in moves.graph.inputs if i.name in read]
    taken = {*parameters, *(i.name for i in gradients)}
    return {
        "parameters": _placed("parameters", [*weights, *running], trained={w.name for w in weights}),
        "state": _placed("state", [i for name, i in changed.items() if name not in taken]),
        "gradients": _placed("gradients", gradients),
    }


def memory_of(bundle: Bundle, facts: Mapping[str, int | str]) -> dict[str, int | str]:
    """Bytes of every region, of the arena, and of all together: the most that a training step needs at once.

    Args:
        bundle: The program.
        facts: What its backend says: "arena_bytes" where its functions take more than their plans.
    """
    sizes = {f"{name}_bytes": bundle.size(name) for name in bundle.regions}
    planned = max((f.plan.memory for f in bundle.functions.values()), default=0)
    arena_bytes = facts.get("arena_bytes")
    arena = arena_bytes if isinstance(arena_bytes, int) else planned
    return {**sizes, "arena_bytes": arena, "peak_bytes": sum(sizes.values()) + arena}


def _changed(plan: Plan) -> list[Input]:
    """The inputs that a plan writes over, in order."""
    return [plan.graph.inputs[j] for j in sorted(j for _, j in plan.graph.aliases)]


def _placed(region: RegionName, inputs: Sequence[Input], trained: Iterable[str] = ()) -> tuple[Place, ...]:
    places: list[Place] = []
    at, known = 0, frozenset(trained)
    for i in inputs:
        places.append(Place(region, i.name, i.of, at, i.initial, i.name in known))
        at += -(-i.of.nbytes // ALIGN) * ALIGN
    return tuple(places)


def _bound(name: FunctionName, plan: Plan, regions: Regions) -> Function:
    """Where a function finds what it reads and puts what it gives."""
    by_name = {p.name: p for places in regions.values() for p in places}
    inputs = tuple(by_name.get(i.name) for i in plan.graph.inputs)
    over = {k: inputs[j] for k, j in plan.graph.aliases}
    fresh = {p.name: p for p in regions["gradients"]} if name == "gradients" else {}
    outputs = tuple(over.get(k, fresh.get(port.name)) for k, port in enumerate(plan.signature.outputs))
    return Function(plan, inputs, outputs)


def _check_names(names: Sequence[str]) -> None:
    twice = list(dict.fromkeys(n for n in names if names.count(n) > 1))
    if twice:
        message = f"autodiff: two tensors of the training program would be named {', '.join(map(quote, twice))}"
        raise error("duplicate-name", message, help="rename one in the model")
