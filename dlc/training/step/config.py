"""`TrainingConfig`: what a training step does, and the names of what it adds to a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dlc.base.types import DType, f32
from dlc.graph import Op
from dlc.ops.elementwise import Cast

if TYPE_CHECKING:
    from dlc.training.step.loss import Loss
    from dlc.training.step.optimizer import Optimizer

LOSS: Final = "loss"
STEP: Final = "step"
GRADIENT: Final = "gradient"
"""Names that the step adds: of an output, of a state, of the state of a weight that sums its gradients."""


@dataclass(frozen=True)
class TrainingConfig:
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
    momentum: float | None = None
    """How much of their running statistics stays in a step; None: what each of them says."""
    named: tuple[str, ...] = ()
    """Names of ops whose derivatives stay named, as `Cotangent`."""


def wide(dtype: DType) -> DType:
    """The type in which gradients are summed and weights updated."""
    return f32 if dtype.itemsize < f32.itemsize else dtype


def cast(x: Op, dtype: DType) -> Op:
    """x in a type; itself where it is of that type."""
    return x if x.dtype == dtype else Cast(x, to=dtype)
