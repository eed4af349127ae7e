"""An operation in the registers of a device, executed as `docs/s2train-host.md` says, by the simulator of the pages."""

import binascii
import struct
from typing import Any

import numpy as np

from tests.backend_s2train.page_simulator import NONE, RECORDS, SLOTS, Simulator

LIMIT = 1 << 26
"""Bytes; operands that nobody uses may lie anywhere."""
GEOMETRY, HYPER, RUN, OPERANDS = 0x020, 0x090, 0x0D8, 0x100


class _Only:
    """A table whose only record has every number."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __getitem__(self, number: int) -> Any:
        del number
        return self.record


class Registers(Simulator):
    """The memory of a device, and an operation: operands are where the registers say, not where a file says.

    Behind the bytes that are given lie zeros.
    """

    def __init__(self, block: bytes, memory: bytes) -> None:
        self.host, self.overflow = None, False
        self.block = block
        ends = [sum(struct.unpack_from("<QQ", block, OPERANDS + 64 * k)) for k in range(len(SLOTS))]
        self.memory = np.zeros(max(len(memory), *(end for end in ends if end <= LIMIT)), np.uint8)
        self.memory[: len(memory)] = np.frombuffer(memory, np.uint8)
        form = {name: struct.Struct(RECORDS[name]) for name in ("GEOM", "HYPR")}
        at = {"GEOM": GEOMETRY, "HYPR": HYPER}
        self.file: Any = type("File", (), {})()
        self.file.records = {name: _Only(form[name].unpack_from(block, at[name])) for name in form}

    def place(self, number: int) -> tuple[int, tuple[int, ...], int]:
        """Address, shape and element of the operand in a slot."""
        address, _, element, _, rank, *shape = struct.unpack_from("<QQBBB5x8I", self.block, OPERANDS + 64 * number)
        return address, tuple(shape[:rank]), element

    def start(self) -> bytes:
        """The memory behind the operation."""
        opcode, second, flags, geometry, hyper, *numbers = struct.unpack_from("<BB13H", self.block)
        slots = [NONE if number == NONE else k for k, number in enumerate(numbers[: len(SLOTS)])]
        word = struct.pack("<BB13H", opcode, second, flags, geometry, hyper, *slots) + self.block[28:30]
        (run,) = struct.unpack_from("<Q", self.block, RUN)
        self.execute(word + struct.pack("<H", binascii.crc_hqx(word, 0xFFFF)), run)
        return self.memory.tobytes()
