"""`Scan` and `Loop`: a graph is run again and again, and hands values on from one iteration to the next.

A scan knows how often. A loop ends at a count or a condition of run time; one with neither never ends, as in C.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.base.types import Array, Type, i64
from dlc.graph.bodies import CONDITION, COUNTER, Region, Run, called, check_first, check_inputs, truth
from dlc.graph.bodies import scalar_of as check_scalar
from dlc.graph.derivative import Refused
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.scan_gradient import scan_vjp
from dlc.kernel.define import ShapeError


class Scan(Region):
    """c…, y[t]… = body(t, c…, x[t]…, captured…) for t = 0 … steps - 1; the results are the last c and all rows y.

    Where `stored`, there is one more result for each carried value: what it was before each iteration, as the gradient
    needs it.
    """

    carried: tuple[Op, ...]
    scanned: tuple[Op, ...]
    """Read row by row along their first dimension, of `steps` rows."""
    captured: tuple[Op, ...]
    body: Graph
    steps: int
    stored: bool = False

    def derive_types(self) -> tuple[Type, ...]:
        if self.steps < 0:
            raise ShapeError(f"{self.steps} iterations")
        for x in self.scanned:
            if not x.shape or x.shape[0] != self.steps:
                raise ShapeError(f"{x.type} has not {self.steps} rows")
        handed = [c.type for c in self.carried]
        rows = [Type(x.dtype, x.shape[1:]) for x in self.scanned]
        check_inputs("body", self.body, [COUNTER, *handed, *rows, *(v.type for v in self.captured)])
        found = (*handed, *(self._all(row) for row in check_first("body", self.body, handed)))
        if not found:
            raise ShapeError("the body gives nothing")
        return (*found, *(self._all(c) for c in handed)) if self.stored else found

    def _all(self, row: Type) -> Type:
        return Type(row.dtype, (self.steps, *row.shape))

    def evaluate_by(self, run: Run, *args: Array) -> tuple[Array, ...]:
        count = len(self.carried)
        state, scanned = list(args[:count]), args[count : count + len(self.scanned)]
        captured = args[count + len(self.scanned) :]
        results = [np.empty(t.shape, t.dtype.numpy) for t in self.types[count:]]
        for t in range(self.steps):
            before = state
            found = called(self.body, [_number(t), *state, *(x[t] for x in scanned), *captured], run)
            state = found[:count]
            for whole, row in zip(results, (*found[count:], *before * self.stored), strict=True):
                whole[t] = row
        return (*state, *results)

    def for_gradient(self) -> Op:
        """The scan that gives the values before each iteration, too."""
        return (
            self if self.stored else Scan(self.carried, self.scanned, self.captured, self.body, self.steps, stored=True)
        )

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None]:
        """The same number of iterations backward over stored values, adding up what concerns captured ones."""
        return scan_vjp(self, seeds)


class Loop(Region):
    """while again and t < count: again, c… = body(t, c…, captured…); t = t + 1. The results are the last c.

    `again` begins as `condition`. Where `count` is None, nothing but the condition ends the loop.
    """

    count: Op | None
    condition: Op | None
    carried: tuple[Op, ...]
    captured: tuple[Op, ...]
    body: Graph

    def derive_types(self) -> tuple[Type, ...]:
        if self.count is not None:
            check_scalar("the number of iterations", self.count, COUNTER)
        if self.condition is not None:
            check_scalar("the condition", self.condition, CONDITION)
        handed = [c.type for c in self.carried]
        check_inputs("body", self.body, [COUNTER, *handed, *(v.type for v in self.captured)])
        if check_first("body", self.body, [CONDITION, *handed]) or not handed:
            raise ShapeError(f"the body gives {len(self.body.outputs)} results for {len(handed)} carried values")
        return tuple(handed)

    def evaluate_by(self, run: Run, *args: Array) -> tuple[Array, ...]:
        given = list(args)
        count = None if self.count is None else int(np.asarray(given.pop(0)).reshape(()))
        again = self.condition is None or truth(given.pop(0))
        state, captured = given[: len(self.carried)], given[len(self.carried) :]
        t = 0
        while again and (count is None or t < count):
            going, *state = called(self.body, [_number(t), *state, *captured], run)
            again, t = truth(going), t + 1
        return tuple(state)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None]:
        """Refused: the values of all iterations would have to be kept, and nobody knows how many these are."""
        del seeds
        raise Refused(
            "how often it runs is known at run time only, and a gradient needs the values of every iteration",
            "export the loop with a constant number of iterations and no condition on data",
        )


def _number(t: int) -> Array:
    return np.asarray(t, i64.numpy)
