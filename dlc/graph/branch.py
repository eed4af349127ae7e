"""`If`: one of two graphs is run, as a condition at run time says."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.types import Array, Type
from dlc.graph.bodies import CONDITION, Region, Run, body_of, called, check_first, check_inputs, fresh, item, truth
from dlc.graph.bodies import scalar_of as check_scalar
from dlc.graph.gradient import sweep
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Input
from dlc.kernel.define import ShapeError


class If(Region):
    """y… = then(captured…) where the condition is true, otherwise(captured…) where it is not; the other is not run."""

    condition: Op
    captured: tuple[Op, ...]
    then: Graph
    otherwise: Graph

    def derive_types(self) -> tuple[Type, ...]:
        check_scalar("the condition", self.condition, CONDITION)
        for what, body in (("then", self.then), ("otherwise", self.otherwise)):
            check_inputs(what, body, [x.type for x in self.captured])
        types = tuple(o.type for o in self.then.outputs)
        if check_first("otherwise", self.otherwise, types) or not types:
            raise ShapeError(f"branches give {len(types)} and {len(self.otherwise.outputs)} results")
        return types

    def evaluate_by(self, run: Run, *args: Array) -> tuple[Array, ...]:
        condition, *captured = args
        return tuple(called(self.then if truth(condition) else self.otherwise, captured, run))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None]:
        """The cotangents of what each branch reads, of the branch that was run."""
        given = [s for s in seeds if s is not None]
        bodies = [_backward(body, seeds) for body in self.bodies]
        wanted = [x.dtype.is_float for x in self.captured]
        if not any(wanted):
            return [None] * len(self.operands)
        found = If(self.condition, (*self.captured, *given), *bodies)
        numbers = iter(range(len(bodies[0].outputs)))
        return [None, *(item(found, next(numbers)) if use else None for use in wanted)]


def _backward(body: Graph, seeds: Sequence[Op | None]) -> Graph:
    """captured…, dy… → the cotangents of those that are floats."""
    taken = {i.name for i in body.inputs}
    floats = [(y, Input(fresh("d", taken), y.type)) for y, s in zip(body.outputs, seeds, strict=True) if s is not None]
    wrt = [i for i in body.inputs if i.dtype.is_float]
    outputs, inputs = [y for y, _ in floats], [d for _, d in floats]
    found = sweep(outputs, inputs, wrt, body.origins)
    return body_of((*body.inputs, *inputs), found.gradients, found.origins)
