"""A device beside the simulator: after every instruction both memories hold the same, or the run ends.

Each side computes with what it computed itself before. What a device does not support, it takes from the simulator.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode, error, quote
from dlc_backend_s2train.checks.problems import needed, title
from dlc_backend_s2train.device.link import Link, linked
from dlc_backend_s2train.device.operation import BASE, STATUS, operation
from dlc_backend_s2train.device.protocol import Space, Status
from dlc_backend_s2train.device.registers import norm_registers, setup_of, writes
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import decode


class Comparison:
    """One run of both."""

    def __init__(self, link: Link, machine: Machine, run: int, tell: Callable[[str], object]) -> None:
        """The device gets all that the simulator's memory holds."""
        self._link, self._machine, self._run, self._tell = link, machine, run, tell
        self._same = 0
        self._unsupported: list[str] = []
        self._overflow = False
        size, _ = needed(machine.program)
        link.write(Space.MEMORY, 0, machine.bytes_at(0, size))

    def before(self, number: int) -> None:
        """The device executes instruction `number`."""
        program = self._machine.program
        instruction = program.instructions[number]
        if instruction.function is not None:
            return
        registers = [*writes(program.target, setup_of(program, instruction))]
        registers += norm_registers(program, instruction, self._machine.bytes_at)
        for address, value in registers:
            self._link.write(Space.REGISTERS, address, struct.pack("<I", value))
        block = operation(program, number, self._machine.hypers, self._run)
        self._link.write(Space.REGISTERS, BASE, block)
        self._link.start()

    def after(self, number: int) -> None:
        """Compare what both have written.

        Raises:
            DlcError: "device-differs" (MISMATCH), with the first difference; "device-failed" (TOOL).
        """
        program = self._machine.program
        instruction = program.instructions[number]
        written = [(s, t) for s, (way, t) in operands_of(program, instruction).items() if way.writes]
        if instruction.function is not None:
            self._give(written)
            return
        if self._link.wait() is Status.UNSUPPORTED:
            self._unsupported.append(str(number))
            self._give(written)
            return
        for slot, number_of in written:
            self._compare(number, slot, number_of)
        if instruction.updates:
            (held,) = struct.unpack("<I", self._link.read(Space.REGISTERS, STATUS, 4))
            self._overflow |= bool(held & 1)
            if self._overflow != self._machine.overflow:
                what = (
                    f"overflow is {int(self._overflow)} on the device, {int(self._machine.overflow)} in the simulator"
                )
                raise self._differs(number, f"the status register differs: {what}")
        self._same += 1

    def finish(self) -> None:
        """Tell how much was compared."""
        text = f"device: {self._same} instructions give the same bits as the simulator"
        if self._unsupported:
            text += f"; {len(self._unsupported)} are not supported by it: {', '.join(self._unsupported[:16])}"
        self._tell(text)

    def _give(self, written: list[tuple[str, int]]) -> None:
        for _, tensor in written:
            address, size = self._place(tensor)
            self._link.write(Space.MEMORY, address, self._machine.bytes_at(address, size))

    def _compare(self, number: int, slot: str, tensor: int) -> None:
        address, size = self._place(tensor)
        wanted, found = self._machine.bytes_at(address, size), self._link.read(Space.MEMORY, address, size)
        if wanted == found:
            return
        t = self._machine.program.tensors[tensor]
        ours, theirs = (decode(np.frombuffer(data, np.uint8), t.shape, t.element) for data in (wanted, found))
        kind = f"u{ours.itemsize}"
        wrong = np.flatnonzero(ours.reshape(-1).view(kind) != theirs.reshape(-1).view(kind))
        if not wrong.size:
            byte = next(k for k in range(size) if wanted[k] != found[k])
            raise self._differs(number, f"{slot} {quote(t.name)} differs behind its last element, at byte {byte}")
        first = int(wrong[0])
        at = ", ".join(str(first // math.prod(t.shape[k + 1 :]) % size) for k, size in enumerate(t.shape))
        one, other = (values.reshape(-1)[first].item() for values in (theirs, ours))
        place = f"{slot} {quote(t.name)}[{at}]"
        what = f"{place} is {one!r} on the device, {other!r} in the simulator"
        raise self._differs(number, f"{what}; {wrong.size:,} of {t.count:,} elements differ")

    def _place(self, tensor: int) -> tuple[int, int]:
        t = self._machine.program.tensors[tensor]
        return self._machine.program.storages[t.storage].address + t.offset, t.nbytes

    def _differs(self, number: int, what: str) -> DlcError:
        return error(
            "device-differs",
            f"{title(number, self._machine.program.instructions[number])}: {what}",
            help=f"--dump DIR --until {number} writes what the instruction reads and writes",
            exit_code=ExitCode.MISMATCH,
        )


@contextmanager
def compared(command: str, machine: Machine, run: int, tell: Callable[[str], object]) -> Generator[Comparison]:
    """A device beside a machine whose run has begun. Raises DlcError as `Comparison.after`."""
    with linked(command) as link:
        yield Comparison(link, machine, run, tell)
