"""Which instructions there are: opcode, stage → flags that may be set, operands that then stand there.

One table for all: `access` checks instructions with it, the documentation prints it, tests enumerate it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Literal

from dlc_backend_s2train.codes import NO_FLAGS, Flag, Slot, Splitting, Stage

Way = Literal["read", "write", "update"]
"""How an instruction touches an operand; `update` reads and writes it."""
Need = Literal["none", "optional", "required"]

NO_SPLITTING: Final = Splitting(0)


class Opcode(IntEnum):
    """What an instruction does; the value is its code in words of version 2."""

    NOP = 0x00
    CONV = 0x01
    LINEAR = 0x02
    ELTWISE = 0x03
    """The post-processing unit alone, on src0."""
    POOL = 0x04
    """An average pool or an overlapping max-pool, on the host's side of the array (no PPU stage fits)."""
    COPY = 0x05
    """src0 to dst0, element by element; shapes may differ."""
    UPDATE = 0x06
    LOSS = 0x07
    FILL = 0x08
    """Zeros into dst0."""
    FRAME = 0x80
    STORE = 0x81
    BARRIER = 0x82
    HOST = 0x83
    """The host computes one of `Program.functions` while the device waits."""
    END = 0xFF


def spelled(member: Enum) -> str:
    """An opcode, stage or bit as text and messages spell it: `bn_backward_2`."""
    return str(member.name).lower()


@dataclass(frozen=True)
class Use:
    """An operand, and when it stands there: with no condition always."""

    slot: Slot
    way: Way
    flags: Flag = NO_FLAGS
    """Any of these is set."""
    splitting: Splitting = NO_SPLITTING
    """This bit is set."""
    optional: bool = False
    """The instruction does without it."""

    def holds(self, flags: Flag, splitting: Splitting) -> bool:
        """Whether the operand stands in an instruction with these bits."""
        # A sum that is not complete goes to dst0 alone: what the form does not demand has no place there.
        if self.slot == "dst1" and self.optional and Splitting.ACCUMULATE_OUT in splitting:
            return False
        always = not self.flags and not self.splitting
        return always or bool(self.flags & flags) or bool(self.splitting & splitting)


@dataclass(frozen=True)
class Form:
    """What instructions of some opcodes and stages may have."""

    opcodes: tuple[Opcode, ...]
    stages: tuple[Stage, ...]
    uses: tuple[Use, ...] = ()
    """The first use of a slot whose condition holds is the one that counts."""
    flags: Flag = NO_FLAGS
    accumulates: bool = False
    """Whether partial sums go in and out."""
    geometry: Need = "none"
    hyper: Flag = NO_FLAGS
    """Flags that take numbers from the hyper-parameters."""
    hyper_always: bool = False
    function: bool = False
    """Whether a host function takes the place of geometry and operands."""


_EVERY_STAGE: Final = tuple(Stage)
_POOLS: Final = Flag.POOL_2 | Flag.POOL_4
_FORWARD: Final = Flag.RELU | Flag.MASK_WRITE | Flag.ADD | Flag.BN_FORWARD | Flag.DROPOUT
_FORWARD_POOL: Final = _POOLS | Flag.POINTER_WRITE
_BACKWARD: Final = Flag.MASK_READ | Flag.ADD | Flag.ADD_SINGLE | Flag.DROPOUT | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2
_BACKWARD_POOL: Final = _POOLS | Flag.POINTER_READ

_X: Final = Use("src0", "read")
_W: Final = Use("src1", "read")
_Y: Final = Use("dst0", "write")
_PARTIAL: Final = Use("aux", "read", splitting=Splitting.ACCUMULATE_IN)
_LABELS: Final = Use("aux", "read", Flag.SOFTMAX_CE)

# The weight, its master copy, its velocity.
_UPDATED: Final = (
    Use("dst0", "update"),
    Use("dst1", "update", optional=True),
    Use("aux", "update", optional=True),
)

# The post-processing unit's operands, forward and backward, in the order in which its modules work.
_PPU_FORWARD: Final = (
    Use("bn0", "read", Flag.BN_FORWARD),
    # Running statistics in place of the first two rows of `bn0`.
    Use("bn1", "read", Flag.BN_FORWARD, optional=True),
    Use("res", "read", Flag.ADD),
    Use("mask", "write", Flag.MASK_WRITE),
    Use("ptr", "write", Flag.POINTER_WRITE),
    Use("aux", "write", Flag.DROPOUT),
)
_PPU_BACKWARD: Final = (
    Use("ptr", "read", Flag.POINTER_READ),
    Use("res", "read", Flag.ADD | Flag.ADD_SINGLE),
    Use("aux", "read", Flag.DROPOUT),
    Use("mask", "read", Flag.MASK_READ),
    Use("bn0", "read", Flag.BN_BACKWARD),
    Use("bn1", "read", Flag.BN_BACKWARD_2 | Flag.ADD_SINGLE),
    Use("dst1", "write", Flag.BN_BACKWARD_2),
    # The gradient before the norm, for the other branch of a residual block.
    Use("dst1", "write", optional=True),
)

FORMS: Final = (
    Form((Opcode.NOP, Opcode.BARRIER, Opcode.END), (Stage.FORWARD,)),
    # Its operands are those of its function, of any number.
    Form((Opcode.HOST,), (Stage.FORWARD,), function=True),
    Form(
        (Opcode.CONV,),
        (Stage.FORWARD,),
        (_X, _W, _PARTIAL, *_PPU_FORWARD, _Y),
        _FORWARD | _FORWARD_POOL,
        accumulates=True,
        geometry="required",
        hyper=Flag.DROPOUT,
    ),
    Form(
        (Opcode.LINEAR,),
        (Stage.FORWARD,),
        (_X, _W, _PARTIAL, _LABELS, *_PPU_FORWARD, _Y, Use("dst1", "write", Flag.SOFTMAX_CE, optional=True)),
        _FORWARD | Flag.SOFTMAX_CE,
        accumulates=True,
        geometry="required",
        hyper=Flag.DROPOUT,
    ),
    Form(
        (Opcode.ELTWISE,),
        (Stage.FORWARD,),
        (
            _X,
            Use("bn0", "read", Flag.BN_TRAIN),
            # Running statistics move towards those of the batch.
            Use("bn1", "update", Flag.BN_TRAIN, optional=True),
            *_PPU_FORWARD,
            _Y,
            Use("dst1", "write", Flag.BN_TRAIN),
        ),
        _FORWARD | _FORWARD_POOL | Flag.BN_TRAIN,
        geometry="optional",
        hyper=Flag.DROPOUT | Flag.BN_TRAIN,
    ),
    Form(
        (Opcode.LOSS,),
        (Stage.FORWARD,),
        # Without labels it gives the probabilities.
        (_X, _LABELS, _Y, Use("dst1", "write", Flag.SOFTMAX_CE, optional=True)),
        Flag.SOFTMAX_CE,
        geometry="optional",
    ),
    Form(
        (Opcode.CONV,),
        (Stage.BACKWARD,),
        (_X, _W, _PARTIAL, *_PPU_BACKWARD, _Y),
        _BACKWARD | _BACKWARD_POOL,
        accumulates=True,
        geometry="required",
        hyper=Flag.DROPOUT,
    ),
    Form(
        (Opcode.LINEAR,),
        (Stage.BACKWARD,),
        (_X, _W, _PARTIAL, *_PPU_BACKWARD, _Y),
        _BACKWARD,
        accumulates=True,
        geometry="required",
        hyper=Flag.DROPOUT,
    ),
    Form(
        (Opcode.ELTWISE,),
        (Stage.BACKWARD,),
        (
            _X,
            Use("src1", "read", Flag.BN_TRAIN),
            Use("bn1", "read", Flag.BN_TRAIN),
            Use("dst1", "write", Flag.BN_TRAIN),
            *_PPU_BACKWARD,
            _Y,
        ),
        _BACKWARD | _BACKWARD_POOL | Flag.BN_TRAIN,
        geometry="optional",
        hyper=Flag.DROPOUT,
    ),
    Form(
        (Opcode.CONV, Opcode.LINEAR),
        (Stage.WEIGHT_GRADIENT,),
        # Without x the sums are those of dy: the gradient of a bias.
        (_X, Use("src1", "read", optional=True), _PARTIAL, _Y),
        Flag.PRUNE,
        accumulates=True,
        geometry="required",
        hyper=Flag.PRUNE,
    ),
    Form(
        (Opcode.CONV, Opcode.LINEAR),
        (Stage.WEIGHT_UPDATE,),
        # The gradient of the weight in dst0, applied at once: nothing stores it. `aux` is the velocity's, so that no
        # partial sums come in.
        (_X, Use("src1", "read", optional=True), *_UPDATED),
        Flag.PRUNE,
        geometry="required",
        hyper_always=True,
    ),
    Form(
        (Opcode.UPDATE,),
        (Stage.WEIGHT_UPDATE,),
        (_X, *_UPDATED),
        geometry="optional",
        hyper_always=True,
    ),
    Form(
        (Opcode.POOL,),
        (Stage.FORWARD,),
        (_X, Use("ptr", "write", Flag.POINTER_WRITE), _Y),
        Flag.POINTER_WRITE,
        geometry="required",
    ),
    Form(
        (Opcode.POOL,),
        (Stage.BACKWARD,),
        (_X, Use("ptr", "read", Flag.POINTER_READ), _Y),
        Flag.POINTER_READ,
        geometry="required",
    ),
    Form((Opcode.COPY,), _EVERY_STAGE, (_X, _Y), geometry="optional"),
    Form((Opcode.FILL,), _EVERY_STAGE, (_Y,), geometry="optional"),
    Form((Opcode.FRAME,), _EVERY_STAGE, (_X,), geometry="optional"),
    Form((Opcode.STORE,), _EVERY_STAGE, (_Y,), geometry="optional"),
)

FORM_OF: Final = {(opcode, stage): form for form in FORMS for opcode in form.opcodes for stage in form.stages}


@dataclass(frozen=True)
class Demand:
    """Flags that mean nothing without one of others, in forms that have those."""

    flags: Flag
    any_of: Flag
    why: str


DEMANDS: Final = (
    Demand(Flag.MASK_WRITE, Flag.RELU, "the mask is relu's"),
    Demand(Flag.POINTER_WRITE, _POOLS, "pointers are those of a pool"),
    Demand(Flag.POINTER_READ, _POOLS, "pointers are those of a pool"),
    Demand(Flag.BN_BACKWARD_2, Flag.BN_BACKWARD, "the second norm comes after the first"),
)

EXCLUSIONS: Final = (
    (Flag.POOL_2, Flag.POOL_4, "one window at a time"),
    (Flag.ADD, Flag.ADD_SINGLE, "one addend at a time"),
    (Flag.ADD_SINGLE, Flag.BN_BACKWARD_2, "`bn1` is the addend's norm, or the second one"),
    (Flag.BN_TRAIN, Flag.BN_FORWARD, "one norm at a time"),
    (Flag.BN_TRAIN, Flag.BN_BACKWARD_2, "`bn1` and `dst1` belong to the norm in training mode"),
    (Flag.BN_TRAIN, Flag.ADD_SINGLE, "`bn1` belongs to the norm in training mode"),
    (Flag.SOFTMAX_CE, Flag.DROPOUT, "`aux` is for labels"),
    (Flag.SOFTMAX_CE, Flag.RELU, "logits go into softmax as fp32 sums"),
    (Flag.SOFTMAX_CE, Flag.ADD, "logits go into softmax as fp32 sums"),
)
"""Flags that do not go together."""

BACKWARD_DEMANDS: Final = (
    Demand(_POOLS, Flag.POINTER_READ, "a pool is undone by its pointers"),
    Demand(Flag.BN_TRAIN, Flag.BN_BACKWARD, "it is that norm's way"),
)
"""Further demands of the backward stage."""

AUX_FLAGS: Final = Flag.DROPOUT | Flag.SOFTMAX_CE
"""Flags whose operand is `aux`, so that no partial sum comes in."""
