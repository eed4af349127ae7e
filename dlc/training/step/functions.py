"""The functions that a training program is made of, each as a graph: what `training_step` does, in pieces.

    predict      x, w            →   p = f(x, w), as at inference
    evaluate     x, y, w         →   L = loss(p, y), p, as at inference
    gradients    x, y, w, t      →   L, dw = ∂L/∂w in training mode, running statistics, t + 1
    update       w, dw, s, t     →   w', s' = optimizer(w, dw, s, t)

`gradients` and then `update` compute what a step does. In between, all gradients are in memory as WEIGHT.gradient. With
`accumulate=N`, `gradients` adds to them in place and begins anew where t is a multiple of N; `update` is for t that is.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.api.function_names import FunctionName
from dlc.base.types import i64
from dlc.graph import Graph, Op
from dlc.ops.elementwise import Add
from dlc.ops.pointwise import scalar
from dlc.training.step import updates
from dlc.training.step.config import LOSS, STEP, TrainingConfig
from dlc.training.step.step import Step, training_step
from dlc.training.step.trained import assembled, compared, differentiated, trained_model, weight_inputs


def training_function(
    name: FunctionName, model: Graph, prediction: int, weights: Mapping[str, Op], config: TrainingConfig
) -> Step:
    """A function by name; see `training_step` for the arguments and errors.

    Returns:
        Inputs: of the model's own, the labels, weights, running statistics, gradients, states and `step` those that the
        function has, in this order. Outputs: `loss`, the model's own, gradients, then new values of inputs, aliased.
    """
    match name:
        case "step":
            return training_step(model, prediction, weights, config)
        case "predict":
            return _predict(model, weights, config)
        case "evaluate":
            return _evaluate(model, prediction, weights, config)
        case "gradients":
            return _gradients(model, prediction, weights, config)
        case "update":
            return Step(_update(weights, config))


def _predict(model: Graph, weights: Mapping[str, Op], config: TrainingConfig) -> Step:
    found = trained_model(model, weights, config, None)
    inputs = (*found.data, *found.weights.values(), *found.running)
    return Step(assembled(inputs, tuple(zip(found.names, found.outputs, strict=True)), {}, found.origins))


def _evaluate(model: Graph, prediction: int, weights: Mapping[str, Op], config: TrainingConfig) -> Step:
    found = trained_model(model, weights, config, None)
    labels, loss = compared(found, prediction, config)
    inputs = (*found.data, labels, *found.weights.values(), *found.running)
    plain = ((LOSS, loss), *zip(found.names, found.outputs, strict=True))
    return Step(assembled(inputs, plain, {}, found.origins, config.label))


def _gradients(model: Graph, prediction: int, weights: Mapping[str, Op], config: TrainingConfig) -> Step:
    step = updates.step_input()
    trained = trained_model(model, weights, config, step)
    found = differentiated(trained, prediction, config)
    held = [updates.gradient_input(name, w, config) for name, w in trained.weights.items()]
    new: dict[str, Op] = {**found.moved, STEP: Add(step, scalar(1, i64))}
    plain = ((LOSS, found.loss), *found.outputs)
    read = (*trained.data, found.labels, *trained.weights.values(), *trained.running)
    if config.accumulate == 1:
        plain += tuple((h.name, g) for h, g in zip(held, found.gradients, strict=True))
        inputs = (*read, step)
    else:
        # Whatever lies there does not count in the first of a group of steps, not even if it is infinite.
        first = updates.due(step, config.accumulate)
        sums = updates.added(updates.zeros_if(first, held), found.gradients)
        new = {**{h.name: s for h, s in zip(held, sums, strict=True)}, **new}
        inputs = (*read, *held, step)
    graph = assembled(inputs, plain, new, found.origins, config.label)
    return Step(graph, found.scattered, found.idle(trained.weights), trained.norms)


def _update(weights: Mapping[str, Op], config: TrainingConfig) -> Graph:
    given = weight_inputs(weights)
    step = updates.step_input()
    held = tuple(updates.gradient_input(name, w, config) for name, w in given.items())
    state = {i.name: i for name, w in given.items() for i in updates.states(name, w, config)}
    count = config.accumulate
    gradients = list[Op](held) if count == 1 else updates.means(given, held, count)
    new = updates.updated(given, gradients, state, updates.update_number(step, count), config)
    changed = (*given.values(), *state.values())
    return assembled((*given.values(), *held, *state.values(), step), (), {i.name: new[i.name] for i in changed}, {})
