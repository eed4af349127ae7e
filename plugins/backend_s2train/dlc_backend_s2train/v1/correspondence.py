"""Which instructions version 1 has, and what its words and our instructions say of each other.

Version 1 has products with weights or activations, and updates of weights that those products read. Stages of the
post-processing unit that follow no product, losses, copies, what belongs to biases and what the host computes have no
words: the published compiler's programs leave them out too.

`restored` is the inverse of `legalize.to_v1`, bit by bit and operand by operand. What words leave out (shapes,
hyper-parameters, the other operands, which of two ways of adding or pooling) is taken from an instruction; everything
that words have a bit for comes from the word alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from dlc_backend_s2train.codes import NO_FLAGS, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode, spelled
from dlc_backend_s2train.program import Geometry, Instruction, Numbered, Program
from dlc_backend_s2train.v1 import encoding as v1

SLOTS: Final[Mapping[Stage, Mapping[str, Slot]]] = {
    Stage.FORWARD: {
        "in_feature": "src0",
        "weight": "src1",
        "relu_mask": "mask",
        "pool_mask": "ptr",
        "bn_use": "bn0",
        "res_add": "res",
        "output": "dst0",
    },
    Stage.BACKWARD: {
        "output_grad": "src0",
        "weight": "src1",
        "input_grad": "dst0",
        "relu_mask": "mask",
        "pool_mask": "ptr",
        "bn_use": "bn0",
        "bn_use2": "bn1",
    },
    Stage.WEIGHT_GRADIENT: {"output_grad": "src0", "input": "src1", "weight_grad": "dst0"},
    Stage.WEIGHT_UPDATE: {"weight_grad": "src0", "weight": "dst0"},
}
"""Where a word's operands come from."""

NORMS: Final = (Flag.BN_FORWARD | Flag.BN_BACKWARD, Flag.BN_BACKWARD_2)
"""The field `bn` counts how many of these are set."""
PARTIAL: Final = Splitting.ACCUMULATE_IN | Splitting.ACCUMULATE_OUT
"""Any of them sets the bit `part_sum`."""
OPS: Final = {Opcode.CONV: "conv", Opcode.LINEAR: "linear"}
"""Opcode of a product → the field `op`."""
_UNSAID: Final = Flag.DROPOUT | Flag.BN_TRAIN
"""Flags that no word has a bit for and that change what is computed."""
_RANKS: Final = {4: Opcode.CONV, 2: Opcode.LINEAR}


def layers_of(program: Program) -> dict[int, Opcode]:
    """Weight → the opcode of products that read it."""
    made = (i for i in program.instructions if i.opcode in OPS and i.stage in (Stage.FORWARD, Stage.BACKWARD))
    return {i.operands["src1"]: i.opcode for i in made if "src1" in i.operands}


def layer_of(program: Program, instruction: Instruction, layers: Mapping[int, Opcode]) -> Opcode | None:
    """Whether a word is a convolution's or a linear layer's; None where version 1 has no such instruction."""
    if instruction.opcode is Opcode.UPDATE:
        weight = instruction.operands["dst0"]
        return layers.get(weight) or _RANKS.get(len(program.tensors[weight].shape))
    # Without src1 it is the gradient of a bias.
    return instruction.opcode if instruction.opcode in OPS and "src1" in instruction.operands else None


def worded(program: Program) -> Iterator[int]:
    """Numbers of the instructions that version 1 has: those that words are for, in order."""
    layers = layers_of(program)
    yield from (n for n, i in enumerate(program.instructions) if layer_of(program, i, layers) is not None)


def obstacles(program: Program, instruction: Instruction) -> Iterator[str]:
    """Why no word says an instruction of those that version 1 has."""
    if instruction.product is not instruction.stage:
        yield "no word says a gradient that is applied at once"
        return
    for flag in instruction.flags & _UNSAID:
        yield f"no bit says {spelled(flag)}"
    if Flag.RELU in instruction.flags and Flag.MASK_WRITE not in instruction.flags:
        yield "relu always writes its mask"
    if instruction.flags & (Flag.POOL_2 | Flag.POOL_4) and "ptr" not in instruction.operands:
        yield "a pool always writes its pointers"
    if instruction.opcode is Opcode.CONV and instruction.geometry is not None:
        yield from _shape_obstacles(program.geometries[instruction.geometry])


def _shape_obstacles(geometry: Geometry) -> Iterator[str]:
    kernel, stride = (geometry.kh, geometry.kw), geometry.stride
    if kernel not in ((1, 1), (3, 3), (16, 16)):
        yield f"no code says kernel {kernel[0]} x {kernel[1]}"
    if stride not in ((1, 1), (2, 2)):
        yield f"no code says stride {stride[0]} x {stride[1]}"
    if geometry.dilation != (1, 1):
        yield f"no field says dilation {geometry.dilation[0]} x {geometry.dilation[1]}"
    if geometry.groups != 1:
        yield f"no field says {geometry.groups} groups"


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
