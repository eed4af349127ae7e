"""The simulator as a device: memory and registers that a host reaches by the protocol, `dlc board`.

Its registers are looked at: an operation whose setup, resets or norms are not those of its instruction is refused, and
so is one that the verifier finds wrong, before anything changes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

from dlc.base.diagnostics import DlcError
from dlc_backend_s2train.checks import verified
from dlc_backend_s2train.cost.estimate import estimate
from dlc_backend_s2train.defaults import LIMIT
from dlc_backend_s2train.device.operation import BASE, SIZE, STATUS, understood
from dlc_backend_s2train.device.protocol import (
    MESSAGE,
    MOST,
    REPLY,
    REQUEST,
    TIME,
    Ask,
    Space,
    Status,
    read_exactly,
)
from dlc_backend_s2train.device.registers import RESET, norm_registers, setup_of, writes
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Mode


class Board:
    """A device with memory up to `limit` bytes, all zeros at first."""

    def __init__(self, mode: Mode = "bit-true", limit: int = LIMIT) -> None:
        self._mode: Mode = mode
        self._limit = limit
        self._memory = bytearray()
        self._block = bytearray(SIZE)
        self._registers: dict[int, int] = {}
        self._reset: dict[int, int] = {}
        """Registers of resets that were written since the last operation."""
        self._overflow = False
        self._cycles = 0
        self._problem: tuple[Status, str] | None = None

    def serve(self, requests: BinaryIO, replies: BinaryIO) -> None:
        """Answer until the requests end."""
        while len(head := read_exactly(requests, REQUEST.size)) == REQUEST.size:
            ask, space, size, address = REQUEST.unpack(head)
            if size > MOST or ask not in frozenset(Ask) or space not in frozenset(Space):
                self._reply(replies, Status.FAILED, f"no request: op {ask}, space {space}, {size} bytes".encode())
                return
            data = read_exactly(requests, size) if ask == Ask.WRITE else b""
            try:
                answer = self._answered(Ask(ask), Space(space), address, size, data)
            except _Refused as refused:
                answer, self._problem = None, self._problem or (refused.status, str(refused))
            if ask in (Ask.READ, Ask.WAIT, Ask.TIME):
                problem, self._problem = self._problem, None
                if problem is None:
                    self._reply(replies, Status.OK, answer or b"")
                else:
                    self._reply(replies, problem[0], problem[1].encode()[:MESSAGE])

    @staticmethod
    def _reply(replies: BinaryIO, status: Status, data: bytes) -> None:
        replies.write(REPLY.pack(status, len(data)) + data)
        replies.flush()

    def _answered(self, ask: Ask, space: Space, address: int, size: int, data: bytes) -> bytes | None:
        match ask, space:
            case Ask.WRITE, Space.MEMORY:
                self._room(address, size)
                self._memory[address : address + size] = data
            case Ask.READ, Space.MEMORY:
                self._room(address, size)
                return bytes(self._memory[address : address + size])
            case Ask.WRITE, Space.REGISTERS:
                self._put(address, data)
            case Ask.READ, Space.REGISTERS:
                if (address, size) != (STATUS, 4):
                    raise _Refused(Status.FAILED, f"there is no register to read at {address:#x}")
                return struct.pack("<I", self._overflow)
            case Ask.START, _:
                self._start()
            case Ask.TIME, _:
                return TIME.pack(self._cycles)
            case _:
                return b""
        return None

    def _room(self, address: int, size: int) -> None:
        """Memory up to `address + size`."""
        if address + size > self._limit:
            raise _Refused(Status.FAILED, f"memory ends at {self._limit:,}, not at {address + size:,}")
        if (more := address + size - len(self._memory)) > 0:
            self._memory += bytes(more)

    def _put(self, address: int, data: bytes) -> None:
        if address % 4 or len(data) % 4:
            raise _Refused(Status.FAILED, f"registers have 4 bytes each: {len(data)} bytes at {address:#x}")
        if address >= BASE and address + len(data) <= BASE + SIZE:
            self._block[address - BASE : address - BASE + len(data)] = data
            return
        for k, (value,) in enumerate(struct.iter_unpack("<I", data)):
            place = self._reset if address & 0xFF000000 == RESET else self._registers
            if address + 4 * k >= 1 << 32 or len(place) > 1 << 16:
                raise _Refused(Status.FAILED, f"there is no register at {address + 4 * k:#x}")
            place[address + 4 * k] = value

    def _start(self) -> None:
        """Execute the operation in the registers."""
        if self._problem:
            raise _Refused(*self._problem)
        resets, self._reset = self._reset, {}
        try:
            found = understood(bytes(self._block))
            program = verified(found.program, self._limit)
        except DlcError as refused:
            raise _Refused(Status.REFUSED, refused.diagnostics[0].message) from None
        for begin, _, size in found.places:
            self._room(begin, size)
        machine = Machine(program, self._mode)
        for begin, inside, size in found.places:
            machine.put_bytes(inside, bytes(self._memory[begin : begin + size]))
        for message in self._wrong_registers(found.program, resets, machine.bytes_at):
            raise _Refused(Status.REFUSED, message)
        try:
            machine.execute(0, found.run)
        except DlcError as refused:
            raise _Refused(Status.REFUSED, refused.diagnostics[0].message) from None
        for begin, inside, size in found.places:
            self._memory[begin : begin + size] = machine.bytes_at(inside, size)
        self._overflow = machine.overflow
        try:
            self._cycles += estimate(found.program)[0].times.total
        except DlcError:  # time is estimated, and not of everything
            self._cycles += 1

    def _wrong_registers(
        self, program: Program, resets: dict[int, int], memory: Callable[[int, int], bytes]
    ) -> Iterator[str]:
        """What the registers hold that is not the instruction's."""
        (instruction,) = program.instructions
        if instruction.opcode is Opcode.HOST:
            yield "functions of the host are none of the device's"
            return
        wanted = dict(writes(program.target, setup_of(program, instruction)))
        for address, value in wanted.items():
            held = (resets if address & 0xFF000000 == RESET else self._registers).get(address)
            if held != value:
                found = "not written" if held is None else f"{held:#x}"
                yield f"register {address:#x} should be {value:#x}, it is {found}"
        for address in resets.keys() - wanted.keys():
            yield f"register {address:#x} resets a unit that this instruction leaves as it is"
        for address, value in norm_registers(program, instruction, memory):
            if (held := self._registers.get(address)) != value:
                yield f"register {address:#x} should be {value:#x}, as the norm's operand has it, it is {held}"


class _Refused(Exception):
    """A request that cannot be done."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
