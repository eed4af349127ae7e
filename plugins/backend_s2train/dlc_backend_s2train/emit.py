"""A plan of instructions becomes a `Program`: tensors, storages, tables, entries, first values of weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from dlc.api.backend import Reason
from dlc.api.plan import Plan, results_of
from dlc.base.types import Array
from dlc.graph import Constant, Input, Op, Tensor
from dlc_backend_s2train.codes import Arena, Element, Role, Slot
from dlc_backend_s2train.instruction import (
    S2Host,
    S2Instruction,
    copied_runs,
    element_of,
    flags_of,
    geometry_of,
    hyper_of,
    opcode_of,
    role_of,
    sample_parts,
    slot_of,
    splitting_of,
)
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Entry, Function, Geometry, Hyper, Instruction, Program, Storage
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
    """What is there so far: tables, and what stays in memory from one entry to the next."""

    tensors: list[View] = field(default_factory=list[View])
    storages: list[Storage] = field(default_factory=list[Storage])
    geometries: list[Geometry] = field(default_factory=list[Geometry])
    hypers: list[Hyper] = field(default_factory=list[Hyper])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    functions: list[Function] = field(default_factory=list[Function])
    weights: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _views: dict[View, int] = field(default_factory=dict[View, int])
    _fixed: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of an input or constant → its storage."""
    _kinds: dict[str, tuple[Element, Role, str]] = field(default_factory=dict[str, tuple[Element, Role, str]])
    """Digest of a value → how it is stored, what it is, its name."""
    _place: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of a value of the entry at hand → its storage."""

    def program(self, plans: Mapping[str, Plan]) -> Program:
        count = sum(len(_parts(step)) for plan in plans.values() for step in plan.steps)
        address = 0
        for stays in (True, False):
            for plan in plans.values():
                address = self._inputs(plan, address, count, stays)
        for name, plan in plans.items():
            address = self._results(name, plan, address, count)
        entries = [self._entry(name, plan, address) for name, plan in plans.items()]
        tables = tuple(self.tensors), tuple(self.storages), tuple(self.geometries), tuple(self.hypers)
        functions = tuple(self.functions)
        return Program(*tables, tuple(self.instructions), tuple(entries), self.weights, functions=functions)

    # ---- what stays ----
    def _inputs(self, plan: Plan, address: int, count: int, stays: bool) -> int:
        """Weights, states and constants, or what the host gives; the address behind them."""
        norms = _norms(plan)
        for op in (*plan.graph.inputs, *plan.constants):
            given = isinstance(op, Input) and op.role in ("data", "label")
            if given is stays or op.digest in self._fixed:
                continue
            role = _INPUTS[op.role] if isinstance(op, Input) else Role.WEIGHT
            role = Role.NORM if op.digest in norms else role
            name = op.name if isinstance(op, Input | Constant) and op.name else f"constant {len(self.storages)}"
            self._kinds[op.digest] = _ELEMENTS[op.dtype.name], role, name
            self._fixed[op.digest] = len(self.storages)
            address = self._store(op, Arena.HOST if given else Arena.WEIGHTS, address, count)
            if (value := _initial(op)) is not None:
                self.weights[self._fixed[op.digest]] = value.tobytes()
        return address

    def _results(self, entry: str, plan: Plan, address: int, count: int) -> int:
        """What the host gets from an entry."""
        over = {plan.graph.outputs[i].digest for i, _ in plan.graph.aliases}
        for op in dict.fromkeys(plan.graph.outputs):
            if op.digest not in over:
                self._fixed[f"{entry} {op.digest}"] = len(self.storages)
                address = self._store(op, Arena.HOST, address, count)
        return address

    def _store(self, op: Op, arena: Arena, address: int, count: int) -> int:
        """A storage for as long as the program runs; the next free address."""
        self.storages.append(Storage(arena, address, op.type.nbytes, 0, count))
        return address + -(-op.type.nbytes // ALIGN) * ALIGN

    # ---- one entry ----
    def _entry(self, name: str, plan: Plan, base: int) -> Entry:
        begin, inputs = len(self.instructions), plan.graph.inputs
        named = list(zip(plan.graph.names, plan.graph.outputs, strict=True))
        names = {o.digest: name for name, o in reversed(named)}
        self._place = dict(self._fixed)
        for k, step in enumerate(plan.steps):
            self._know(plan, step, k, names)
        over = {plan.graph.outputs[i].digest: inputs[j].digest for i, j in plan.graph.aliases}
        for digest in names:
            self._place[digest] = self._fixed[over.get(digest, f"{name} {digest}")]
        self._planned(plan, base, begin)
        self.instructions += [i for step in plan.steps for i in self._several(step)]
        ends = [(name, self._whole(o)) for name, o in named if o.digest not in over]
        data = [(i.name, self._whole(i)) for i in inputs if i.role == "data"]
        labels = [(i.name, self._whole(i)) for i in inputs if i.role == "label"]
        return Entry(name, begin, len(self.instructions), tuple(data), tuple(labels), tuple(ends))

    def _know(self, plan: Plan, step: Op, number: int, names: Mapping[str, str]) -> None:
        assert isinstance(step, S2Instruction | S2Host), "the pass s2-select makes nothing else"
        origin = ", ".join(plan.graph.origin(step))
        if isinstance(step, S2Host):
            for k, value in enumerate(results_of(step)):
                name = names.get(value.digest) or f"{origin or f'host {number}'}{f' {k}' if k else ''}"
                self._kinds[value.digest] = _ELEMENTS[value.dtype.name], Role.ACTIVATION, name
            return
        origin = origin or f"{step.opcode} {number}"
        for value, (slot, element, _, role, _) in zip(results_of(step), step.writes, strict=True):
            name = names.get(value.digest) or (origin if slot == "dst0" else f"{origin} {slot}")
            self._kinds[value.digest] = element_of(element), role_of(role), name

    def _planned(self, plan: Plan, base: int, begin: int) -> None:
        """The values in between, where the planner put them; one that takes over another's place is that storage."""
        last, slots = plan.last_uses, plan.slots
        # Instructions that steps become lie side by side: the first of each step, and the one behind them all.
        firsts = list(accumulate((len(_parts(step)) for step in plan.steps), initial=begin))
        for k, step in enumerate(plan.steps):
            results = results_of(step)
            over = [(results[r].digest, step.operands[x].digest) for x, r in step.overwrites()]
            for value in results:
                if (slot := slots.get(value.digest)) is None:
                    continue
                _, role, _ = self._kinds[value.digest]
                end = firsts[last.get(value.digest, k) + 1]
                taken = [before for result, before in over if result == value.digest and slots.get(before) == slot]
                if taken:
                    self._place[value.digest] = number = self._place[taken[0]]
                    self.storages[number] = replace(self.storages[number], end=end)
                    continue
                self._place[value.digest] = len(self.storages)
                arena = _ARENAS.get(role, Arena.FEATURES)
                self.storages.append(Storage(arena, base + slot.offset, slot.size, firsts[k], end))

    def _several(self, step: Op) -> list[Instruction]:
        if isinstance(step, S2Host):
            return [self._call(step)]
        assert isinstance(step, S2Instruction)
        if runs := copied_runs(step):
            return [self._copy(step, *run) for run in runs]
        return [i for item in range(step.times) for i in self._of_item(step, item)]

    def _of_item(self, step: S2Instruction, item: int) -> list[Instruction]:
        """The instructions of one of the items that a step works on; most have one."""
        operands: dict[Slot, int] = {}
        for arg, (slot, shape, offset) in zip(step.args, step.reads, strict=True):
            operands[slot_of(slot)] = self._view(arg, shape, offset, item)
        for value, (slot, _, shape, _, offset) in zip(results_of(step), step.writes, strict=True):
            operands[slot_of(slot)] = self._view(value, shape, offset, item)
        opcode, stage = opcode_of(step)
        hyper = hyper_of(step.hyper)
        return [
            Instruction(
                opcode,
                stage,
                flags_of(step),
                splitting_of(step),
                None if geometry is None else _number(self.geometries, geometry),
                None if hyper is None else _number(self.hypers, hyper),
                operands,
            )
            for geometry in _geometries(step)
        ]

    def _call(self, step: S2Host) -> Instruction:
        """The call of a host function, which is this step's own."""
        reads = (self._view(arg, shape, offset) for arg, (shape, offset) in zip(step.args, step.reads, strict=True))
        self.functions.append(Function(step.text, tuple(reads), tuple(map(self._whole, results_of(step)))))
        return Instruction(Opcode.HOST, function=len(self.functions) - 1)

    def _copy(self, step: S2Instruction, arg: Op, shape: tuple[int, ...], offset: int, into: int) -> Instruction:
        """The copy of one run of several, to byte `into` of the result."""
        (value,) = results_of(step)
        operands: dict[Slot, int] = {"src0": self._view(arg, shape, offset), "dst0": self._view(value, shape, into)}
        return Instruction(*opcode_of(step), operands=operands)

    def _view(self, value: Op, shape: tuple[int, ...], offset: int, item: int = 0) -> int:
        element, role, name = self._kinds[value.digest]
        offset += item * math.prod(shape) * element.bits // 8
        view = View(name, self._place[value.digest], shape, element, role, offset)
        if view not in self._views:
            self._views[view] = len(self.tensors)
            self.tensors.append(view)
        return self._views[view]

    def _whole(self, value: Op) -> int:
        return self._view(value, value.type.shape, 0)


def _parts(step: Op) -> tuple[Geometry | None, ...]:
    """The geometries of the instructions that a step becomes."""
    if isinstance(step, S2Host):
        return (None,)
    assert isinstance(step, S2Instruction)
    if runs := copied_runs(step):
        return (None,) * len(runs)
    return _geometries(step) * step.times


def _geometries(step: S2Instruction) -> tuple[Geometry | None, ...]:
    """Those of the instructions on one item."""
    found = sample_parts(step)
    return (geometry_of(step.geometry),) if isinstance(found, Reason) else found


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


def _norms(plan: Plan) -> set[str]:
    """Digests of the parameters that the unit behind the array reads."""
    steps = (s for s in plan.steps if isinstance(s, S2Instruction))
    return {x.digest for s in steps for x, r in zip(s.args, s.reads, strict=True) if r[0] in ("bn0", "bn1")}


def program_of(plans: Mapping[str, Plan]) -> Program:
    """The program with an entry for each of these plans, by name; weights and states are theirs together."""
    return _Emitter().program(plans)
