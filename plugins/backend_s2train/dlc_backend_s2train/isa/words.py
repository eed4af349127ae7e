"""Which instructions version 1 has, and what stands for what: slots of an instruction and operands of its word.

Version 1 has products with weights or activations, and updates of weights that those products read. Stages of the
post-processing unit that follow no product, losses, copies, what belongs to biases and what the host computes have no
words: the published compiler's programs leave them out too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dlc_backend_s2train.codes import Flag, Opcode, Slot, Splitting, Stage
from dlc_backend_s2train.isa.forms import spelled
from dlc_backend_s2train.program import Geometry, Instruction, Program

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
