"""What instructions read and write, from their operands: every operand once, re-reads by tiling apart.

The figures depend neither on the schedule nor on how the array cuts an instruction up, so they compare programs: what
fusion leaves of the traffic of an unfused program. An operand that is updated counts on both sides.
Source: read/write counter of the S2Train compiler, section 5.5, whose updates count weights as read and gradients as
written; here they read both and write the weights.

What a program would read and write without fusion comes from the fused program alone:

    conv [bn_forward, relu] (x, w) → y   =   conv (x, w) → a;  eltwise [bn_forward] (a) → b;  eltwise [relu] (b) → y

Without fusion each stage of the unit behind the array is an instruction of its own, and what it hands to the next, here
a and b, is written to memory and read again: fp16, as large as the result, before a pool by the area of its window
larger. Masks, pointers, weights and parameters of norms are read and written once either way. A bias belongs to its
product. What the compiler folded into constants before (a factor into a norm's scale, say) is not unfolded.

So the figures are those of the program that `s2-select{fuse=no}` makes, without making it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from dlc_backend_s2train.codes import Element, Flag, Role, Slot, Splitting, Stage, Way
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.isa.instruction_set import PRODUCTS, THREE_NORMS, Opcode
from dlc_backend_s2train.program import Entry, Instruction, Program


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
    read, written = way.reads, way.writes
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


_BYTES: Final = 2
"""Of an element between two stages."""
_FORWARD: Final = (Flag.ADD, Flag.RELU, Flag.POOL_2 | Flag.POOL_4, Flag.DROPOUT, Flag.SOFTMAX_CE)
"""Stages behind the norm, in the order in which the unit has them."""
_BACKWARD: Final = (Flag.POINTER_READ, Flag.ADD | Flag.ADD_SINGLE, Flag.DROPOUT, Flag.MASK_READ, Flag.BN_BACKWARD)
_COUNTED: Final = Flag.ADD | Flag.ADD_SINGLE | Flag.BN_FORWARD | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2
"""Stages for which a batch may be cut; an instruction without them is whole."""


def unfused_of(program: Program, begin: int = 0, end: int | None = None) -> dict[Kind, Touched]:
    """What instructions `begin` to before `end` of a verified program would read and write if each did one thing.

    Raises:
        DlcError: "bad-instruction".
    """
    found = by_kind(program, begin, end)
    updated = _updated(program)
    for instruction in program.instructions[begin:end]:
        if instruction.stage is Stage.WEIGHT_UPDATE:
            if instruction.opcode in PRODUCTS:
                found[Kind.GRADIENTS] += _between(amount(program, instruction, "dst0")[0])
        elif instruction.stage in (Stage.FORWARD, Stage.BACKWARD) and instruction.opcode in (
            *PRODUCTS,
            Opcode.ELTWISE,
        ):
            one = _Fused(program, instruction, updated)
            found[Kind.FEATURES] += one.features()
            found[Kind.WEIGHTS] += one.weights()
    return found


def fusion_facts(program: Program, entry: Entry) -> dict[str, int]:
    """Bytes of an entry's operands, in all and by kind, with fusion and without. Raises DlcError."""
    found: dict[str, int] = {}
    for side, of in (("traffic", by_kind), ("unfused", unfused_of)):
        kinds = of(program, entry.begin, entry.end)
        found[f"{side}_bytes"] = sum(touched.bytes for touched in kinds.values())
        found |= {f"{side}_{kind.value}_bytes": touched.bytes for kind, touched in kinds.items()}
    return found


def _between(count: int, written: int = 1, read: int = 1) -> Touched:
    """A value of fp16 that goes to memory and comes back, so often."""
    return Touched(count * read, count * written, _BYTES * count * read, _BYTES * count * written)


@dataclass(frozen=True)
class _Fused:
    """A product, or the unit behind the array alone, with its stages."""

    program: Program
    of: Instruction
    updated: Set[int]
    """Storages that training moves."""

    def features(self) -> Touched:
        """What its stages hand to each other."""
        flags, (last, _) = self.of.flags, amount(self.program, self.of, "dst0")
        area = 16 if Flag.POOL_4 in flags else 4 if Flag.POOL_2 in flags else 1
        first, pools = last, _FORWARD[2] if self.of.stage is Stage.FORWARD else _BACKWARD[0]
        if flags & pools:
            first = last * area if self.of.stage is Stage.FORWARD else last // area
        stages = self._stages()
        # What stands before the pool, the first of its stages included; the last one's result is the instruction's.
        before = next((k for k, stage in enumerate(stages) if stage & pools), len(stages))
        counts = [first if k < before else last for k in range(len(stages) - 1)]
        found = sum(map(_between, counts), Touched())
        if self._left_over:
            # The product's own result takes the place of the sum that it left to the unit, in fp32.
            count, size = amount(self.program, self.of, "src0")
            found += Touched(-count, -count, -size, -size)
        if Flag.BN_BACKWARD_2 in flags:
            found += _between(last, written=0)
        elif "dst1" in self.of.operands and Flag.BN_BACKWARD in flags and Flag.BN_TRAIN not in flags and counts:
            # What the norm reads goes to memory as it is.
            found += _between(last, written=-1, read=0)
        return found

    def weights(self) -> Touched:
        """A product that is not counted reads its weights once, whatever its stages' batches are cut in.

        Without fusion gradients before norms are stored, so that no sum reads the parameters of one.
        """
        found = Touched()
        if Flag.ADD_SINGLE in self.of.flags:
            count, size = amount(self.program, self.of, "aux" if THREE_NORMS in self.of.flags else "bn1")
            found += Touched(read=-count, read_bytes=-size)
        number = self.of.geometry
        if number is None or self.of.opcode not in PRODUCTS or not self.of.flags & _COUNTED or self._biased:
            return found
        count, size = amount(self.program, self.of, "src1")
        again = self.program.geometries[number].samples[0] > 0
        return found + Touched(read=-count, read_bytes=-size) if again else found

    def _stages(self) -> list[Flag]:
        """The instructions that it would be, by their flags; none: a product."""
        flags = self.of.flags
        product = self.of.opcode in PRODUCTS or self._left_over
        found = [Flag(0)] if product else []
        if self.of.stage is Stage.BACKWARD:
            return found + [flags & stage for stage in _BACKWARD if flags & stage]
        norm = flags & (Flag.BN_FORWARD | Flag.BN_TRAIN)
        found += [norm] if norm and not (product and self._biased) else []
        return found + [flags & stage for stage in _FORWARD if flags & stage]

    @property
    def _left_over(self) -> bool:
        """Whether the unit ends a product that is a sum over several."""
        source = self.of.operands.get("src0")
        return (
            self.of.opcode is Opcode.ELTWISE
            and source is not None
            and self.program.tensors[source].role is Role.PARTIAL
            and Splitting.ACCUMULATE_OUT not in self.of.splitting
        )

    @property
    def _biased(self) -> bool:
        """Whether what stands as a norm behind a product is its bias: a mean of 0, 1/std of 1, a scale of 1, a shift.

        A norm that was never trained has such numbers too, but its shift is 0 and stays so.
        """
        number = self.of.operands.get("bn0")
        if Flag.BN_FORWARD not in self.of.flags or number is None or "bn1" in self.of.operands:
            return False
        tensor = self.program.tensors[number]
        held = self.program.weights.get(tensor.storage, b"")[tensor.offset : tensor.offset + tensor.nbytes]
        if tensor.element is not Element.FP16 or len(held) != tensor.nbytes or tensor.count % 4:
            return False
        mean, rstd, scale, shift = np.frombuffer(held, np.float16).reshape(4, -1)
        plain = not mean.any() and bool((rstd == 1).all()) and bool((scale == 1).all())
        return plain and (bool(shift.any()) or tensor.storage in self.updated)


def _updated(program: Program) -> frozenset[int]:
    """Storages that updates write."""
    moved = (
        i.operands["dst0"] for i in program.instructions if i.stage is Stage.WEIGHT_UPDATE and "dst0" in i.operands
    )
    return frozenset(program.tensors[number].storage for number in moved)
