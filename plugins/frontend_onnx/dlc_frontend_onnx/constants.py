"""Values that are known when a model is read: computed on demand, and only while they are small.

Shapes are often computed (Shape → Gather → Concat → Reshape). Such chains consist of ops like all others; when a rule
needs the number behind one, it is evaluated here by the graph's own interpreter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dlc.graph import Constant, Input, Op, evaluate_ops, toposort
from dlc_frontend_onnx.node import Array

LIMIT = 64 << 10
"""Bytes that all intermediate values of one evaluation may take."""
WORK = 1 << 24
"""Points that the loops of one evaluation may visit: small tensors can still ask for endless work (einsum, windows)."""


@dataclass
class Constants:
    """Which ops of a model depend on constants only, and their values."""

    known: dict[str, bool] = field(default_factory=dict[str, bool])
    values: dict[Op, Array] = field(default_factory=dict[Op, Array])

    def is_constant(self, op: Op) -> bool:
        """Whether an op depends on no input; every op of the model is looked at once."""
        stack = [op]
        while stack:
            top = stack[-1]
            pending = [x for x in top.operands if x.digest not in self.known]
            if pending and top.digest not in self.known:
                stack += pending
                continue
            own = not isinstance(top, Input) and not top.symbols
            self.known[top.digest] = own and all(self.known[x.digest] for x in top.operands)
            stack.pop()
        return self.known[op.digest]

    def value(self, op: Op) -> Array | None:
        """The value of a constant op whose computation stays below the limit, else None."""
        if op in self.values:
            return self.values[op]
        if not op.type.capacity:
            return np.zeros(op.type.room, op.dtype.numpy)
        if not self.is_constant(op) or op.type.nbytes > LIMIT:
            return None
        pending, known = self._pending(op)
        if not isinstance(op, Constant):
            computed = [x for x in pending if not isinstance(x, Constant)]
            if sum(x.type.nbytes for x in computed) > LIMIT or sum(map(work, computed)) > WORK:
                return None
        (found,) = evaluate_ops((op,), known)
        self.values[op] = found
        return found

    def _pending(self, op: Op) -> tuple[list[Op], dict[Op, Array]]:
        """The ops that have to be computed for one, and the values that they start from."""
        pending: dict[Op, None] = {}
        known: dict[Op, Array] = {}
        stack = [op]
        while stack:
            top = stack.pop()
            if top in self.values:
                known[top] = self.values[top]
            elif top not in pending:
                pending[top] = None
                stack += top.operands
        return list(pending), known


def work(op: Op) -> int:
    """Points that the loops of an op visit."""
    if (whole := op.expansion) is not None:
        return sum(map(work, toposort((whole,), op.operands)))
    nests = () if isinstance(op, Constant) else op.kernel.nests
    return sum(math.prod(a.extent for a in nest.axes) for nest in nests)
