"""Which bytes of which storage an instruction touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dlc_backend_s2train.checks.shapes import Wanted
from dlc_backend_s2train.codes import Flag, Opcode, Slot
from dlc_backend_s2train.program import Instruction, Program

_BY_SAMPLE: Final = frozenset((Opcode.CONV, Opcode.LINEAR, Opcode.ELTWISE, Opcode.POOL))
"""Opcodes that work on some samples of their operands."""


@dataclass(frozen=True)
class Bytes:
    """`begin` to before `end` of a storage."""

    storage: int
    begin: int
    end: int

    def meets(self, other: Bytes) -> bool:
        """Whether some byte belongs to both."""
        return self.storage == other.storage and self.begin < other.end and other.begin < self.end


def whole(program: Program, number: int) -> Bytes:
    """All bytes of a tensor."""
    tensor = program.tensors[number]
    return Bytes(tensor.storage, tensor.offset, tensor.offset + tensor.nbytes)


def samples_of(program: Program, instruction: Instruction) -> tuple[int, int] | None:
    """The samples that an instruction works on; None: all."""
    if instruction.geometry is None:
        return None
    samples = program.geometries[instruction.geometry].samples
    return None if samples == (0, 0) else samples


def touched(program: Program, instruction: Instruction, slot: Slot, wanted: Mapping[Slot, Wanted]) -> Bytes:
    """The bytes of an operand that the instruction touches."""
    tensor = program.tensors[instruction.operands[slot]]
    begin, end = 0, tensor.nbytes
    samples = samples_of(program, instruction)
    if samples and slot in wanted and wanted[slot].sampled and tensor.shape:
        each = tensor.count // tensor.shape[0] * tensor.element.bits
        begin, end = samples[0] * each // 8, min((samples[1] * each + 7) // 8, end)
    return Bytes(tensor.storage, tensor.offset + begin, tensor.offset + end)


def sample_problems(program: Program, instruction: Instruction, wanted: Mapping[Slot, Wanted]) -> Iterator[str]:
    """What keeps an instruction from working on the samples that its geometry names."""
    samples = samples_of(program, instruction)
    if instruction.geometry is None or samples is None:
        return
    n = program.geometries[instruction.geometry].n
    if instruction.opcode not in _BY_SAMPLE or instruction.flags & (Flag.BN_TRAIN | Flag.SOFTMAX_CE):
        yield f"it works on whole batches, but its geometry names the samples {samples[0]} to {samples[1]}"
        return
    if not 0 <= samples[0] < samples[1] <= n:
        yield f"its geometry names the samples {samples[0]} to {samples[1]} of {n}"
        return
    for slot, number in instruction.operands.items():
        if slot in wanted and wanted[slot].sampled:
            tensor = program.tensors[number]
            if tensor.shape[:1] != (n,):
                yield f"it works on some of {n} samples, but {slot} has the shape {list(tensor.shape)}"
            elif samples[0] * (tensor.count // n) * tensor.element.bits % 8:
                yield f"sample {samples[0]} of {slot} begins inside a byte"
