"""How weights follow their gradients: sums over several steps, clipping, and the rule of the optimizer.

t = step of updates, ḡ = Σ g / N   →   w', s' = optimizer(w, clip(ḡ), s, t)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.base.types import Type, i64
from dlc.graph import Input, Op, Splat
from dlc.ops.elementwise import Add, Div, Equal, Mod, Where
from dlc.ops.pointwise import scalar
from dlc.training.step.clip import clip_by_global_norm
from dlc.training.step.config import GRADIENT, STEP, TrainingConfig, cast, wide

Weights = Mapping[str, Input]


def step_input() -> Input:
    """`step`: i64[], the number of steps so far."""
    return Input(STEP, Type(i64, ()), "state", 0)


def states(name: str, weight: Input, config: TrainingConfig) -> tuple[Input, ...]:
    """What the optimizer keeps of one weight between updates."""
    own = config.optimizer.state(weight.type).items()
    return tuple(Input(f"{name}.{key}", of, "state", start) for key, (of, start) in own)


def gradient_input(name: str, weight: Input, config: TrainingConfig) -> Input:
    """The gradient of one weight between functions, or between steps: their sum, where several make an update."""
    dtype = wide(weight.dtype) if config.accumulate > 1 else weight.dtype
    return Input(f"{name}.{GRADIENT}", Type(dtype, weight.shape), "state", 0.0)


def added(sums: Sequence[Op], gradients: Sequence[Op]) -> list[Op]:
    """Sums of gradients with those of one step more."""
    return [Add(s, cast(g, s.dtype)) for s, g in zip(sums, gradients, strict=True)]


def due(step: Op, count: int) -> Op:
    """bool[]: whether weights are updated in the step with this number, counted from 1."""
    return Equal(Mod(step, scalar(count, i64)), scalar(0, i64))


def means(weights: Weights, sums: Sequence[Op], count: int) -> list[Op]:
    """The mean gradients of `count` steps, of the types of their weights."""
    found = (Div(s, scalar(float(count), s.dtype)) for s in sums)
    return [cast(m, w.dtype) for m, w in zip(found, weights.values(), strict=True)]


def update_number(step: Op, count: int) -> Op:
    """Number of the update that a step belongs to, both from 1: 1 in the first `count` steps."""
    return step if count == 1 else Div(Add(step, scalar(count - 1, i64)), scalar(count, i64))


def updated(
    weights: Weights, gradients: Sequence[Op], state: Mapping[str, Op], number: Op, config: TrainingConfig
) -> dict[str, Op]:
    """The values of weights and of the optimizer's states after an update, by name.

    Args:
        weights: What is trained.
        gradients: One for each weight, of its type.
        state: What `states` declares, for all weights.
        number: i64[], of the update, counted from 1.
        config: Clipping, and the optimizer.
    """
    if config.clip:
        gradients, _ = clip_by_global_norm(gradients, config.clip)
    new: dict[str, Op] = {}
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        held = {key: state[f"{name}.{key}"] for key in config.optimizer.state(weight.type)}
        rate = config.optimizer.rate(number, wide(weight.dtype))
        new[name], kept = config.optimizer.update(weight, gradient, held, number, rate)
        new |= {f"{name}.{key}": value for key, value in kept.items()}
    return new


def kept_unless(when: Op, new: Mapping[str, Op], old: Mapping[str, Op]) -> dict[str, Op]:
    """The new values where `when` holds, else the old ones."""
    return {name: Where(when, value, old[name]) for name, value in new.items()}


def zeros_if(when: Op, values: Sequence[Op]) -> list[Op]:
    """Zeros where `when` holds, else the values."""
    return [Where(when, Splat(0.0, v.type), v) for v in values]
