"""A plan of instructions becomes a `Program`: tensors, storages, tables, entries, first values of weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.graph import Constant, Input, Op, Tensor
from dlc.plan import Plan, results_of
from dlc.types import Array
from dlc_backend_s2train.instruction import (
    S2Instruction,
    element_of,
    flags_of,
    geometry_of,
    hyper_of,
    opcode_of,
    role_of,
    slot_of,
    splitting_of,
)
from dlc_backend_s2train.program import (
    Arena,
    Element,
    Entry,
    Geometry,
    Hyper,
    Instruction,
    Program,
    Role,
    Slot,
    Storage,
)
from dlc_backend_s2train.program import Tensor as View

ALIGN = 64
"""Bytes that every address is a multiple of."""
_ELEMENTS: Mapping[str, Element] = {"f16": Element.FP16, "f32": Element.FP32, "i32": Element.INT32}
_ARENAS: Mapping[Role, Arena] = {
    Role.FEATURE_GRADIENT: Arena.FEATURE_GRADIENTS,
    Role.WEIGHT_GRADIENT: Arena.WEIGHT_GRADIENTS,
    Role.PARTIAL: Arena.FEATURES,
}
_INPUTS: Mapping[str, Role] = {"data": Role.INPUT, "label": Role.LABEL, "weight": Role.WEIGHT, "state": Role.STATE}


@dataclass
class _Emitter:
    """What is there so far."""

    plan: Plan
    entry: str
    tensors: list[View] = field(default_factory=list[View])
    storages: list[Storage] = field(default_factory=list[Storage])
    geometries: list[Geometry] = field(default_factory=list[Geometry])
    hypers: list[Hyper] = field(default_factory=list[Hyper])
    weights: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _place: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of a value → its storage."""
    _views: dict[View, int] = field(default_factory=dict[View, int])
    _kinds: dict[str, tuple[Element, Role, str]] = field(default_factory=dict[str, tuple[Element, Role, str]])
    """Digest of a value → how it is stored, what it is, its name."""

    def run(self) -> Program:
        plan, count = self.plan, len(self.plan.steps)
        inputs = plan.graph.inputs
        over = {plan.graph.outputs[i].digest: inputs[j].digest for i, j in plan.graph.aliases}
        names = dict(zip((o.digest for o in plan.graph.outputs), plan.graph.names, strict=True))
        for k, step in enumerate(plan.steps):
            self._know(step, k, names)
        address = self._fixed([*inputs, *plan.constants], count)
        for digest in over:
            self._place[digest] = self._place[over[digest]]
        outputs = [o for o in plan.graph.outputs if o.digest not in over]
        for op in outputs:
            address = self._store(op, Arena.HOST, address, 0, count)
        self._planned(-(-address // ALIGN) * ALIGN)
        instructions = tuple(self._instruction(step) for step in plan.steps)
        ends = [(names[o.digest], self._whole(o)) for o in outputs]
        data = [(i.name, self._whole(i)) for i in inputs if i.role == "data"]
        labels = [(i.name, self._whole(i)) for i in inputs if i.role == "label"]
        entry = Entry(self.entry, 0, count, tuple(data), tuple(labels), tuple(ends))
        tables = tuple(self.tensors), tuple(self.storages), tuple(self.geometries), tuple(self.hypers)
        return Program(*tables, instructions, (entry,), self.weights)

    def _know(self, step: Op, number: int, names: Mapping[str, str]) -> None:
        assert isinstance(step, S2Instruction), "the pass s2-select makes nothing else"
        origin = ", ".join(self.plan.graph.origin(step)) or f"{step.opcode} {number}"
        for value, (slot, element, _, role, _) in zip(results_of(step), step.writes, strict=True):
            name = names.get(value.digest) or (origin if slot == "dst0" else f"{origin} {slot}")
            self._kinds[value.digest] = element_of(element), role_of(role), name

    def _fixed(self, ops: list[Op], count: int) -> int:
        """Weights, states and constants from address 0, then what the host gives; the address behind them."""
        address = 0
        given = [op for op in ops if isinstance(op, Input) and op.role in ("data", "label")]
        for op in (*(op for op in ops if op not in given), *given):
            role = _INPUTS[op.role] if isinstance(op, Input) else Role.WEIGHT
            if op.type.shape[:1] == (4,) and op.type.rank == 2 and self._is_norm(op):
                role = Role.NORM
            name = op.name if isinstance(op, Input | Constant) and op.name else f"constant {len(self.storages)}"
            self._kinds[op.digest] = _ELEMENTS[op.dtype.name], role, name
            arena = Arena.HOST if op in given else Arena.WEIGHTS
            address = self._store(op, arena, address, 0, count)
            if (value := _initial(op)) is not None:
                self.weights[self._place[op.digest]] = value.tobytes()
        return address

    def _is_norm(self, op: Op) -> bool:
        steps = (s for s in self.plan.steps if isinstance(s, S2Instruction))
        return any(x == op and r[0] in ("bn0", "bn1") for s in steps for x, r in zip(s.args, s.reads, strict=True))

    def _store(self, op: Op, arena: Arena, address: int, begin: int, end: int) -> int:
        """A storage of its own; the next free address."""
        self._place[op.digest] = len(self.storages)
        self.storages.append(Storage(arena, address, op.type.nbytes, begin, end))
        return address + -(-op.type.nbytes // ALIGN) * ALIGN

    def _planned(self, base: int) -> None:
        """The values in between, where the planner put them; one that takes over another's place is that storage."""
        last, slots = self.plan.last_uses, self.plan.slots
        for k, step in enumerate(self.plan.steps):
            results = results_of(step)
            over = {results[r].digest: step.operands[x].digest for x, r in step.overwrites()}
            for value in results:
                if (slot := slots.get(value.digest)) is None:
                    continue
                _, role, _ = self._kinds[value.digest]
                end = last.get(value.digest, k) + 1
                before = over.get(value.digest, "")
                if before in slots and slots[before] == slot:
                    self._place[value.digest] = number = self._place[before]
                    self.storages[number] = replace(self.storages[number], end=end)
                    continue
                self._place[value.digest] = len(self.storages)
                self.storages.append(Storage(_ARENAS.get(role, Arena.FEATURES), base + slot.offset, slot.size, k, end))

    def _instruction(self, step: Op) -> Instruction:
        assert isinstance(step, S2Instruction)
        operands: dict[Slot, int] = {}
        for arg, (slot, shape, offset) in zip(step.args, step.reads, strict=True):
            operands[slot_of(slot)] = self._view(arg, shape, offset)
        for value, (slot, _, shape, _, offset) in zip(results_of(step), step.writes, strict=True):
            operands[slot_of(slot)] = self._view(value, shape, offset)
        opcode, stage = opcode_of(step)
        geometry, hyper = geometry_of(step.geometry), hyper_of(step.hyper)
        return Instruction(
            opcode,
            stage,
            flags_of(step),
            splitting_of(step),
            None if geometry is None else _number(self.geometries, geometry),
            None if hyper is None else _number(self.hypers, hyper),
            operands,
        )

    def _view(self, value: Op, shape: tuple[int, ...], offset: int) -> int:
        element, role, name = self._kinds[value.digest]
        view = View(name, self._place[value.digest], shape, element, role, offset)
        if view not in self._views:
            self._views[view] = len(self.tensors)
            self.tensors.append(view)
        return self._views[view]

    def _whole(self, value: Op) -> int:
        return self._view(value, value.type.shape, 0)


def _number(table: list[Geometry] | list[Hyper], entry: Geometry | Hyper) -> int:
    """The number of an entry in a table without duplicates."""
    rows: list[Geometry | Hyper] = table  # type: ignore[assignment]
    if entry not in rows:
        rows.append(entry)
    return rows.index(entry)


def _initial(op: Op) -> Array | None:
    match op:
        case Constant(tensor=tensor):
            return tensor.array()
        case Input(initial=Tensor() as tensor):
            return tensor.array()
        case Input(initial=float() | int() as value) if value:
            return np.full(op.shape, value, op.dtype.numpy)
        case _:
            return None


def program_of(plan: Plan, entry: str) -> Program:
    """The program of a plan of instructions, with one entry."""
    return _Emitter(plan, entry).run()
