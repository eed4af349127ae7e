"""What a word of version 1 says, as an instruction: the inverse of `legalize`, bit by bit and operand by operand.

What words leave out (shapes, hyper-parameters, the other operands, which of two ways of adding or pooling) is taken
from an instruction; everything that words have a bit for comes from the word alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from dlc_backend_s2train.codes import NO_FLAGS, Flag, Opcode, Slot, Splitting, Stage
from dlc_backend_s2train.isa import v1
from dlc_backend_s2train.isa.words import NORMS, OPS, PARTIAL, SLOTS
from dlc_backend_s2train.program import Instruction, Numbered, Program

_ADD: Final = Flag.ADD | Flag.ADD_SINGLE
_POOL: Final = Flag.POOL_2 | Flag.POOL_4
_SAID: Final = {
    Stage.FORWARD: Flag.RELU
    | Flag.MASK_WRITE
    | Flag.ADD
    | Flag.BN_FORWARD
    | _POOL
    | Flag.POINTER_WRITE
    | Flag.SOFTMAX_CE,
    Stage.BACKWARD: Flag.MASK_READ | _ADD | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2 | _POOL | Flag.POINTER_READ,
    Stage.WEIGHT_GRADIENT: NO_FLAGS,
    Stage.WEIGHT_UPDATE: NO_FLAGS,
}
"""Flags that a stage's words have a bit for, though not one each."""
_OPCODES: Final = {op: opcode for opcode, op in OPS.items()}


class Holders:
    """Which tensor a number stands for at an instruction."""

    def __init__(self, numbering: Iterable[Numbered]) -> None:
        self._runs: dict[int, list[Numbered]] = {}
        for entry in sorted(numbering, key=lambda entry: (entry.begin, entry.end)):
            self._runs.setdefault(entry.number, []).append(entry)

    def at(self, instruction: int, number: int) -> int | None:
        """The tensor; None where the number stands for none."""
        runs = self._runs.get(number, [])
        k = bisect_right(runs, instruction, key=lambda entry: entry.begin) - 1
        return runs[k].tensor if k >= 0 and instruction < runs[k].end else None

    def clashes(self) -> Iterator[tuple[Numbered, Numbered]]:
        """Entries of one number that hold at the same time, of neighbours."""
        for runs in self._runs.values():
            yield from ((a, b) for a, b in pairwise(runs) if b.begin < a.end)


def restored(word: v1.Word, instruction: Instruction, tensors: Mapping[str, int]) -> Instruction:
    """What a word says with `tensors` as its operands; what it cannot say is that of `instruction`."""
    slots = SLOTS[word.stage]
    named: dict[Slot, int] = {slots[name]: tensor for name, tensor in tensors.items()}
    # The norm of an addend that was stored behind it stands where a second norm would.
    single = Flag.ADD_SINGLE in instruction.flags and getattr(word, "bn", 0) < len(NORMS)
    hidden: list[Slot] = [s for s in instruction.operands if s not in slots.values() or (single and s == "bn1")]
    flags = _flags(word, instruction.flags)
    partial = (instruction.splitting & PARTIAL or Splitting.ACCUMULATE_IN) * getattr(word, "part_sum", False)
    return replace(
        instruction,
        opcode=Opcode.UPDATE if word.stage is Stage.WEIGHT_UPDATE else _OPCODES[word.op],
        stage=word.stage,
        flags=flags | (instruction.flags & ~_SAID[word.stage]),
        splitting=instruction.splitting & ~PARTIAL | partial,
        operands={**named, **{slot: instruction.operands[slot] for slot in hidden}},
    )


def _flags(word: v1.Word, hidden: Flag) -> Flag:
    """The flags that a word's bits say; which window, and which way of adding, `hidden` says."""
    flags = NO_FLAGS
    match word:
        case v1.Forward():
            flags |= (Flag.RELU | Flag.MASK_WRITE) * word.relu | Flag.ADD * word.add | Flag.BN_FORWARD * word.bn
            flags |= (Flag.POINTER_WRITE | (hidden & _POOL)) * word.maxpool | Flag.SOFTMAX_CE * word.softmax
        case v1.Backward():
            flags |= Flag.MASK_READ * word.relu | ((hidden & _ADD) or Flag.ADD) * word.add
            flags |= Flag.BN_BACKWARD * (word.bn > 0) | Flag.BN_BACKWARD_2 * (word.bn > 1)
            flags |= (Flag.POINTER_READ | (hidden & _POOL)) * word.maxpool
        case v1.WeightGradient() | v1.WeightUpdate():
            pass
    return Flag(flags)


def misread(word: v1.Word, program: Program, instruction: Instruction, layer: Opcode) -> Sequence[str]:
    """Fields of a word that are not those of an instruction's layer and shapes; without a shape they are idle."""
    wanted: dict[str, object] = {**v1.IDLE, "op": OPS[layer]}
    if isinstance(word, v1.Forward | v1.Backward) and layer is Opcode.CONV and instruction.geometry is not None:
        geometry = program.geometries[instruction.geometry]
        wanted |= {"kernel": geometry.kh, "stride": geometry.stride[0]}
    fields = {name: getattr(word, name) for name in ("net", "op", "padding", "kernel", "stride") if hasattr(word, name)}
    return [f"{name} {said}; it should be {wanted[name]}" for name, said in fields.items() if said != wanted[name]]
