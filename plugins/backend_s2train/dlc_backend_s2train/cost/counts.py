"""What instructions read and write, from their operands: every operand once, re-reads by tiling apart.

The figures depend neither on the schedule nor on how the array cuts an instruction up, so they compare programs: what
fusion leaves of the traffic of an unfused program. An operand that is updated counts on both sides.
Source: read/write counter of the S2Train compiler, section 5.5, whose updates count weights as read and gradients as
written; here they read both and write the weights.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.program import Instruction, Program, Slot, Stage


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
    for slot, way in access(instruction).items():
        if slot not in without:
            count, size = _amount(program, instruction, slot)
            total += Touched(read=count, read_bytes=size) if way != "write" else Touched()
            total += Touched(written=count, written_bytes=size) if way != "read" else Touched()
    return total


def traffic_of(program: Program, begin: int = 0, end: int | None = None) -> Touched:
    """The sum over instructions `begin` to before `end`. Raises DlcError."""
    return sum((touched(program, i) for i in program.instructions[begin:end]), Touched())


def part_of(one: Touched, other: Touched) -> Fraction:
    """Bytes of `one`, a fused program, as a part of those of `other`, the same program unfused."""
    return Fraction(one.bytes, other.bytes) if other.bytes else Fraction(1)


def _amount(program: Program, instruction: Instruction, slot: Slot) -> tuple[int, int]:
    """(elements, bytes) of the samples and channels of an operand that the instruction touches."""
    tensor = program.tensors[instruction.operands[slot]]
    count = tensor.count
    if instruction.geometry is not None:
        g = program.geometries[instruction.geometry]
        gradient = instruction.stage is Stage.WEIGHT_GRADIENT
        if slot in (("src0", "src1") if gradient else _SAMPLED):
            count = _share(count, tensor.shape, 0, g.samples)
        if slot == ("src1" if gradient else "src0"):
            count = _share(count, tensor.shape, 1, g.channels)
    return count, (count * tensor.element.bits + 7) // 8


_SAMPLED: frozenset[Slot] = frozenset(("src0", "dst0", "dst1", "mask", "ptr", "res", "aux"))
"""Operands whose first dimension counts samples, but for weight gradients."""


def _share(count: int, shape: tuple[int, ...], axis: int, part: tuple[int, int]) -> int:
    """`count` cut to `part` of an axis; a part outside the shape, which verification refuses, changes nothing."""
    if part == (0, 0) or len(shape) <= axis or not 0 <= part[0] < part[1] <= shape[axis]:
        return count
    return count // shape[axis] * (part[1] - part[0])
