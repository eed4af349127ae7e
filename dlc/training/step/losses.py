"""Losses that a spec selects: what labels a prediction takes, and one number that tells how far off it is, as ops.

    cross-entropy{smoothing=0.1 ignore=-100}     huber{delta=0.5}     sum{losses=mse{},l1{} weights=1,0.5}

Each is an op of `dlc.ops.loss` with its options; what they compute, and by which source, stands there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from dlc.api.parts import Part
from dlc.api.training import Classes
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.types import Type
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Add, Mul
from dlc.ops.pointwise import scalar
from dlc.spec import Spec, option
from dlc.training.step.class_losses import CrossEntropy, Nll
from dlc.training.step.difference_losses import L1, Bce, Huber, Mse
from dlc.training.step.loss import Loss
from dlc.training.step.selection import selected
from dlc.training.step.sequence_losses import Ctc

Single = CrossEntropy | Nll | Mse | L1 | Huber | Bce | Ctc
"""A loss that is no sum of others."""


@dataclass(frozen=True)
class Sum(Loss):
    """A weighted sum of losses of one prediction and its labels."""

    name: ClassVar[str] = "sum"
    losses: tuple[Single, ...] = option((), "what is added: at least one")
    weights: tuple[float, ...] = option((), "a factor for each loss; () for 1 each")

    def __post_init__(self) -> None:
        """Refuse a sum of nothing, and weights that do not match the losses."""
        if not self.losses:
            raise _bad("there is nothing to add")
        if self.weights and len(self.weights) != len(self.losses):
            raise _bad(f"{len(self.losses)} losses have {len(self.weights)} weights")

    def classes(self, prediction: Type) -> Classes | None:
        """See `Loss.classes`: a label that does not count has to be one for every loss that takes classes."""
        found = [c for loss in self.losses if (c := loss.classes(prediction))]
        if not found:
            return None
        return found[0] if all(c == found[0] for c in found) else Classes(found[0].count)

    def _labels(self, prediction: Type) -> Type:
        first, *others = ((loss, loss.labels(prediction)) for loss in self.losses)
        for loss, of in others:
            if of != first[1]:
                raise ShapeError(f"{first[0].name} takes labels {first[1]}, {loss.name} takes {of}")
        return first[1]

    def _value(self, prediction: Op, labels: Op) -> Op:
        self.labels(prediction.type)
        total: Op | None = None
        for loss, weight in zip(self.losses, self.weights or (1.0,) * len(self.losses), strict=True):
            part = loss.value(prediction, labels)
            part = part if weight == 1 else Mul(part, scalar(weight, part.dtype))
            total = part if total is None else Add(total, part)
        assert total is not None
        return total


def _bad(message: str) -> DlcError:
    help = "write sum{losses=mse{},l1{} weights=1,0.5}"
    return error("bad-option", f"sum: {message}", help=help, exit_code=ExitCode.USAGE)


AnyLoss = Single | Sum
"""What an option that chooses a loss takes."""
LOSSES: Final[Mapping[str, type[Loss]]] = {
    kind.name: kind for kind in (CrossEntropy, Nll, Mse, L1, Huber, Bce, Ctc, Sum)
}
"""Name in a spec → class."""


def parse_loss(text: str | Spec, source: str = "loss", more: Sequence[Part[Loss]] = ()) -> Loss:
    """The loss that a spec describes: `cross-entropy{smoothing=0.1}`.

    `more` are those of plugins.

    Raises:
        DlcError: (USAGE) with a caret: the text is no spec, or names a loss or option that does not exist.
    """
    return selected(text, source, LOSSES, "loss", "losses", more)
