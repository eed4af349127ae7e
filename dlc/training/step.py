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
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc.diagnostics import error, quote
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor
from dlc.graph.gradient import sweep
from dlc.graph.graph import with_live_origins
from dlc.ops.elementwise import Add, Cast, Div, Equal, Mod, Where
from dlc.ops.normalize import BatchNorm
from dlc.ops.pointwise import scalar
from dlc.training.batch_norm import TrainingBatchNorms, training_batch_norms
from dlc.training.clip import clip_by_global_norm
from dlc.training.dropout import with_step
from dlc.types import Array, DType, Type, f32, i64

if TYPE_CHECKING:
    from dlc.training.losses import Loss
    from dlc.training.optimizer import Optimizer

LOSS: Final = "loss"
STEP: Final = "step"
GRADIENT: Final = "gradient"
"""Names that the step adds: of an output, of a state, of the state of a weight that sums its gradients."""


@dataclass(frozen=True)
class Recipe:
    """What a step does."""

    loss: Loss
    optimizer: Optimizer
    label: str = "y"
    """Name of the input that holds the labels."""
    clip: float = 0.0
    """Largest norm of all gradients together; 0: any."""
    accumulate: int = 1
    """Steps for one update of the weights."""
    outputs: bool = False
    """Whether the step gives the model's own outputs too."""
    stored_norms: bool = False
    """Whether batch normalisations keep the statistics they have, as at inference."""
    momentum: float = 0.9
    """How much of their running statistics stays in a step."""


@dataclass(frozen=True)
class Step:
    """A training step and what there is to say of it."""

    graph: Graph
    scattered: tuple[tuple[str, str], ...]
    """(node, reason) of derivatives that add into memory at computed places instead of gathering."""
    idle: tuple[str, ...]
    """Weights whose gradient is zero everywhere."""
    norms: TrainingBatchNorms
    """What became of batch normalisations."""


def training_step(model: Graph, prediction: int, weights: Mapping[str, Op], recipe: Recipe) -> Step:
    """The step that trains `weights` so that an output of a model comes closer to labels.

    Args:
        model: A graph of ops, at the level of the pass `autodiff`.
        prediction: Index of the output that the loss compares with the labels.
        weights: Constants of the model, or inputs with the role of weights, by name; float.
        recipe: The loss and how the weights follow it.

    Returns:
        Inputs: those of the model, the labels, then weights, running statistics, states of weights, `step` (i64[]).
        Outputs: `loss` (a scalar), those of the model where the recipe wants them, then as many new values as inputs
        behind the labels, in the same order and aliased with them.

    Raises:
        DlcError: ops on the way have no gradient (all of them), labels do not fit, or names clash.
    """
    given = {name: _weight(name, op) for name, op in weights.items()}
    moved = model.substitute({op: given[name] for name, op in weights.items() if isinstance(op, Constant)})
    state = {STEP: Input(STEP, Type(i64, ()), "state", 0)}
    norms = _by_batch(moved, recipe)
    moved = with_step(norms.graph, state[STEP])
    own = len(model.outputs)
    running = moved.inputs[len(model.inputs) :]
    labels, loss = _compared(moved.outputs[prediction], recipe)
    seed = Splat(1.0, loss.type)
    kept = moved.outputs[:own] if recipe.outputs else ()
    found = sweep((loss,), (seed,), tuple(given.values()), moved.origins, also=(*kept, *moved.outputs[own:]))
    plain = 1 + len(kept)
    state |= {i.name: i for name, w in given.items() for i in _states(name, w, recipe)}
    new = _updated(given, found.gradients, state, recipe)
    new |= {i.name: value for i, value in zip(running, found.outputs[plain:], strict=True)}
    data = tuple(i for i in model.inputs if i.name not in given)
    changed = (*given.values(), *running, *(i for name, i in state.items() if name != STEP), state[STEP])
    inputs = (*data, labels, *changed)
    names = (LOSS, *(model.names if recipe.outputs else ()), *(i.name for i in changed))
    outputs = (*found.outputs[:plain], *(new[i.name] for i in changed))
    _check_names([i.name for i in inputs], "inputs", recipe)
    _check_names(names, "outputs", recipe)
    at = len(outputs) - len(changed)
    aliases = tuple((at + k, len(inputs) - len(changed) + k) for k in range(len(changed)))
    graph = with_live_origins(Graph(inputs, outputs, names, aliases, found.origins))
    idle = tuple(name for name, g in zip(given, found.gradients, strict=True) if isinstance(g, Splat))
    return Step(graph, found.scattered, idle, norms)


def _by_batch(model: Graph, recipe: Recipe) -> TrainingBatchNorms:
    """The model with batch normalisations by their batch, where the recipe wants it and they are trained."""
    frozen = {op.name for op in model.ops if isinstance(op, Constant) and op.name}
    if recipe.stored_norms:
        fixed = tuple(("", "stored statistics are asked for") for op in model.ops if isinstance(op, BatchNorm))
        return TrainingBatchNorms(model, (), 0, fixed)
    return training_batch_norms(model, frozen, recipe.momentum)


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


def _weight(name: str, op: Op) -> Input:
    match op:
        case Input():
            return op
        case Constant(tensor=tensor):
            return Input(name, op.type, "weight", tensor)
        case _:
            raise TypeError(f"{name} is computed: it cannot be a weight")


def _compared(prediction: Op, recipe: Recipe) -> tuple[Input, Op]:
    """The input of the labels, and the loss."""
    labels = Input(recipe.label, recipe.loss.labels(prediction.type), "label")
    return labels, recipe.loss.value(prediction, labels)


def _states(name: str, weight: Input, recipe: Recipe) -> tuple[Input, ...]:
    """What is kept of one weight between steps."""
    own = recipe.optimizer.state(weight.type).items()
    found = [Input(f"{name}.{key}", of, "state", start) for key, (of, start) in own]
    if recipe.accumulate > 1:
        found.append(Input(f"{name}.{GRADIENT}", Type(_wide(weight.dtype), weight.shape), "state", 0.0))
    return tuple(found)


def _updated(
    weights: Mapping[str, Input], gradients: Sequence[Op], state: Mapping[str, Input], recipe: Recipe
) -> dict[str, Op]:
    """The values after the step, by name, of weights, states and the step's number."""
    count = recipe.accumulate
    step = Add(state[STEP], scalar(1, i64))
    new: dict[str, Op] = {STEP: step}
    due: Op | None = None
    if count > 1:
        due = Equal(Mod(step, scalar(count, i64)), scalar(0, i64))
        sums = [Add(state[f"{n}.{GRADIENT}"], _as(g, _wide(g.dtype))) for n, g in zip(weights, gradients, strict=True)]
        new |= {f"{n}.{GRADIENT}": Where(due, Splat(0.0, s.type), s) for n, s in zip(weights, sums, strict=True)}
        means = (Div(s, scalar(float(count), s.dtype)) for s in sums)
        gradients = [_as(m, w.dtype) for m, w in zip(means, weights.values(), strict=True)]
        step = Div(Add(step, scalar(count - 1, i64)), scalar(count, i64))  # of updates: 1 in the first `count` steps
    if recipe.clip:
        gradients, _ = clip_by_global_norm(gradients, recipe.clip)
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        held = {key: state[f"{name}.{key}"] for key in recipe.optimizer.state(weight.type)}
        rate = recipe.optimizer.rate(step, _wide(weight.dtype))
        w, kept = recipe.optimizer.update(weight, gradient, held, step, rate)
        new[name] = w if due is None else Where(due, w, weight)
        new |= {f"{name}.{k}": v if due is None else Where(due, v, held[k]) for k, v in kept.items()}
    return new


def _check_names(names: Sequence[str], what: str, recipe: Recipe) -> None:
    """Raises DlcError: a name that the step adds is one of the model's."""
    twice = list(dict.fromkeys(n for n in names if names.count(n) > 1))
    if twice:
        rename = "give the labels another name: label=NAME" if twice == [recipe.label] else "rename it in the model"
        message = f"autodiff: two {what} of the step would be named {', '.join(map(quote, twice))}"
        raise error("duplicate-name", message, help=rename)


def _wide(dtype: DType) -> DType:
    """The type in which gradients are summed and weights updated."""
    return f32 if dtype.itemsize < f32.itemsize else dtype


def _as(x: Op, dtype: DType) -> Op:
    return x if x.dtype == dtype else Cast(x, to=dtype)
