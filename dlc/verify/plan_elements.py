"""A plan held against its graph element by element, where values lie between each other in one memory.

The check of all plans (`dlc.verify.plan_check`) knows which value lies where. Which elements of a value are its own is
seen here, on a memory of tags that shares no code with the planners: every part of it holds which element of which
value was last written there, or nothing. Whatever a step reads must be what the graph says: a place that is taken over
too early, a view of the wrong bytes, values beside each other whose parts overlap, and a part that is read beyond its
ends are all seen. Steps write only the elements that their kernels write, and may write over what they read only where
they read each element before they write it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from dlc.api.plan import INPUTS, Plan, Slot, results_of
from dlc.base.types import Array
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.kernel.expr import loads
from dlc.verify.kernel_elements import points, touched, written
from dlc.verify.kernel_places import in_place

MOST_UNITS: Final = 1 << 26
"""Tags of a memory; larger plans are not looked at."""
_NOTHING: Final = -1


def own_elements(plan: Plan, value: Op) -> Array | None:
    """Which elements of a value its step writes, where others lie between these; None: all are its own."""
    step, result = (value.of, value.index) if isinstance(value, Item) else (value, 0)
    return written(step.body, result) if isinstance(step, Call) and value.digest in plan.beside else None


def is_too_large(plan: Plan) -> bool:
    """Whether a plan whose values lie between each other has more memory than is looked at here."""
    return bool(plan.beside) and _Tags(plan).too_many


def wrong_elements(plan: Plan) -> list[str]:
    """Everything that steps find to be wrong, one sentence each.

    Empty for a plan that is right, has no places, or is too large to be looked at (`is_too_large`).
    """
    tags = _Tags(plan)
    return [*tags.run()] if plan.slots and not tags.too_many else []


@dataclass
class _Tags:
    plan: Plan
    regions: dict[str, Array] = field(default_factory=dict[str, Array])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of an input or of what a step gives → its number."""

    @cached_property
    def unit(self) -> int:
        """Bytes that a tag is for."""
        plan = self.plan
        slots = [*plan.slots.values(), *plan.workspaces.values()]
        types = [t for op in plan.graph.ops for t in op.types]
        sizes = [t.dtype.itemsize for t in types] + [s.offset for s in slots] + [s.size for s in slots]
        return max(1, math.gcd(*sizes))

    @property
    def too_many(self) -> bool:
        """Whether the memory has more of them than are looked at."""
        return sum(self.plan.regions.values()) // self.unit > MOST_UNITS

    def run(self) -> Iterator[str]:
        plan, unit = self.plan, self.unit
        self.regions = {name: np.full(-(-n // unit), _NOTHING, np.int64) for name, n in plan.regions.items()}
        for op in (*plan.graph.inputs, *(v for s in plan.steps for v in results_of(s))):
            self.numbers[op.digest] = len(self.numbers)
        for k, op in enumerate(plan.graph.inputs):
            if (name := f"{INPUTS}:{k}") in self.regions:  # as much of it as there is of values
                self.regions[name] = np.full(max(len(self.regions[name]), self._count(op)), _NOTHING, np.int64)
                self.regions[name][: self._count(op)] = self._own(op)
            if op.digest in plan.slots:
                self._memory(plan.slots[op.digest], self._count(op))[:] = self._own(op)
        for number, step in enumerate(plan.steps):
            where = f"step {number} ({', '.join(plan.graph.origin(step)) or step.text_name})"
            yield from (f"{where} {fault}" for fault in self._step(step))

    def _step(self, step: Op) -> Iterator[str]:
        plan = self.plan
        work = plan.workspaces.get(step.digest)
        if work is not None:
            self._memory(work)[:] = _NOTHING
        spans: list[tuple[int, Op, Slot, Array]] = []
        for k, x in enumerate(step.operands):
            slot = self._slot(x)
            if slot is None or not x.type.capacity:
                continue
            wanted = self._expected(x)
            read = self._read(step, k, x) if (wanted == _NOTHING).any() else np.ones(len(wanted), bool)
            spans.append((k, x, slot, read))
            found = self._memory(slot, len(wanted))
            if (bad := read & ((wanted != found) | (wanted == _NOTHING))).any():
                at = slot.offset + int(bad.argmax()) * self.unit
                yield f"does not find operand {k} at byte {at} of {slot.region}"
        results: list[tuple[Slot, Array]] = []
        for r, v in enumerate(results_of(step)):
            slot = None if v.digest in plan.outputs else plan.slots.get(v.digest)
            if slot is None or not v.type.capacity:
                continue
            own = own_elements(plan, v)
            mask = np.ones(self._count(v), bool) if own is None else self._units(own, v)
            for k, x, other, read in spans:
                if _meet(slot, mask, other, read, self.unit) and not (
                    _same_place(slot, other) and in_place(step, k, r)
                ):
                    yield f"writes result {r} over operand {k}, {x.type}, before it has read it"
            for other, taken in results:
                if _meet(slot, mask, other, taken, self.unit):
                    yield f"writes result {r} over another one"
            if work is not None and _meet(slot, mask, work, np.ones(work.size // self.unit, bool), self.unit):
                yield f"works where its result {r} is"
            results.append((slot, mask))
            self._memory(slot, len(mask))[mask] = self._own(v)[mask]

    def _memory(self, slot: Slot, count: int | None = None) -> Array:
        first = slot.offset // self.unit
        return self.regions[slot.region][first : first + (slot.size // self.unit if count is None else count)]

    def _slot(self, op: Op) -> Slot | None:
        """Where a value is that has a place in the memory; what the caller holds has none, unless it is consumed."""
        if op.digest in self.plan.outputs:
            return None
        if isinstance(op, Input) and op.digest not in self.plan.slots:
            name = f"{INPUTS}:{self.plan.graph.inputs.index(op)}"
            return Slot(name, 0, op.type.nbytes) if name in self.regions else None
        return self.plan.slots.get(op.digest)

    def _count(self, op: Op) -> int:
        return op.type.nbytes // self.unit

    def _own(self, op: Op) -> Array:
        return (self.numbers[op.digest] << 32) + np.arange(self._count(op))

    def _units(self, elements: Array, op: Op) -> Array:
        return np.repeat(elements, op.type.dtype.itemsize // self.unit)

    def _expected(self, op: Op) -> Array:
        """The tags of a value, `_NOTHING` for elements that nobody writes; of a view those of what it shows."""
        if op.digest in self.numbers:
            tags, own = self._own(op), own_elements(self.plan, op)
            return tags if own is None else np.where(self._units(own, op), tags, _NOTHING)
        assert isinstance(op, Call)
        size = op.type.dtype.itemsize // self.unit
        found = np.full((op.type.capacity, size), _NOTHING, np.int64)
        given = {p.name: x for p, x in zip(op.body.params, op.args, strict=True)}
        for nest in op.body.nests:
            (load,) = loads(nest.body)
            source = given[load.param]
            own = self._expected(source).reshape(-1, size)
            found[points(nest, nest.index, (), op.shape)] = own[points(nest, load.index, (), source.shape)]
        return found.reshape(-1)

    def _read(self, step: Op, k: int, x: Op) -> Array:
        """Which of its units a step may read of an operand."""
        if not isinstance(step, Call):
            return np.ones(self._count(x), bool)
        return self._units(touched(step.body, step.body.params[k].name, False), x)


def _same_place(one: Slot, other: Slot) -> bool:
    return (one.region, one.offset) == (other.region, other.offset)


def _meet(one: Slot, mask: Array, other: Slot, taken: Array, unit: int) -> bool:
    """Whether units of two places are the same."""
    if one.region != other.region:
        return False
    low = max(one.offset, other.offset)
    high = min(one.offset + len(mask) * unit, other.offset + len(taken) * unit)
    if low >= high:
        return False
    count, a, b = (high - low) // unit, (low - one.offset) // unit, (low - other.offset) // unit
    return bool((mask[a : a + count] & taken[b : b + count]).any())
