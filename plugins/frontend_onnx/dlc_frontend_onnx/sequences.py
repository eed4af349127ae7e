"""Sequences and optional values, which exist while a model is read only: their lengths are known then."""

from __future__ import annotations

from dlc.base.types import Type
from dlc.graph import Op


class Resolved(Op, abstract=True):
    """Base of what has no tensor: rules that know of it ask for it, no graph holds it."""

    def derive_types(self) -> tuple[Type, ...]:
        return ()


class SequenceValue(Resolved):
    """Tensors in order."""

    xs: tuple[Op, ...] = ()


class Absent(Resolved):
    """An optional value that is not there; one that is there is the value itself."""


def kind_of(op: Op) -> str:
    """What a message calls a value."""
    match op:
        case SequenceValue():
            return f"a sequence of {len(op.xs)}"
        case Absent():
            return "an absent optional value"
        case _:
            return str(op.type)
