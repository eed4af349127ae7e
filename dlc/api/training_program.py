"""`TrainingProgram`: what `dlc.load` gives for a program built with --train, and all that `dlc train` needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dlc.api.program import Port, Program

if TYPE_CHECKING:
    from dlc.api.training import Classes
    from dlc.base.diagnostics import Diagnostic
    from dlc.base.types import Array


class TrainingProgram(Program, Protocol):
    """A program that learns. Called like any other it predicts, with the parameters it has.

    Arrays are given by name, or in the order of `arguments`; batches have the size that the program was built for.
    One thread at a time may train one program; several may predict.
    """

    @property
    def arguments(self) -> tuple[Port, ...]:
        """What a step takes: the model's inputs, then the labels."""
        ...

    @property
    def classes(self) -> Classes | None:
        """Which integers are labels; None: labels are no classes."""
        ...

    @property
    def facts(self) -> Mapping[str, int | str]:
        """What was built: "loss", "optimizer", "updates", bytes of memory."""
        ...

    def train_step(self, *args: object, **inputs: object) -> float:
        """One step on one batch; its loss, before the weights moved.

        Raises:
            DlcError: a name, shape or type is wrong; a label is none (`bad-label`); the loss is not finite
                (`not-finite`).
        """
        ...

    def notes(self) -> tuple[Diagnostic, ...]:
        """What a user should know of the last step beside its loss: gradients that overflowed."""
        ...

    def evaluate(self, *args: object, **inputs: object) -> dict[str, Array]:
        """`loss` and the model's outputs on one batch, as at inference; raises as `train_step` does."""
        ...

    def parameters(self) -> dict[str, Array]:
        """Weights and running statistics by name: views of the program's own memory; to write is to set."""
        ...

    def state(self) -> dict[str, Array]:
        """The optimizer's state and `step`, by name: views."""
        ...

    def gradients(self) -> dict[str, Array]:
        """The last gradients by name of their weight: views; none where updates are immediate."""
        ...

    def reset(self) -> None:
        """Start again from the values that the program was built with."""
        ...

    def all_reduce(self, hook: Callable[[Array], None] | None) -> None:
        """Have `hook` called with all gradients as one flat array, in place, between backward and update."""
        ...

    def checkpoint(self) -> bytes:
        """Parameters and state, with sums of gradients where several steps make an update."""
        ...

    def restore(self, checkpoint: bytes) -> None:
        """What `checkpoint` gave; raises DlcError (`bad-checkpoint`) for anything else, and then nothing changes."""
        ...

    def save_onnx(self, path: Path | str) -> None:
        """Write the model with the parameters as they are now, in the format it came in."""
        ...
