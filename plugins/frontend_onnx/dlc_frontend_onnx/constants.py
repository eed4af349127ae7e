"""Values that are known when a model is read: computed on demand, and only while they are small.

Shapes are often computed (Shape → Gather → Concat → Reshape). Such chains consist of ops like all others; when a rule
needs the number behind one, it is evaluated here by the graph's own interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.graph import Constant, Input, Op, evaluate_ops, toposort
from dlc_frontend_onnx.node import Array

LIMIT = 64 << 10
"""Bytes that all intermediate values of one evaluation may take."""


@dataclass
class Constants:
    """Which ops of a model depend on constants only, and their values."""

    known: dict[str, bool] = field(default_factory=dict[str, bool])
    values: dict[str, Array] = field(default_factory=dict[str, Array])

    def is_constant(self, op: Op) -> bool:
        """Whether an op depends on no input; every op of the model is looked at once."""
        stack = [op]
        while stack:
            top = stack[-1]
            pending = [x for x in top.operands if x.digest not in self.known]
            if pending and top.digest not in self.known:
                stack += pending
                continue
            self.known[top.digest] = not isinstance(top, Input) and all(self.known[x.digest] for x in top.operands)
            stack.pop()
        return self.known[op.digest]

    def value(self, op: Op) -> Array | None:
        """The value of a constant op whose computation stays below the limit, else None."""
        if op.digest in self.values:
            return self.values[op.digest]
        if not self.is_constant(op) or op.type.nbytes > LIMIT:
            return None
        if not isinstance(op, Constant):
            computed = sum(x.type.nbytes for x in toposort((op,)) if not isinstance(x, Constant))
            if computed > LIMIT:
                return None
        (found,) = evaluate_ops((op,), {})
        self.values[op.digest] = found
        return found
