"""`S2Host`: a call of a host function as an op of a graph, between instructions."""

from __future__ import annotations

from typing import ClassVar

from dlc.base.types import Type
from dlc.graph import Call, Cotangent, Op


def kind_of(op: Op) -> str:
    """What an op that the host computes is called, for people: calls of kernels, as gradients are, by that."""
    match op:
        case Call():
            return "kernel"
        case Cotangent():
            return "gradient"
        case _:
            return op.text_name


class S2Host(Op):
    """The host computes `text` on stored values; `results` are what it stores."""

    runs: ClassVar[bool] = True
    args: tuple[Op, ...] = ()
    text: str = ""
    """The function's graph, as `.dlc` text."""
    reads: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Of each operand the shape in which the function sees it, and bytes before it in its value."""
    results: tuple[Type, ...] = ()

    def derive_types(self) -> tuple[Type, ...]:
        if len(self.args) != len(self.reads) or not self.results:
            raise ValueError(f"{len(self.args)} operands, {len(self.reads)} reads, {len(self.results)} results")
        return self.results
