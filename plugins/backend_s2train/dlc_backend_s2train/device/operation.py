"""An instruction with everything that it refers to, as registers of the device: `operation`, and back (`Operation`).

    0x000  the word of version 2, 32 bytes       0x090  hyper-parameters as in HYPR, 72 bytes (0: none)
    0x020  geometry as in GEOM, 100 bytes        0x0D8  how often the entry ran before, u64
    0x100  ten operands of 64 bytes, in the order of the word; zeros where there is none:
           address u64, bytes u64, element u8, role u8, rank u8, 5 x 0, shape 8 x u32

So a device needs no tables: a host writes these registers and starts. Numbers in the word stay those of the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dlc.base.diagnostics import error
from dlc_backend_s2train.codes import OPERANDS, Arena, Element, Role, Slot
from dlc_backend_s2train.container.layout import GEOM, HYPR, RANK, WORD_2
from dlc_backend_s2train.container.record import RESERVED, pack, unpack
from dlc_backend_s2train.container.writer import plain
from dlc_backend_s2train.isa.words import decode, encode
from dlc_backend_s2train.program import Entry, Geometry, Hyper, Instruction, Program, Storage, Tensor

BASE: Final = 0xE0000000
"""Address of the registers."""
GEOMETRY_AT: Final = 0x020
HYPER_AT: Final = 0x090
RUN_AT: Final = 0x0D8
OPERANDS_AT: Final = 0x100
OPERAND: Final = struct.Struct(f"<QQBBB5x{RANK}I")
OPERAND_STEP: Final = 64
SIZE: Final = OPERANDS_AT + OPERAND_STEP * len(OPERANDS)
STATUS: Final = BASE + SIZE
"""Address of a register that is read: bit 0 is `overflow` of the instruction that ran last."""
_ALIGN: Final = 64
_ELEMENTS: Final = {e.code: e for e in Element}
_ROLES: Final = {r.value: r for r in Role}


def operation(program: Program, number: int, hypers: tuple[Hyper, ...], run: int) -> bytes:
    """The registers for an instruction that the device executes, with the hyper-parameters of now."""
    instruction = program.instructions[number]
    block = bytearray(SIZE)
    block[:WORD_2] = encode(instruction)
    if instruction.geometry is not None:
        block[GEOMETRY_AT : GEOMETRY_AT + GEOM.size] = pack(GEOM, plain(program.geometries[instruction.geometry]))
    if instruction.hyper is not None:
        block[HYPER_AT : HYPER_AT + HYPR.size] = pack(HYPR, plain(hypers[instruction.hyper]))
    struct.pack_into("<Q", block, RUN_AT, run)
    for k, slot in enumerate(OPERANDS):
        if slot in instruction.operands:
            t = program.tensors[instruction.operands[slot]]
            address = program.storages[t.storage].address + t.offset
            shape = (*t.shape, *(0,) * (RANK - len(t.shape)))
            values = (address, t.nbytes, t.element.code, t.role.value, len(t.shape), *shape)
            OPERAND.pack_into(block, OPERANDS_AT + OPERAND_STEP * k, *values)
    return bytes(block)


@dataclass(frozen=True)
class Operation:
    """What the registers say: a program of one instruction, in a memory of its own that holds its operands alone."""

    program: Program
    run: int
    places: tuple[tuple[int, int, int], ...]
    """(address in the device, address in the program, bytes) of what the operands take."""


def understood(block: bytes) -> Operation:
    """The operation that registers describe; whether it is legal is for the verifier.

    Raises:
        DlcError: "bad-word", "bad-instruction", "checksum", "bad-operation".
    """
    instruction = decode(block[:WORD_2])
    if instruction.function is not None:
        raise _bad("functions of the host are none of the device's")
    tensors: dict[Slot, tuple[int, Tensor]] = {
        slot: _operand(block, k) for k, slot in enumerate(OPERANDS) if slot in instruction.operands
    }
    ranges = _joined([(address, address + t.nbytes) for address, t in tensors.values()])
    places: list[tuple[int, int, int]] = []
    end = 0
    for begin, behind in ranges:
        # Alignment to elements is the device's.
        inside = -(-end // _ALIGN) * _ALIGN + begin % _ALIGN
        places.append((begin, inside, behind - begin))
        end = inside + behind - begin
    storages = tuple(Storage(Arena.WEIGHTS, inside, size, 0, 1) for _, inside, size in places)
    held: list[Tensor] = []
    for address, tensor in tensors.values():
        number = next(k for k, (begin, _, size) in enumerate(places) if begin <= address < begin + size)
        held.append(replace(tensor, storage=number, offset=address - places[number][0]))
    geometry: tuple[Geometry, ...] = ()
    if instruction.geometry is not None:
        geometry = (Geometry(**unpack(GEOM, block, GEOMETRY_AT)),)
    hyper = (_hyper(unpack(HYPR, block, HYPER_AT)),) if instruction.hyper is not None else ()
    alone = _alone(instruction, {slot: k for k, slot in enumerate(tensors)})
    program = Program(tuple(held), storages, geometry, hyper, (alone,), (Entry("operation", 0, 1),))
    (run,) = struct.unpack_from("<Q", block, RUN_AT)
    return Operation(program, run, tuple(places))


def _alone(instruction: Instruction, operands: Mapping[Slot, int]) -> Instruction:
    """The instruction in a program of its own; nobody is there to wait for."""
    geometry = None if instruction.geometry is None else 0
    hyper = None if instruction.hyper is None else 0
    return replace(instruction, geometry=geometry, hyper=hyper, operands=operands, wait=0, signal=0)


def _operand(block: bytes, k: int) -> tuple[int, Tensor]:
    address, size, element, role, rank, *shape = OPERAND.unpack_from(block, OPERANDS_AT + OPERAND_STEP * k)
    slot = OPERANDS[k]
    if element not in _ELEMENTS or role not in _ROLES or rank > RANK or not all(shape[:rank]):
        raise _bad(f"operand {slot} has element {element}, role {role}, rank {rank} and the dimensions {shape}")
    tensor = Tensor(slot, 0, tuple(shape[:rank]), _ELEMENTS[element], _ROLES[role])
    if tensor.nbytes != size:
        raise _bad(f"operand {slot} of {list(tensor.shape)} has {tensor.nbytes} bytes, not {size}")
    return address, tensor


def _hyper(values: dict[str, Any]) -> Hyper:
    if any(isinstance(v, float) and not math.isfinite(v) for v in values.values()) or values["nesterov"] > 1:
        raise _bad(f"hyper-parameters are {values}")
    return Hyper(**{k: bool(x) if k == "nesterov" else x for k, x in values.items() if k != RESERVED})


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of bytes, those that share bytes joined, ascending."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _bad(message: str) -> Exception:
    return error("bad-operation", message, help="write all registers of the operation before it starts")
