"""The instruction set, a row for each opcode: its meaning, what takes its time, and per stage its flags and operands.

One table for all: `access` checks instructions with it, text and words of both versions are spelled by it, the cost
model counts by it, the documentation prints it, tests enumerate it. So a new instruction is a row here, a function in
`simulator.arithmetic`, and, as the verifier knows by itself what it needs to know, a rule in `checks.shapes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from dlc_backend_s2train.codes import NO_FLAGS, Flag, Need, Slot, Splitting, Stage, Way

NO_SPLITTING: Final = Splitting(0)


class Opcode(IntEnum):
    """What an instruction does, see `INSTRUCTIONS`; the value is its code in words of version 2."""

    NOP = 0x00
    CONV = 0x01
    LINEAR = 0x02
    ELTWISE = 0x03
    POOL = 0x04
    COPY = 0x05
    UPDATE = 0x06
    LOSS = 0x07
    FILL = 0x08
    FRAME = 0x80
    STORE = 0x81
    BARRIER = 0x82
    HOST = 0x83
    END = 0xFF


class Time(Enum):
    """What takes the time of an instruction, in words of the documentation."""

    ARRAY = "frames and other operands over the link, the array, the PPU's latency"
    UNIT = "operands over the link, the PPU alone"
    NOTHING = "nothing: what they move counts with the instructions that use it"
    LINK = "operands over the link, if there are any"


def spelled(member: Enum) -> str:
    """An opcode, stage or bit as text and messages spell it: `bn_backward_2`."""
    return str(member.name).lower()


@dataclass(frozen=True)
class Use:
    """An operand, and when it stands there: with no condition always."""

    slot: Slot
    way: Way
    flags: Flag = NO_FLAGS
    """Any of these is set; with `together`, all of them."""
    splitting: Splitting = NO_SPLITTING
    """This bit is set."""
    optional: bool = False
    """The instruction does without it."""
    together: bool = False

    def holds(self, flags: Flag, splitting: Splitting) -> bool:
        """Whether the operand stands in an instruction with these bits."""
        # A sum that is not complete goes to dst0 alone: what the form does not demand has no place there.
        if self.slot == "dst1" and self.optional and Splitting.ACCUMULATE_OUT in splitting:
            return False
        always = not self.flags and not self.splitting
        if self.together:
            return self.flags in flags
        return always or bool(self.flags & flags) or bool(self.splitting & splitting)


@dataclass(frozen=True)
class Form:
    """What instructions of an opcode may have in some stages."""

    stages: tuple[Stage, ...]
    uses: tuple[Use, ...] = ()
    """The first use of a slot whose condition holds is the one that counts."""
    flags: Flag = NO_FLAGS
    accumulates: bool = False
    """Whether partial sums go in and out."""
    geometry: Need = Need.NONE
    hyper: Flag = NO_FLAGS
    """Flags that take numbers from the hyper-parameters."""
    hyper_always: bool = False
    function: bool = False
    """Whether a host function takes the place of geometry and operands."""


@dataclass(frozen=True)
class Row:
    """All that is declared of the instructions with an opcode."""

    opcode: Opcode
    meaning: str
    """In words of the documentation."""
    time: Time
    forms: tuple[Form, ...]
    by_sample: bool = False
    """Whether it may work on some samples of its operands, those that its geometry names."""
    computes: bool = True
    """Whether something makes the values that it writes: the arithmetic of the simulator, or the host."""
    orders: bool = False
    """Whether it only orders others, or moves what they compute with, so that words of version 1 do without it."""


POOLS: Final = Flag.POOL_2 | Flag.POOL_4
THREE_NORMS: Final = Flag.ADD_SINGLE | Flag.BN_BACKWARD_2
"""With both, `bn1` is the second norm and `aux` that of the addend: the published chain of a single residual, relu and
two norms in one word."""
_FORWARD: Final = Flag.RELU | Flag.MASK_WRITE | Flag.ADD | Flag.BN_FORWARD | Flag.DROPOUT
_FORWARD_POOL: Final = POOLS | Flag.POINTER_WRITE
_BACKWARD: Final = Flag.MASK_READ | Flag.ADD | Flag.ADD_SINGLE | Flag.DROPOUT | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2
_BACKWARD_POOL: Final = POOLS | Flag.POINTER_READ

_X: Final = Use("src0", Way.READ)
_W: Final = Use("src1", Way.READ)
_Y: Final = Use("dst0", Way.WRITE)
_PARTIAL: Final = Use("aux", Way.READ, splitting=Splitting.ACCUMULATE_IN)
_LABELS: Final = Use("aux", Way.READ, Flag.SOFTMAX_CE)
_MEAN_LOSS: Final = Use("dst1", Way.WRITE, Flag.SOFTMAX_CE, optional=True)
_POINTED: Final = Use("ptr", Way.WRITE, Flag.POINTER_WRITE)
_POINTERS: Final = Use("ptr", Way.READ, Flag.POINTER_READ)

# The weight, its master copy, its velocity.
_UPDATED: Final = (
    Use("dst0", Way.UPDATE),
    Use("dst1", Way.UPDATE, optional=True),
    Use("aux", Way.UPDATE, optional=True),
)

# The post-processing unit's operands, forward and backward, in the order in which its modules work.
_PPU_FORWARD: Final = (
    Use("bn0", Way.READ, Flag.BN_FORWARD),
    # Running statistics in place of the first two rows of `bn0`.
    Use("bn1", Way.READ, Flag.BN_FORWARD, optional=True),
    Use("res", Way.READ, Flag.ADD),
    Use("mask", Way.WRITE, Flag.MASK_WRITE),
    _POINTED,
    Use("aux", Way.WRITE, Flag.DROPOUT),
)
_PPU_BACKWARD: Final = (
    _POINTERS,
    Use("res", Way.READ, Flag.ADD | Flag.ADD_SINGLE),
    Use("aux", Way.READ, Flag.DROPOUT),
    Use("mask", Way.READ, Flag.MASK_READ),
    Use("bn0", Way.READ, Flag.BN_BACKWARD),
    Use("bn1", Way.READ, Flag.BN_BACKWARD_2 | Flag.ADD_SINGLE),
    Use("aux", Way.READ, THREE_NORMS, together=True),
    Use("dst1", Way.WRITE, Flag.BN_BACKWARD_2),
    # The gradient before the norm, for the other branch of a residual block.
    Use("dst1", Way.WRITE, optional=True),
)


def _product(stage: Stage, flags: Flag, *uses: Use) -> Form:
    """The form of a product by weights, with what the unit behind the array does to it."""
    operands = (_X, _W, _PARTIAL, *uses)
    return Form((stage,), operands, flags, accumulates=True, geometry=Need.REQUIRED, hyper=Flag.DROPOUT)


def _every_stage(*uses: Use) -> Form:
    """The form of what is the same in every stage."""
    return Form(tuple(Stage), uses, geometry=Need.OPTIONAL)


_PLAIN: Final = Form((Stage.FORWARD,))
_GRADIENT: Final = Form(
    (Stage.WEIGHT_GRADIENT,),
    # Without x the sums are those of dy: the gradient of a bias.
    (_X, Use("src1", Way.READ, optional=True), _PARTIAL, _Y),
    Flag.PRUNE,
    accumulates=True,
    geometry=Need.REQUIRED,
    hyper=Flag.PRUNE,
)
_GRADIENT_APPLIED: Final = Form(
    (Stage.WEIGHT_UPDATE,),
    # The gradient of the weight in dst0, applied at once: nothing stores it. `aux` is the velocity's, so that no
    # partial sums come in.
    (_X, Use("src1", Way.READ, optional=True), *_UPDATED),
    Flag.PRUNE,
    geometry=Need.REQUIRED,
    hyper_always=True,
)

INSTRUCTIONS: Final = (
    Row(Opcode.NOP, "nothing", Time.LINK, (_PLAIN,), computes=False, orders=True),
    Row(
        Opcode.CONV,
        "convolution",
        Time.ARRAY,
        (
            _product(Stage.FORWARD, _FORWARD | _FORWARD_POOL, *_PPU_FORWARD, _Y),
            _product(Stage.BACKWARD, _BACKWARD | _BACKWARD_POOL, *_PPU_BACKWARD, _Y),
            _GRADIENT,
            _GRADIENT_APPLIED,
        ),
        by_sample=True,
    ),
    Row(
        Opcode.LINEAR,
        "product with a matrix of weights",
        Time.ARRAY,
        (
            _product(Stage.FORWARD, _FORWARD | Flag.SOFTMAX_CE, _LABELS, *_PPU_FORWARD, _Y, _MEAN_LOSS),
            _product(Stage.BACKWARD, _BACKWARD, *_PPU_BACKWARD, _Y),
            _GRADIENT,
            _GRADIENT_APPLIED,
        ),
        by_sample=True,
    ),
    Row(
        Opcode.ELTWISE,
        "post-processing alone",
        Time.UNIT,
        (
            Form(
                (Stage.FORWARD,),
                (
                    _X,
                    Use("bn0", Way.READ, Flag.BN_TRAIN),
                    # Running statistics move towards those of the batch.
                    Use("bn1", Way.UPDATE, Flag.BN_TRAIN, optional=True),
                    *_PPU_FORWARD,
                    _Y,
                    Use("dst1", Way.WRITE, Flag.BN_TRAIN),
                ),
                _FORWARD | _FORWARD_POOL | Flag.BN_TRAIN,
                geometry=Need.OPTIONAL,
                hyper=Flag.DROPOUT | Flag.BN_TRAIN,
            ),
            Form(
                (Stage.BACKWARD,),
                (
                    _X,
                    Use("src1", Way.READ, Flag.BN_TRAIN),
                    Use("bn1", Way.READ, Flag.BN_TRAIN),
                    Use("dst1", Way.WRITE, Flag.BN_TRAIN),
                    *_PPU_BACKWARD,
                    _Y,
                ),
                _BACKWARD | _BACKWARD_POOL | Flag.BN_TRAIN,
                geometry=Need.OPTIONAL,
                hyper=Flag.DROPOUT,
            ),
        ),
        by_sample=True,
    ),
    # On the host's side of the array: no stage of the unit fits.
    Row(
        Opcode.POOL,
        "average pool, or max-pool with windows that overlap",
        Time.LINK,
        (
            Form((Stage.FORWARD,), (_X, _POINTED, _Y), Flag.POINTER_WRITE, geometry=Need.REQUIRED),
            Form((Stage.BACKWARD,), (_X, _POINTERS, _Y), Flag.POINTER_READ, geometry=Need.REQUIRED),
        ),
        by_sample=True,
    ),
    Row(Opcode.COPY, "the same elements under another shape", Time.LINK, (_every_stage(_X, _Y),)),
    Row(
        Opcode.UPDATE,
        "weights move along a gradient in memory",
        Time.UNIT,
        (Form((Stage.WEIGHT_UPDATE,), (_X, *_UPDATED), geometry=Need.OPTIONAL, hyper_always=True),),
    ),
    Row(
        Opcode.LOSS,
        "softmax and cross-entropy",
        Time.UNIT,
        (
            # Without labels it gives the probabilities.
            Form((Stage.FORWARD,), (_X, _LABELS, _Y, _MEAN_LOSS), Flag.SOFTMAX_CE, geometry=Need.OPTIONAL),
        ),
    ),
    # The store itself writes the zeros.
    Row(Opcode.FILL, "zeros", Time.LINK, (_every_stage(_Y),), computes=False),
    Row(
        Opcode.FRAME,
        "frames of a tensor go to the device",
        Time.NOTHING,
        (_every_stage(_X),),
        computes=False,
        orders=True,
    ),
    Row(Opcode.STORE, "results come from the device", Time.NOTHING, (_every_stage(_Y),), computes=False, orders=True),
    Row(Opcode.BARRIER, "what follows waits for all before", Time.LINK, (_PLAIN,), computes=False, orders=True),
    # Its operands are those of one of `Program.functions`, of any number.
    Row(
        Opcode.HOST,
        "a function of the host, while the device waits",
        Time.LINK,
        (Form((Stage.FORWARD,), function=True),),
    ),
    Row(Opcode.END, "the program ends", Time.LINK, (_PLAIN,), computes=False, orders=True),
)
"""All instructions, by code."""

ROW_OF: Final = {row.opcode: row for row in INSTRUCTIONS}
FORM_OF: Final = {(row.opcode, stage): form for row in INSTRUCTIONS for form in row.forms for stage in form.stages}
PRODUCTS: Final = frozenset(row.opcode for row in INSTRUCTIONS if row.time is Time.ARRAY)
"""Opcodes that the array works for."""
