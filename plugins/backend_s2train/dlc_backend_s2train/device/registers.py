"""What the registers of the array hold for an instruction, derived from it (`setup_of`); section REGS has that.

The addresses of the registers, their widths and the fields of the control word are published; the order of the bits in
a register, what is reset when, and that all columns are set up alike, are defined here. Parameters of norms are no
part of a setup, because updates change them: the host reads the operand `bn0` or `bn1` when the instruction begins.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from dlc_backend_s2train.codes import Element, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import POOLS, PRODUCTS, Opcode
from dlc_backend_s2train.program import Geometry, Instruction, Program, Setup, Target
from dlc_backend_s2train.v1.control_words import BYPASS, Control, control_of, encode_control

COLUMNS: Final = 0x40800000
CORE_STEP: Final = 0x01000000
COLUMN_STEP: Final = 0x00100000
PPU: Final = 0x10000
"""Registers of a column behind its base."""
MEAN: Final = 0x00
RSTD_1: Final = 0x04
RSTD_2: Final = 0x08
NORMS: Final[Mapping[str, tuple[int, Slot, int]]] = {
    "mean": (MEAN, "bn0", 0),
    "rstd_1": (RSTD_1, "bn0", 1),
    "rstd_2": (RSTD_2, "bn1", 1),
}
"""Parameters of norms that have registers, of a column's first channel, whose next ones the unit fetches itself: the
register, the operand [4, C], its row."""
NORM_CONFIG: Final = 0x10
"""Norm and activation: bits 0 to 20 of the control word."""
POOL_CONFIG: Final = 0x14
"""Addition and pool: the other bits."""
CSR: Final = (0x1C, 0x24, 0x2C, 0x34)
"""One for each row of processing elements."""
RESET: Final = 0xD0000000
RESETS: Final[Mapping[str, tuple[int, int]]] = {
    "fm": (0x00, 1),
    "wm": (0x04, 2),
    "pe": (0x0C, 2),
    "dm": (0x14, 2),
    "bn": (0x1C, 2),
    "res": (0x24, 2),
    "pooling": (0x2C, 2),
    "relu": (0x34, 2),
}
"""Unit → offset and words of its reset: a bit for each column, of `fm` for each of four groups."""
_NORM_BITS: Final = 21
_LANES: Final = 16
_FULLY_CONNECTED, _CONVOLUTION, _MASKED = range(3)


def setup_of(program: Program, instruction: Instruction) -> Setup:
    """The setup of a legal instruction."""
    if instruction.opcode not in PRODUCTS and instruction.opcode is not Opcode.ELTWISE:
        return Setup()
    bits = encode_control(_control(program, instruction))
    units = {
        "fm": instruction.opcode in PRODUCTS,
        "wm": instruction.opcode in PRODUCTS,
        "pe": instruction.opcode in PRODUCTS,
        "dm": instruction.opcode in PRODUCTS and Splitting.ACCUMULATE_IN not in instruction.splitting,
        "bn": bool(instruction.flags & (Flag.BN_FORWARD | Flag.BN_BACKWARD)),
        "res": bool(instruction.flags & (Flag.ADD | Flag.ADD_SINGLE)),
        "pooling": bool(instruction.flags & POOLS),
        "relu": bool(instruction.flags & (Flag.MASK_READ | Flag.MASK_WRITE)),
    }
    resets = sum(1 << number for number, unit in enumerate(RESETS) if units[unit])
    norms = _norms(program, instruction)
    return Setup(_csr(program, instruction), int(bits[:_NORM_BITS], 2), int(bits[_NORM_BITS:], 2), resets, norms)


def with_setups(program: Program) -> Program:
    """The program with what registers hold for each of its instructions. Raises DlcError as `control_of` does."""
    return replace(program, setups=tuple(setup_of(program, i) for i in program.instructions))


def _norms(program: Program, instruction: Instruction) -> int:
    """The rows that are loaded: scale and shift have no registers, nor have fp32 and norms in training mode."""
    flags = instruction.flags
    given = "bn1" not in instruction.operands
    rows = {
        "mean": Flag.BN_FORWARD in flags and given,
        "rstd_1": (Flag.BN_FORWARD in flags and given) or Flag.BN_BACKWARD in flags,
        "rstd_2": Flag.BN_BACKWARD_2 in flags,
    }
    found = 0
    for number, (name, (_, slot, _)) in enumerate(NORMS.items()):
        if rows[name] and Flag.BN_TRAIN not in flags:
            halves = program.tensors[instruction.operands[slot]].element is Element.FP16
            found |= int(halves) << number
    return found


def norm_registers(
    program: Program, instruction: Instruction, memory: Callable[[int, int], bytes]
) -> Iterator[tuple[int, int]]:
    """(address, value) of the registers of norms, with parameters from `memory(address, size)`."""
    norms = setup_of(program, instruction).norms
    for register, slot, row in (loaded for k, loaded in enumerate(NORMS.values()) if norms >> k & 1):
        tensor = program.tensors[instruction.operands[slot]]
        channels = tensor.shape[1]
        address = program.storages[tensor.storage].address + tensor.offset + 2 * channels * row
        count = min(program.target.cores * program.target.columns, channels)
        for column, (value,) in enumerate(struct.iter_unpack("<H", memory(address, 2 * count))):
            yield column_base(program.target, column) + register, value


def column_base(target: Target, column: int) -> int:
    """Address of the first register of one of all columns."""
    core, within = divmod(column, target.columns)
    return COLUMNS + core * CORE_STEP + within * COLUMN_STEP + PPU


def writes(target: Target, setup: Setup) -> Iterator[tuple[int, int]]:
    """(address, value) of all registers of a setup, in the order in which a host writes them."""
    for number, (offset, words) in enumerate(RESETS.values()):
        if setup.resets >> number & 1:
            ones = 0xF if words == 1 else 0xFFFFFFFF
            yield from ((RESET + offset + 4 * k, ones) for k in range(words))
    for column in range(target.cores * target.columns):
        base = column_base(target, column)
        yield from ((base + offset, setup.csr) for offset in CSR)
        yield base + NORM_CONFIG, setup.norm_config
        yield base + POOL_CONFIG, setup.pool_config


def _control(program: Program, instruction: Instruction) -> Control:
    """The control word; what only the extensions of this target do (norms in training mode) is not in it."""
    published = instruction.flags & ~(Flag.BN_FORWARD | Flag.BN_BACKWARD | Flag.BN_BACKWARD_2)
    flags = published if Flag.BN_TRAIN in instruction.flags else instruction.flags
    if instruction.stage in (Stage.WEIGHT_GRADIENT, Stage.WEIGHT_UPDATE) or not flags & ~Flag.DROPOUT:
        return BYPASS
    return control_of(replace(instruction, flags=Flag(flags)), shape_of(program, instruction))


def shape_of(program: Program, instruction: Instruction) -> Geometry:
    """The geometry, or one with the map that passes through the unit."""
    if instruction.geometry is not None:
        return program.geometries[instruction.geometry]
    # Forward the unit takes what it is given, backward it gives what its maps have become.
    slot = "src0" if instruction.stage is Stage.FORWARD else "dst0"
    n, c, h, w = (*program.tensors[instruction.operands[slot]].shape, 1, 1, 1)[:4]
    return Geometry(n, c, c, h, w, h, w)


def _csr(program: Program, instruction: Instruction) -> int:
    if instruction.opcode not in PRODUCTS or instruction.geometry is None:
        return 0
    g = program.geometries[instruction.geometry]
    if instruction.opcode is Opcode.LINEAR:
        return _FULLY_CONNECTED << 6 | 1 << 2 | 1 | min(g.co, _LANES) << 8
    backward, gradient = instruction.product is Stage.BACKWARD, instruction.product is Stage.WEIGHT_GRADIENT
    # Backward is a convolution of stride 1; a gradient's kernel is a row of dy.
    stride = 1 if backward or gradient else min(g.stride[1], 3)
    kernel = 2 if gradient else int(max(g.kh, g.kw) > 1)
    width = g.kw if gradient else g.wi if backward else g.wo
    masked = backward and Flag.MASK_READ in instruction.flags
    mode = _MASKED if masked else _CONVOLUTION
    return mode << 6 | 1 << (2 + kernel) | stride | min(width, _LANES) << 8
