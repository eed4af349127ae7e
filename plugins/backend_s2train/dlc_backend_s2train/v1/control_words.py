"""Published words that are no instructions: control words of the post-processing unit, and transfer words.

A control word has 50 bits, bit 0 first. Bits 0 to 20 fill the register of norm and activation, the other 29 that of
addition and pool; how they lie inside the registers was not published. Source: the configuration text of the published
compiler.

A transfer word has 32 bits, big-endian, and names a tensor and a port of the link. Source: an older instruction set of
the published compiler; nothing that runs uses it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from dlc.base.diagnostics import Location, error
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.isa.words import NOWHERE, Field, Layout, flag
from dlc_backend_s2train.program import Geometry, Instruction

_FINISH_BITS: Final = 16
_GROUP_BITS: Final = 3
_LANES: Final = 16
"""Outputs of a tile row; wider maps are cut into tiles."""
_MODES: Final = (2, 4)
"""Side of the pool's window, by code."""

CONTROL: Final = Layout(
    "PPU control word",
    (
        flag("bn_fwd_en"),
        flag("bn_bp_en"),
        flag("bn_double_en", "two norms backward"),
        Field("bn_finish", _FINISH_BITS, note="N·H·W - 1: elements of a channel, then the next norm comes"),
        flag("act_fwd_en"),
        flag("act_bp_en"),
        flag("resacc_fwd_en"),
        flag("resacc_bp_en"),
        Field("resacc_bp_finish", _FINISH_BITS, note="N·H·W - 1"),
        flag("resacc_bp_single_line_en", "the addend is the gradient after the norm's backward"),
        flag("pooling_fwd_en"),
        Field("pooling_fwd_mode", 1, _MODES, "side of the window; written backward as well, where it has no effect"),
        Field("pooling_fwd_group", _GROUP_BITS, note="min(W, 16) / side - 1: pooled outputs of a tile row, less one"),
        flag("pooling_bp_en"),
        Field("pooling_bp_mode", 1, _MODES, "side of the window"),
        Field("pooling_bp_group", _GROUP_BITS, note="min(W, 16) / side - 1"),
    ),
    "high",
)


@dataclass(frozen=True)
class Control:
    """What the unit does with the outputs of one instruction.

    Forward in the order norm, addition, relu, pool; backward in the opposite one.
    """

    bn_fwd_en: bool = False
    bn_bp_en: bool = False
    bn_double_en: bool = False
    bn_finish: int = 0
    act_fwd_en: bool = False
    act_bp_en: bool = False
    resacc_fwd_en: bool = False
    resacc_bp_en: bool = False
    resacc_bp_finish: int = 0
    resacc_bp_single_line_en: bool = False
    pooling_fwd_en: bool = False
    pooling_fwd_mode: Literal[2, 4] = 2
    pooling_fwd_group: int = 0
    pooling_bp_en: bool = False
    pooling_bp_mode: Literal[2, 4] = 2
    pooling_bp_group: int = 0


BYPASS: Final = Control()
"""Values go through as they are."""


def encode_control(control: Control) -> str:
    """The 50 bits as text, bit 0 first.

    Raises:
        DlcError: "bad-instruction", if a number does not fit its field.
    """
    return f"{CONTROL.encode(asdict(control)):0{CONTROL.width}b}"


def decode_control(bits: str, location: Location = NOWHERE) -> Control:
    """The control word that text of 50 zeros and ones says.

    Raises:
        DlcError: "bad-word", if it is no such text.
    """
    if len(bits) != CONTROL.width or set(bits) - {"0", "1"}:
        raise error("bad-word", f"a PPU control word is {CONTROL.width} zeros and ones", location=location)
    return Control(**CONTROL.decode(int(bits, 2), location))


def control_of(instruction: Instruction, geometry: Geometry) -> Control:
    """How the unit is set up for `instruction`, whose shapes are `geometry`; dropout and loss are not the unit's.

    Raises:
        DlcError: "bad-geometry", if a channel has more elements than the unit counts, or no pool fits the width.
    """
    flags = instruction.flags
    backward = instruction.stage is Stage.BACKWARD
    # Backward, what comes out has the shape of x; the convolution's own output otherwise.
    height, width = (geometry.hi, geometry.wi) if backward else (geometry.ho, geometry.wo)
    if instruction.opcode is Opcode.LINEAR:
        height = width = 1
    first, behind = geometry.samples
    finish = (behind - first or geometry.n) * height * width - 1
    norms = Flag.BN_FORWARD | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2
    adds = Flag.ADD | Flag.ADD_SINGLE
    if flags & (norms | adds) and not 0 <= finish < 1 << _FINISH_BITS:
        message = f"a channel has {finish + 1} elements, but the post-processing unit counts 1 to {1 << _FINISH_BITS}"
        raise error("bad-geometry", message, help="divide the batch with split ranges of samples")
    side = 4 if Flag.POOL_4 in flags else 2
    fields: dict[str, Any] = {
        "bn_fwd_en": Flag.BN_FORWARD in flags,
        "bn_bp_en": Flag.BN_BACKWARD in flags,
        "bn_double_en": Flag.BN_BACKWARD_2 in flags,
        "bn_finish": finish if flags & norms else 0,
        "act_fwd_en": Flag.RELU in flags,
        "act_bp_en": Flag.MASK_READ in flags,
        "resacc_fwd_en": bool(flags & adds) and not backward,
        "resacc_bp_en": bool(flags & adds) and backward,
        "resacc_bp_finish": finish if flags & adds else 0,
        "resacc_bp_single_line_en": Flag.ADD_SINGLE in flags,
    }
    if flags & (Flag.POOL_2 | Flag.POOL_4):
        way = "bp" if backward else "fwd"
        fields |= {"pooling_fwd_mode": side, f"pooling_{way}_mode": side, f"pooling_{way}_en": True}
        fields[f"pooling_{way}_group"] = _group(height, width, side)
    return Control(**fields)


def _group(height: int, width: int, side: int) -> int:
    """Pooled outputs of a tile row, less one."""
    if height % side or width % side or width < side:
        message = f"windows of {side} x {side} do not fill a map of {height} x {width}"
        raise error("bad-geometry", message, help="such a pool is an instruction of its own")
    return min(width, _LANES) // side - 1


TRANSFER: Final = Layout(
    "transfer word",
    (
        Field("opcode", 6, (None, "send", "receive")),
        Field("tensor", 22),
        Field("port", 4),
    ),
    "high",
)


@dataclass(frozen=True)
class Transfer:
    """A tensor that goes to the device or comes from it."""

    opcode: Literal["send", "receive"]
    tensor: int
    port: int


def encode_transfer(transfer: Transfer) -> bytes:
    """The 4 bytes of a word.

    Raises:
        DlcError: "bad-instruction", if a number does not fit its field.
    """
    return TRANSFER.to_bytes(asdict(transfer))


def decode_transfer(data: bytes, location: Location = NOWHERE) -> Transfer:
    """The word in 4 bytes.

    Raises:
        DlcError: "bad-word" for an unknown opcode, "truncated-file" for another number of bytes.
    """
    size = TRANSFER.width // 8
    if len(data) != size:
        raise error("truncated-file", f"a transfer word has {size} bytes, not {len(data)}", location=location)
    return Transfer(**TRANSFER.from_bytes(data, location))
