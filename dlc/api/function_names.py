"""The functions of a training program by name. Imports nothing: the command line reads it before it does anything."""

from collections.abc import Mapping
from typing import Final, Literal

FunctionName = Literal["predict", "evaluate", "gradients", "update", "step"]
Updates = Literal["final", "immediate"]

FUNCTIONS: Final[Mapping[Updates, tuple[FunctionName, ...]]] = {
    "final": ("predict", "evaluate", "gradients", "update"),
    "immediate": ("predict", "evaluate", "step"),
}
"""The functions of a program: with all gradients in memory before the first update, or each used as soon as known."""

LEARNING: Final[frozenset[FunctionName]] = frozenset(("gradients", "step"))
"""Functions that differentiate the model: one of them in every program."""

IGNORED: Final[Mapping[FunctionName, frozenset[str]]] = {
    "predict": frozenset(("loss", "optimizer", "label", "clip", "accumulate", "updates", "outputs")),
    "evaluate": frozenset(("optimizer", "clip", "accumulate", "updates", "outputs")),
    "gradients": frozenset(("optimizer", "clip", "updates", "outputs")),
    "update": frozenset(("loss", "label", "updates", "outputs", "momentum", "stored_norms")),
    "step": frozenset(("updates", "outputs")),
}
"""What a function does not depend on, so that it stays as it is when that changes: fields of the pass `autodiff`."""
