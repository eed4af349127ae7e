"""What the values of an arena are for, as pictures of it tell them apart.

    forward | mask | gradient | value | again | moved | workspace | copy

In a function that differentiates, what the loss depends on belongs to the forward pass and everything else to the
backward pass, but for masks and indices of either; functions that do not differentiate hold plain values. What
`rematerialise` executes again gives values of their own, and so does what is copied to another memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dlc.api.plan import Plan
from dlc.graph.op import Op
from dlc.graph.structure import Copy, Item
from dlc.record.record import VALUE
from dlc.training.step.config import LOSS

FORWARD: Final = "forward"
MASK: Final = "mask or index"
"""No floats: bits of a ReLU, positions of a pool."""
GRADIENT: Final = "backward"
AGAIN: Final = "computed again"
MOVED: Final = "copied between memories"
WORKSPACE: Final = "workspace"
COPY: Final = "copy of an input"


def roles(plan: Plan) -> Callable[[Op], str]:
    """What a value of a plan's steps is for."""
    graph = plan.graph
    losses = [op for name, op in zip(graph.names, graph.outputs, strict=True) if name == LOSS]
    before = _needed(losses)
    plain = not losses or all(step.digest in before for step in plan.steps if not step.is_repeat)

    def of(value: Op) -> str:
        if _base(value).is_repeat:
            return AGAIN
        if isinstance(value, Copy):
            return MOVED
        if plain:
            return VALUE
        if not value.type.dtype.is_float:
            return MASK
        return FORWARD if _base(value).digest in before else GRADIENT

    return of


def _needed(outputs: list[Op]) -> set[str]:
    """Digests of everything that some values depend on."""
    found: set[str] = set()
    pending = list(outputs)
    while pending:
        op = _base(pending.pop())
        if op.digest not in found:
            found.add(op.digest)
            pending += op.operands
    return found


def _base(op: Op) -> Op:
    return op.of if isinstance(op, Item) else op
