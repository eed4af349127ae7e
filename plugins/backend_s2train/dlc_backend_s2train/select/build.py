"""From groups to a graph of instructions; before that, gradients around residual blocks in one tensor instead of two.

    d = g·scale/std, g   (dst0, dst1)   …   sum + g             →   d alone   …   sum + d·std/scale

The gradient g at the end of a block goes through its last norm and past the block. Where the sum at the block's begin
is made, g comes back out of d: nothing writes it besides. The price is one rounding more. Source: residual addition
with a single line, published control word of the S2Train compiler's post-processing unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlc.base.types import Type, f16, i32
from dlc.graph import Constant, Graph, Input, Item, Op
from dlc.graph.evaluate import is_constant
from dlc_backend_s2train.codes import OPERANDS, Flag, Slot, Stage
from dlc_backend_s2train.decompose.blocks import illegal
from dlc_backend_s2train.instruction import (
    COUNTED,
    Read,
    S2Host,
    S2Instruction,
    Write,
    geometry_values,
    hyper_values,
    names_of,
    packed_type,
)
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.memory import Key
from dlc_backend_s2train.select.selection import Given, Group, Made, Selection


@dataclass
class Builder:
    """Makes ops of groups, operands first."""

    graph: Graph
    """The graph of ops that the groups were selected from."""
    groups: Sequence[Group]
    _made: dict[Key, tuple[Group, int]] = field(default_factory=dict[Key, tuple[Group, int]])
    _done: dict[int, S2Instruction | S2Host] = field(default_factory=dict[int, S2Instruction | S2Host])
    _ops: dict[str, Op] = field(default_factory=dict[str, Op])
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def __post_init__(self) -> None:
        self._ops = {op.digest: op for op in self.graph.ops}
        for group in self.groups:
            for place, made in enumerate(self._writes(group)):
                self._made[made.key] = group, place

    def value(self, given: Key | Op) -> Op:
        """The op of the new graph that a key or a parameter stands for."""
        if isinstance(given, Op):
            return given
        if given in self._made:
            group, place = self._made[given]
            made = self._instruction(group)
            return made if len(made.results) == 1 else Item(made, place)
        return self._outside(self._ops[given])

    def _outside(self, op: Op) -> Op:
        """An input in the device's element type, or a constant."""
        if isinstance(op, Input):
            of = Type(f16 if op.dtype.is_float else i32, op.shape)
            return Input(op.name, of, op.role, allowed=op.allowed)
        assert is_constant(op), f"{op} is computed by no instruction"
        values = memory.known_value(op)
        assert values is not None
        return memory.held(op, memory.half(values, op))

    def _instruction(self, group: Group) -> S2Instruction | S2Host:
        """The op of a group. Never recurses: chains are as deep as networks."""
        stack = [group]
        while stack:
            now = stack[-1]
            if id(now) in self._done:
                stack.pop()
                continue
            missing = [g for g in self._before(now) if id(g) not in self._done]
            if missing:
                stack += missing
                continue
            self._done[id(now)] = op = self._called(now) if now.opcode is Opcode.HOST else self._emitted(now)
            names = dict.fromkeys(name for part in now.origin for name in self.graph.origin(part))
            self.origins[op.digest] = tuple(names)
            stack.pop()
        return self._done[id(group)]

    def _before(self, group: Group) -> list[Group]:
        keys = (g.value for g in (*group.reads.values(), *group.sources) if isinstance(g.value, str))
        return [self._made[k][0] for k in keys if k in self._made]

    def _emitted(self, group: Group) -> S2Instruction:
        reads = [(slot, group.reads[slot]) for slot in OPERANDS if slot in group.reads]
        reads += [("src0", given) for given in group.sources]
        writes = [(slot, group.writes[slot]) for slot in OPERANDS if slot in group.writes]
        given_reads: list[Read] = [(slot, given.shape, given.offset) for slot, given in reads]
        gives: list[Write] = [
            (slot, m.element.name.lower(), m.shape, m.role.name.lower(), m.offset) for slot, m in writes
        ]
        return S2Instruction(
            tuple(self.value(given.value) for _, given in reads),
            opcode=group.opcode.name.lower(),
            stage=group.stage.name.lower(),
            flags=names_of(group.flags),
            geometry=geometry_values(group.geometry) if group.geometry else (),
            hyper=hyper_values(group.hyper) if group.hyper else (),
            reads=tuple(given_reads),
            writes=tuple(gives),
            results=tuple(packed_type(m.element, m.stored) for _, m in writes),
            times=group.times,
        )

    def _called(self, group: Group) -> S2Host:
        return S2Host(
            tuple(self.value(given.value) for given in group.sources),
            group.text,
            tuple((given.shape, given.offset) for given in group.sources),
            tuple(packed_type(made.element, made.shape) for made in group.results),
        )

    @staticmethod
    def _writes(group: Group) -> list[Made]:
        return group.results or [group.writes[slot] for slot in OPERANDS if slot in group.writes]


def built(
    graph: Graph, groups: Sequence[Group], plain: Sequence[tuple[str, Key]], new: Mapping[Input, tuple[str, Key]]
) -> Graph:
    """The graph of instructions.

    Args:
        graph: What the groups were selected from.
        groups: All of them.
        plain: Outputs by name, the loss among them.
        new: Weight or state (as the device holds it) → name and key of what is written over it.
    """
    builder = Builder(graph, groups)
    names = [name for name, _ in plain]
    outputs = [builder.value(k) for _, k in plain]
    held: list[Input] = []
    for place, (name, k) in new.items():
        held.append(place)
        outputs.append(builder.value(k))
        names.append(name)
    given: dict[str, Input] = {}
    for op in Graph((), tuple(outputs), tuple(names)).ops:
        if isinstance(op, Input) and op not in held:
            given[op.name] = op
    order = [given[i.name] for i in graph.inputs if i.name in given]
    order += [i for i in given.values() if i not in order]
    aliases = tuple((len(plain) + k, len(order) + k) for k in range(len(held)))
    origins = {d: names for d, names in builder.origins.items() if names}
    return Graph((*order, *held), tuple(outputs), tuple(names), aliases, origins=origins)


_RANGE: Final = 2.0**6
"""How far scale/std may be from 1, either way: what d loses of fp16's range, g cannot get back."""
_TAKEN: Final = Flag.BN_BACKWARD_2 | Flag.BN_TRAIN
"""With these `dst1` and `bn1` belong to another norm."""


def on_single_lines(work: Selection) -> int:
    """Leave out gradients before norms that only a later sum reads; how many these were."""
    readers: dict[Key, list[tuple[Group, Slot]]] = {}
    for group in work.groups:
        for slot, given in group.reads.items():
            if isinstance(given.value, str):
                readers.setdefault(given.value, []).append((group, slot))
    count = 0
    for group in work.groups:
        before = group.writes.get("dst1")
        if before is None or Flag.BN_BACKWARD not in group.flags or group.flags & _TAKEN:
            continue
        # Its own norm and the sum; an output of the graph would count as well.
        if work.readers[before.key] != 2 or not _divides(norm := group.reads["bn0"]):
            continue
        ((later, slot),) = readers[before.key]
        if slot == "res" and later.stage is Stage.BACKWARD and (place := _place_for_norm(later)):
            later.flags ^= Flag.ADD | Flag.ADD_SINGLE
            later.reads["res"] = Given(group.writes["dst0"].key, later.reads["res"].shape)
            later.reads[place] = norm
            del group.writes["dst1"]
            count += 1
    return count


def _place_for_norm(later: Group) -> Slot | None:
    """Where an instruction can read the norm of its addend; None where it cannot.

    `aux` beside a second norm of its own, which takes whole batches then, and no partial sums.
    """
    if Flag.BN_TRAIN in later.flags:
        return None
    if Flag.BN_BACKWARD_2 not in later.flags:
        return "bn1"
    n, _, *places = later.shape
    whole = "aux" not in later.reads and n * math.prod(places) <= COUNTED
    return "aux" if whole and (later.geometry is None or illegal(later.geometry) is None) else None


def _divides(norm: Given) -> bool:
    """Whether what a norm's backward gave can be divided by scale/std."""
    if not isinstance(norm.value, Constant):
        return False
    _, rstd, scale, _ = norm.value.tensor.array().astype(np.float32)
    factor = np.abs(rstd * scale)
    return bool(((factor >= 1 / _RANGE) & (factor <= _RANGE)).all())
