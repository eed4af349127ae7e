"""Memory as the published compiler counts it, placed by our planner: what compact masks and our order save.

There every tensor is fp16: masks of relu have 16 bits for each element, those of a pool are as large as what it reads.
A tensor lives from the first instruction that touches it to behind the last one; weights and norms lie elsewhere, the
input is planned with the rest, and nothing takes the place of what it is made of. Source: memory planner of the public
S2Train compiler, sections 5.3 and 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.placement import Buffer, Placement, Strategy, check_placement, place
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.program import Flag, Instruction, Program, Role, Tensor

_ELSEWHERE = frozenset((Role.WEIGHT, Role.NORM, Role.STATE, Role.LABEL, Role.LOSS))
"""What the published plans leave out: weights lie in front of the plan, the others are not there."""


@dataclass(frozen=True)
class Life:
    """A tensor of a published plan: its kind, its bytes, and the instructions from `begin` to before `end`."""

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


def lives_of(program: Program) -> list[Life]:
    """The tensors of one of our programs as the published compiler would have them, in the order of first use."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    sizes: dict[int, int] = {}
    kinds: dict[int, str] = {}
    for number, instruction in enumerate(program.instructions):
        for slot in access(instruction):
            index = instruction.operands[slot]
            tensor = program.tensors[index]
            if tensor.role in _ELSEWHERE:
                continue
            value = _value(program, index)
            begins.setdefault(value, number)
            ends[value] = number + 1
            kinds[value] = _kind(tensor)
            sizes[value] = max(sizes.get(value, 0), 2 * tensor.count * _window(instruction, tensor))
    return [Life(kinds[value], begins[value], ends[value], sizes[value]) for value in begins]


def _value(program: Program, index: int) -> int:
    """The first tensor with the same bytes for the same time: views of a value are one tensor there."""
    tensor = program.tensors[index]
    same = (n for n, t in enumerate(program.tensors) if (t.storage, t.name) == (tensor.storage, tensor.name))
    return next(same)


def _kind(tensor: Tensor) -> str:
    match tensor.role:
        case Role.FEATURE_GRADIENT:
            return "FEATURE_GRAD"
        case Role.WEIGHT_GRADIENT:
            return "WEIGHT_GRAD"
        case _:
            return "ACTIVATION"


def _window(instruction: Instruction, tensor: Tensor) -> int:
    """Elements of a full mask for each of ours: a pool's has one for each element that it reads."""
    if tensor.role is not Role.POINTER:
        return 1
    return 16 if Flag.POOL_4 in instruction.flags else 4


def lives_from(rows: Iterable[Sequence[object]]) -> list[Life]:
    """Rows of (kind, begin, end, bytes)."""
    return [Life(str(kind), *(int(str(number)) for number in numbers)) for kind, *numbers in rows]
