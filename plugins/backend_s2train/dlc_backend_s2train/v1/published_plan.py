"""Order and memory of the published compiler, for our operators: what compact masks and our order save.

Its order is breadth first, each weight updated at once. Beginning with operators that wait for none, an operator that
was taken puts those of its successors that now wait for none behind all others, in the order update, backward, weight
gradient, forward; updates that are ready are taken before everything else.

Its memory is placed by our planner. There every tensor is fp16: masks of relu have 16 bits for each element, those of
a pool are as large as what it reads. A tensor lives from the first operator that touches it to behind the last one;
weights and norms lie elsewhere, the input is planned with the rest, and nothing takes the place of what it is made of.
Gradients of weights are stored.

Sources: scheduler with immediate weight updates, and memory planner, of the public S2Train compiler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlc.placement import Buffer, Placement, Strategy, check_placement, place
from dlc_backend_s2train.codes import Flag, Role, Stage, Way
from dlc_backend_s2train.isa.access import operands_of as touched
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Instruction, Program

Value = tuple[int, str]
"""A tensor of the published compiler: storage and name of ours, since what lies in place of another is one of its own;
of a gradient that nothing stores, the storage of its weight and the place there."""
_RANK: Final = {Stage.WEIGHT_UPDATE: 0, Stage.BACKWARD: 1, Stage.WEIGHT_GRADIENT: 2, Stage.FORWARD: 3}


@dataclass
class Operator:
    """What one instruction computes, or a part of it."""

    stage: Stage
    touches: dict[Value, tuple[Role, int]] = field(default_factory=dict[Value, "tuple[Role, int]"])
    """What it reads or writes: its role, and the elements of a tensor with full masks."""
    after: set[int] = field(default_factory=set[int])
    """Numbers of the operators that it waits for."""


def operators_of(program: Program, begin: int, end: int) -> list[Operator]:
    """The operators of instructions `begin` to before `end`, in their order; a fused update is two."""
    found: list[Operator] = []
    writers: dict[int, list[tuple[int, int, int]]] = {}
    readers: dict[int, list[int]] = {}
    for instruction in program.instructions[begin:end]:
        fused = instruction.product is not instruction.stage
        first = len(found)
        found.append(Operator(instruction.product))
        if fused:
            weight = program.tensors[instruction.operands["dst0"]]
            gradient = {(weight.storage, f"gradient {weight.offset}"): (Role.WEIGHT_GRADIENT, weight.count)}
            found[first].touches |= gradient
            found.append(Operator(Stage.WEIGHT_UPDATE, {**gradient}, {first}))
        for slot, (way, index) in touched(program, instruction).items():
            tensor = program.tensors[index]
            number = len(found) - 1 if fused and slot in ("dst0", "dst1", "aux") else first
            operator = found[number]
            elements = _mask(program, instruction) if slot == "ptr" else 1
            operator.touches[tensor.storage, tensor.name] = tensor.role, tensor.count * elements
            low, high = tensor.offset, tensor.offset + tensor.nbytes
            held = writers.setdefault(tensor.storage, [])
            if way.reads:
                operator.after |= {n for a, b, n in held if a < high and low < b and n != number}
                readers.setdefault(tensor.storage, []).append(number)
            if way.writes:
                writers[tensor.storage] = [w for w in held if w[0] < low or high < w[1]] + [(low, high, number)]
            if way is Way.UPDATE:
                # A weight is updated behind its last reader.
                operator.after |= {n for n in readers[tensor.storage] if n != number}
    return found


def breadth_first(operators: Sequence[Operator]) -> Iterator[int]:
    """Numbers of operators in the published order."""
    waiting = [len(o.after) for o in operators]
    followers: list[list[int]] = [[] for _ in operators]
    for number, operator in enumerate(operators):
        for before in operator.after:
            followers[before].append(number)
    updates = deque[int]()
    others = deque(n for n, count in enumerate(waiting) if not count)
    while updates or others:
        taken = updates.popleft() if updates else others.popleft()
        yield taken
        for number in sorted(followers[taken], key=lambda n: (_RANK[operators[n].stage], n)):
            waiting[number] -= 1
            if not waiting[number]:
                (updates if operators[number].stage is Stage.WEIGHT_UPDATE else others).append(number)


def _mask(program: Program, instruction: Instruction) -> int:
    """Elements of a full mask for each pointer: a pool's has one for each element that it reads."""
    if instruction.opcode is Opcode.POOL and instruction.geometry is not None:
        g = program.geometries[instruction.geometry]
        return -(-g.hi * g.wi // (g.ho * g.wo))
    return 16 if Flag.POOL_4 in instruction.flags else 4


_ELSEWHERE = frozenset((Role.WEIGHT, Role.NORM, Role.STATE, Role.LABEL, Role.LOSS))
"""What the published plans leave out: weights lie in front of the plan, the others are not there."""
_KINDS = {Role.FEATURE_GRADIENT: "FEATURE_GRAD", Role.WEIGHT_GRADIENT: "WEIGHT_GRAD"}
_BYTES = 2
"""Of an element."""


@dataclass(frozen=True)
class Life:
    """A tensor of a published plan: its kind, its bytes, and the operators from `begin` to before `end`."""

    kind: str
    begin: int
    end: int
    size: int


def legacy_plan(lives: Sequence[Life], strategy: Strategy = "greedy") -> Placement:
    """Places for all but weights, without alignment as there; `greedy` is first fit, the largest first.

    Raises:
        ValueError: a negative size, or an empty lifetime.
    """
    planned = [life for life in lives if life.kind != "WEIGHT"]
    buffers = [Buffer(number, life.size, life.begin, life.end) for number, life in enumerate(planned)]
    found = place(buffers, align=1, strategy=strategy)
    wrong = check_placement(buffers, found.offsets, 1)
    assert not wrong, wrong
    return found


def lives_of(operators: Sequence[Operator], order: Iterable[int]) -> list[Life]:
    """The tensors of operators that run in this order, as the published compiler would have them, by first use."""
    found: dict[Value, Life] = {}
    for at, number in enumerate(order):
        for value, (role, elements) in operators[number].touches.items():
            if role not in _ELSEWHERE:
                size = _BYTES * elements
                life = found.get(value) or Life(_KINDS.get(role, "ACTIVATION"), at, at, size)
                found[value] = Life(life.kind, life.begin, at + 1, max(life.size, size))
    return list(found.values())


def lives_from(rows: Iterable[Sequence[object]]) -> list[Life]:
    """Rows of (kind, begin, end, bytes)."""
    return [Life(str(kind), *(int(str(number)) for number in numbers)) for kind, *numbers in rows]


def published_facts(program: Program) -> dict[str, int | str]:
    """A program's training step, or else its first entry, as the published compiler counts it, in bytes.

    `published_peak` is the extent of the plan, `published_bound` the most bytes that live at once in that order.
    """
    entry = next((e for e in program.entries if e.name == "step"), program.entries[0])
    operators = operators_of(program, entry.begin, entry.end)
    found = legacy_plan(lives_of(operators, breadth_first(operators)))
    facts = {"published_peak": found.arena, "published_bound": found.bound, "published_operators": len(operators)}
    return {"published_of": entry.name, **facts}
