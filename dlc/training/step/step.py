"""The graph of one training step, from the graph of a model.

    p = f(x, w)   →   L = loss(p, y);  dw = ∂L/∂w;  w', s' = optimizer(w, dw, s, t)

What a step changes is an input and an output of one name, which share their memory (`Graph.aliases`): the weights, the
running statistics of batch normalisations, the optimizer's state WEIGHT.NAME, and `step`, the number of steps so far.
Inputs tell what they start with.

With `accumulate=N` a step adds its gradients to WEIGHT.gradient, and each N-th step updates the weights with their
mean: for a loss that is a mean over the batch, that is one step on N batches of equal size together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlc.base.types import Array, i64
from dlc.graph import Graph, Input, Op, Tensor
from dlc.ops.elementwise import Add
from dlc.ops.pointwise import scalar
from dlc.training.step import updates
from dlc.training.step.batch_norm import TrainingBatchNorms
from dlc.training.step.config import LOSS, STEP, TrainingConfig
from dlc.training.step.trained import assembled, differentiated, trained_model


@dataclass(frozen=True)
class Step:
    """A training step, or another function of its parts, and what there is to say of it."""

    graph: Graph
    scattered: tuple[tuple[str, str], ...] = ()
    """(node, reason) of derivatives that add into memory at computed places instead of gathering."""
    idle: tuple[str, ...] = ()
    """Weights whose gradient is zero everywhere."""
    norms: TrainingBatchNorms | None = None
    """What became of batch normalisations; None where the function has none."""


def training_step(model: Graph, prediction: int, weights: Mapping[str, Op], config: TrainingConfig) -> Step:
    """The step that trains `weights` so that an output of a model comes closer to labels.

    Args:
        model: A graph of ops, at the level of the pass `autodiff`.
        prediction: Index of the output that the loss compares with the labels.
        weights: Constants of the model, or inputs with the role of weights, by name; float.
        config: The loss and how the weights follow it.

    Returns:
        Inputs: those of the model, the labels, then weights, running statistics, states of weights, `step` (i64[]).
        Outputs: `loss` (a scalar), those of the model where the config wants them, then as many new values as inputs
        behind the labels, in the same order and aliased with them.

    Raises:
        DlcError: ops on the way have no gradient (all of them), labels do not fit, or names clash.
    """
    step = updates.step_input()
    trained = trained_model(model, weights, config, step)
    found = differentiated(trained, prediction, config)
    state = {i.name: i for name, w in trained.weights.items() for i in _states(name, w, config)}
    new = {**found.moved, **_updated(trained.weights, found.gradients, {**state, STEP: step}, config)}
    changed = (*trained.weights.values(), *trained.running, *state.values(), step)
    inputs = (*trained.data, found.labels, *changed)
    values = {i.name: new[i.name] for i in changed}
    graph = assembled(inputs, ((LOSS, found.loss), *found.outputs), values, found.origins, config.label)
    return Step(graph, found.scattered, found.idle(trained.weights), trained.norms)


def initial_values(graph: Graph) -> dict[str, Array]:
    """What weights and states of a step start with: writable arrays by name; those that nobody knows left out."""
    found: dict[str, Array] = {}
    for i in graph.inputs:
        match i.initial:
            case None:
                pass
            case Tensor() as tensor:
                found[i.name] = tensor.array().copy()
            case value:
                found[i.name] = np.full(i.shape, value, i.dtype.numpy)
    return found


def _states(name: str, weight: Input, config: TrainingConfig) -> tuple[Input, ...]:
    """What is kept of one weight between steps."""
    own = updates.states(name, weight, config)
    return (*own, updates.gradient_input(name, weight, config)) if config.accumulate > 1 else own


def _updated(
    weights: Mapping[str, Input], gradients: Sequence[Op], state: Mapping[str, Input], config: TrainingConfig
) -> dict[str, Op]:
    """The values after the step, by name, of weights, states and the step's number."""
    count = config.accumulate
    step = Add(state[STEP], scalar(1, i64))
    number = updates.update_number(step, count)
    if count == 1:
        return {STEP: step, **updates.updated(weights, gradients, state, number, config)}
    due = updates.due(step, count)
    names = [updates.gradient_input(name, w, config).name for name, w in weights.items()]
    sums = updates.added([state[n] for n in names], gradients)
    new = updates.updated(weights, updates.means(weights, sums, count), state, number, config)
    kept = updates.zeros_if(due, sums)
    return {
        STEP: step,
        **dict(zip(names, kept, strict=True)),
        **updates.kept_unless(due, new, {**state, **weights}),
    }
