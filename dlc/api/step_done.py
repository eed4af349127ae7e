"""`StepDone`: what observers are told of a step."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StepDone:
    """One finished step, for observers."""

    step: str
    """Spec text of what ran."""
    input: str
    """Digest of what went in."""
    output: str
    """Digest of what came out."""
    milliseconds: float
    cached: bool
    counts: Mapping[str, int]
    """Statistics the step reported."""
