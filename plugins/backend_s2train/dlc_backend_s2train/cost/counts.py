"""What instructions read and write, from their operands: every operand once, re-reads by tiling apart.

The figures depend neither on the schedule nor on how the array cuts an instruction up, so they compare programs: what
fusion leaves of the traffic of an unfused program. An operand that is updated counts on both sides.
Source: read/write counter of the S2Train compiler, section 5.5, whose updates count weights as read and gradients as
written; here they read both and write the weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dlc_backend_s2train.codes import Role, Slot, Stage
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.isa.forms import Way
from dlc_backend_s2train.program import Instruction, Program


class Kind(Enum):
    """A class of operands; the value is its name in facts."""

    FEATURES = "features"
    """Inputs, results, gradients of both, masks, pointers, sums that are not complete."""
    GRADIENTS = "weight_gradients"
    WEIGHTS = "weights"
    """With parameters and statistics of norms."""
    STATES = "states"
    """What an optimizer keeps."""


KIND_OF: Final[Mapping[Role, Kind]] = dict.fromkeys(Role, Kind.FEATURES) | {
    Role.WEIGHT_GRADIENT: Kind.GRADIENTS,
    Role.WEIGHT: Kind.WEIGHTS,
    Role.NORM: Kind.WEIGHTS,
    Role.STATE: Kind.STATES,
}


@dataclass(frozen=True)
class Touched:
    """Elements and bytes of the operands of one or more instructions."""

    read: int = 0
    """Elements."""
    written: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def __add__(self, other: Touched) -> Touched:
        """Both together."""
        return Touched(
            self.read + other.read,
            self.written + other.written,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read_bytes + self.written_bytes


def touched(program: Program, instruction: Instruction, without: Collection[Slot] = ()) -> Touched:
    """What one instruction of `program` reads and writes, operands `without` left out. Raises DlcError."""
    total = Touched()
    for slot, (way, number) in operands_of(program, instruction).items():
        if slot not in without:
            count, size = _amount(program, instruction, slot, number)
            total += _touch(way, count, size)
    return total


def by_kind(program: Program, begin: int = 0, end: int | None = None) -> dict[Kind, Touched]:
    """What instructions `begin` to before `end` read and write, by what it is. Raises DlcError."""
    found = dict.fromkeys(Kind, Touched())
    for instruction in program.instructions[begin:end]:
        for slot, (way, number) in operands_of(program, instruction).items():
            kind = KIND_OF[program.tensors[number].role]
            found[kind] += _touch(way, *_amount(program, instruction, slot, number))
    return found


def traffic_of(program: Program, begin: int = 0, end: int | None = None) -> Touched:
    """The sum over instructions `begin` to before `end`. Raises DlcError."""
    return sum((touched(program, i) for i in program.instructions[begin:end]), Touched())


def _touch(way: Way, count: int, size: int) -> Touched:
    read, written = way != "write", way != "read"
    return Touched(count * read, count * written, size * read, size * written)


def amount(program: Program, instruction: Instruction, slot: Slot) -> tuple[int, int]:
    """(elements, bytes) of the samples and channels of an operand that the instruction touches."""
    return _amount(program, instruction, slot, instruction.operands[slot])


def _amount(program: Program, instruction: Instruction, slot: str, number: int) -> tuple[int, int]:
    tensor = program.tensors[number]
    count = tensor.count
    if instruction.geometry is not None:
        g = program.geometries[instruction.geometry]
        gradient = instruction.product is Stage.WEIGHT_GRADIENT
        if slot in (("src0", "src1") if gradient else _SAMPLED):
            count = _share(count, tensor.shape, 0, g.samples)
        if slot == ("src1" if gradient else "src0"):
            count = _share(count, tensor.shape, 1, g.channels)
    return count, (count * tensor.element.bits + 7) // 8


_SAMPLED: frozenset[str] = frozenset(("src0", "dst0", "dst1", "mask", "ptr", "res", "aux"))
"""Operands whose first dimension counts samples, but for weight gradients."""


def _share(count: int, shape: tuple[int, ...], axis: int, part: tuple[int, int]) -> int:
    """`count` cut to `part` of an axis; a part outside the shape, which verification refuses, changes nothing."""
    if part == (0, 0) or len(shape) <= axis or not 0 <= part[0] < part[1] <= shape[axis]:
        return count
    return count // shape[axis] * (part[1] - part[0])
