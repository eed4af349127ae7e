"""How far training by dlc and by PyTorch are apart, from equal weights and on equal data.

Single precision leaves some elements of a gradient undetermined: those that are zero but for rounding (the bias of keys
in attention, what batch normalisation takes out again), where optimizers that divide by the gradient's size make a step
of either sign. PyTorch in double precision tells which they are: the weight after one step is compared where its
gradient is ten times what rounding does to PyTorch's gradients of the same parameter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dlc.base.types import Array
from dlc.graph import Graph
from tests.training.nets import Training
from tests.training.torch_networks import Batch, in_precision_of, torch_step
from tests.training.torch_optimizers import torch_optimizer

WEIGHTS = 1e-4
"""Largest relative error of a parameter after one step: ‖a - b‖ / ‖b‖."""
LOSSES = 0.01
"""Largest relative difference of losses in the steps after."""
KNOWN = 10
"""Times the difference of PyTorch's gradients in single and in double precision: larger gradients are determined."""


class Learner(Protocol):
    """What trains."""

    def step(self, x: Array, y: Array) -> float:
        """One step; the loss before it."""
        ...

    def weights(self) -> Mapping[str, Array]:
        """Parameters as they are now, by name."""
        ...


@dataclass(frozen=True)
class Agreement:
    """One training of one network, twice."""

    weights: Mapping[str, float]
    """Relative error after one step by parameter, of the elements whose gradient is determined."""
    undetermined: float
    """Part of all elements whose gradient is not."""
    everywhere: float
    """The largest relative error of a parameter with all its elements."""
    losses: tuple[tuple[float, float], ...]
    """Of dlc and of PyTorch, step by step."""
    double: tuple[float, ...]
    """Of PyTorch in double precision, as far as it was asked for: how far rounding alone leads."""

    @property
    def worst(self) -> tuple[float, str]:
        """The largest error of a parameter, and which."""
        return max((error, name) for name, error in self.weights.items())

    @property
    def apart(self) -> float:
        """The largest relative difference of two losses of one step."""
        return max(abs(a - b) / abs(b) for a, b in self.losses)

    @property
    def rounding(self) -> float:
        """The same between PyTorch's precisions."""
        pairs = zip((b for _, b in self.losses), self.double, strict=False)
        return max((abs(a - b) / abs(b) for a, b in pairs), default=0.0)

    @property
    def ok(self) -> bool:
        """Whether both limits are kept."""
        return self.worst[0] <= WEIGHTS and self.apart <= LOSSES


def compare(
    learner: Learner,
    module: nn.Module,
    optimizer: str,
    batches: list[Batch],
    steps: int,
    double: bool = False,
    on_step: Callable[[int], object] = lambda _: None,
) -> Agreement:
    """Train `learner`, which has the weights of `module`, and a copy of the module.

    Args:
        learner: What dlc made of the module.
        module: The network, in single or in double precision; both train in that.
        optimizer: Spec of dlc; `torch_optimizers` finds PyTorch's for it.
        batches: Taken in turn.
        steps: How many.
        double: Whether PyTorch in double precision goes all steps, not the first one only.
        on_step: Called after each step.
    """
    single, precise = copy.deepcopy(module), copy.deepcopy(module).double()
    moves = torch_optimizer(optimizer, single), torch_optimizer(optimizer, precise)
    losses: list[tuple[float, float]] = []
    exact: list[float] = []
    errors: dict[str, float] = {}
    everywhere, unknown, total = 0.0, 0, 0
    for k in range(steps):
        x, y = batches[k % len(batches)]
        x = in_precision_of(single, x)
        losses.append((learner.step(x, y), torch_step(single, moves[0], x, y)))
        if double or k == 0:
            exact.append(torch_step(precise, moves[1], in_precision_of(precise, x), y))
        if k == 0:
            found = learner.weights()
            better = dict(precise.named_parameters())
            for name, value in single.named_parameters():
                want, got = value.detach().numpy(), found[name]
                known = determined(value.grad, better[name].grad)
                errors[name] = relative(got[known], want[known])
                everywhere = max(everywhere, relative(got, want))
                unknown, total = unknown + int((~known).sum()), total + known.size
        on_step(k)
    return Agreement(errors, unknown / total, everywhere, tuple(losses), tuple(exact))


def determined(single: torch.Tensor | None, double: torch.Tensor | None) -> Array:
    """Elements whose gradient is the same, or well above the root of the mean square of what rounding does."""
    assert single is not None and double is not None
    a, b = single.numpy().astype(np.float64), double.numpy()
    return np.asarray((np.abs(b) > KNOWN * np.sqrt(np.mean((a - b) ** 2))) | (a == b))


def relative(got: Array, want: Array) -> float:
    """‖got - want‖ / ‖want‖ in double precision; 0 for two zeros."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    difference, size = float(np.linalg.norm(a - b)), float(np.linalg.norm(b))
    return difference / size if size else (0.0 if difference == 0 else float("inf"))


class InPlace:
    """A program of the pipeline `autodiff{…},infer`, whose weights and states are inputs and outputs."""

    def __init__(self, program: Any, held: dict[str, Array]) -> None:
        self.program, self.held = program, held

    def step(self, x: Array, y: Array) -> float:
        return float(self.program(x=x, y=y, **self.held, out=self.held)["loss"])

    def weights(self) -> Mapping[str, Array]:
        return self.held


class Trained:
    """A program that was built with `--train`."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def step(self, x: Array, y: Array) -> float:
        return float(self.program.train_step(x, y))

    def weights(self) -> Mapping[str, Array]:
        return self.program.parameters()


class Interpreted:
    """A training step in the interpreter."""

    def __init__(self, step: Graph) -> None:
        self.training = Training(step)

    def step(self, x: Array, y: Array) -> float:
        return self.training(x, y)

    def weights(self) -> Mapping[str, Array]:
        return self.training.held
