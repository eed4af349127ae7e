"""Codes of words and files: stages, flags, elements, roles, operand slots; opcodes are in `isa.instruction_set`."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Literal


class Element(Enum):
    """How an element of a tensor is stored: its code in files, its bits."""

    FP16 = (0, 16)
    FP32 = (1, 32)
    BIT = (2, 1)
    """One bit of a relu's or dropout's mask, least significant bit of a byte first."""
    PTR2 = (3, 2)
    """Place of the maximum in a window of 2 x 2, row-major; four to a byte, lowest bits first."""
    PTR4 = (4, 4)
    """The same in a window of 4 x 4; two to a byte."""
    INT32 = (5, 32)
    """Labels."""

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def bits(self) -> int:
        return self.value[1]


class Role(Enum):
    """What a tensor is to the program; the value is its code in files."""

    INPUT = 0
    LABEL = 1
    OUTPUT = 2
    LOSS = 3
    WEIGHT = 4
    NORM = 5
    """Parameters or statistics of a batch normalisation, [4, C]: mean, 1/std, scale, shift."""
    STATE = 6
    """What an optimizer keeps: velocity, master weights."""
    ACTIVATION = 7
    MASK = 8
    POINTER = 9
    FEATURE_GRADIENT = 10
    WEIGHT_GRADIENT = 11
    PARTIAL = 12
    """Sums of products that are not complete yet, fp32."""


class Arena(Enum):
    """A class of storages; the value is its code in files."""

    HOST = 0
    """Written or read by the host: inputs, labels, outputs."""
    WEIGHTS = 1
    """Weights, norms and states: they stay from one run to the next."""
    FEATURES = 2
    """Activations, masks, pointers."""
    FEATURE_GRADIENTS = 3
    WEIGHT_GRADIENTS = 4


class Stage(IntEnum):
    """Which of the four computations of training; the value is its code in both versions of the ISA."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT_GRADIENT = 2
    WEIGHT_UPDATE = 3


class Flag(IntFlag):
    """Stages of the post-processing unit and their ways; bits 0 to 15 of bytes 2 and 3 of a version 2 word."""

    RELU = 1 << 0
    MASK_WRITE = 1 << 1
    MASK_READ = 1 << 2
    ADD = 1 << 3
    ADD_SINGLE = 1 << 4
    """The addend is multiplied by the std of `bn1` before it is added: it was stored behind that norm's backward."""
    BN_FORWARD = 1 << 5
    BN_BACKWARD = 1 << 6
    BN_BACKWARD_2 = 1 << 7
    POOL_2 = 1 << 8
    POOL_4 = 1 << 9
    POINTER_WRITE = 1 << 10
    POINTER_READ = 1 << 11
    DROPOUT = 1 << 12
    SOFTMAX_CE = 1 << 13
    BN_TRAIN = 1 << 14
    PRUNE = 1 << 15


NO_FLAGS = Flag(0)


class Splitting(IntFlag):
    """Bits 2 to 5 of byte 1: how an instruction takes part in a sum over several."""

    ACCUMULATE_IN = 1 << 0
    """Begin with the partial sum in `aux`."""
    ACCUMULATE_OUT = 1 << 1
    """Write the fp32 sum to `dst0` and leave the post-processing unit out."""
    FIRST = 1 << 2
    LAST = 1 << 3


OPERANDS = ("src0", "src1", "dst0", "dst1", "mask", "ptr", "bn0", "bn1", "res", "aux")
"""Operand slots in the order of a version 2 word."""
Slot = Literal["src0", "src1", "dst0", "dst1", "mask", "ptr", "bn0", "bn1", "res", "aux"]


class Way(StrEnum):
    """How an instruction touches an operand."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    """It reads and writes it."""

    @property
    def reads(self) -> bool:
        """Whether what the operand holds before matters."""
        return self is not Way.WRITE

    @property
    def writes(self) -> bool:
        """Whether the operand holds something else behind it."""
        return self is not Way.READ


class Need(StrEnum):
    """Whether an instruction names a geometry."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"
