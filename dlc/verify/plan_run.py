"""A plan interpreted: its steps in their order, on memory where its slots say, as a program would run it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlc.api.plan import Plan, results_of
from dlc.base.types import Array
from dlc.graph.bodies import Region
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.walk import as_result, evaluate_ops
from dlc.verify.plan_elements import own_elements


def run_plan(plan: Plan, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a plan by name, for inputs by name; of one without places too, whose values then stand apart.

    A step's results are computed before they are stored, so what a kernel does in place is not seen here. Of a value
    that lies beside others, the elements are stored that its kernel writes.

    Raises:
        KeyError: a step reads what no step before it wrote.
    """
    machine = _Machine(plan, feeds)
    for step in plan.steps:
        machine.run(step)
    return {name: machine.read(o) for name, o in zip(plan.graph.names, plan.graph.outputs, strict=True)}


class _Machine:
    """Inputs and outputs in buffers of their own, constants evaluated, what has a slot in one array of bytes."""

    def __init__(self, plan: Plan, feeds: Mapping[str, Array]) -> None:
        self._plan = plan
        self._regions = {name: np.full(size, 0xFF, np.uint8) for name, size in plan.regions.items()}
        self._apart: dict[str, Array] = {i.digest: as_result(feeds[i.name], i.type) for i in plan.graph.inputs}
        for i in plan.kept:
            self._store(i, self._apart[i.digest])
        self._computed = set(plan.values)

    def run(self, step: Op) -> None:
        args = [self.read(x) for x in step.operands]
        with np.errstate(all="ignore"):
            if isinstance(step, Region):
                values = step.evaluate_by(self._body, *args)
            else:
                found = step.evaluate(*args)
                values = found if len(step.types) > 1 else (found,)
        for op, value in zip(results_of(step), values, strict=True):
            self._store(op, as_result(value, op.type), own_elements(self._plan, op))

    def _body(self, body: Graph, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return run_plan(self._plan.bodies[body.digest], feeds)

    def read(self, op: Op) -> Array:
        if (place := self._place(op)) is not None:
            return place
        if op.digest not in self._apart:
            # Not written yet, or no step: a constant, or a view of what a step computes.
            if op.digest in self._computed:
                raise KeyError(op.digest)
            known = {x: self.read(x) for x in op.operands} if op.runs else {}
            (self._apart[op.digest],) = evaluate_ops((op,), known)
        return self._apart[op.digest]

    def _store(self, op: Op, value: Array, own: Array | None = None) -> None:
        place = self._place(op)
        if place is None:
            self._apart[op.digest] = value
        elif own is None:
            place[...] = value
        else:
            place.reshape(-1)[own] = value.reshape(-1)[own]

    def _place(self, op: Op) -> Array | None:
        slot = self._plan.slots.get(op.digest)
        if slot is None or op.digest in self._plan.outputs:
            return None
        raw = self._regions[slot.region][slot.offset : slot.offset + op.type.nbytes]
        return raw.view(op.dtype.numpy).reshape(op.shape)
