"""What each instruction of a run reads and writes, and its registers, as files for a test bench.

index.json                     everything below, and the program
0005_conv_forward/src0.npy     values before the instruction, as numpy reads them: bits and pointers one to a byte
0005_conv_forward/src0.hex     the same bytes as they lie in memory, for $readmemh: an element a line, of masks and
                               pointers a byte a line
0005_conv_forward/dst0.out.*   after the instruction
0005_conv_forward/registers.hex  address and value of every register that the host writes, 32 bits each
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from dlc.base.diagnostics import ExitCode, error
from dlc.files.writing import write_whole
from dlc_backend_s2train.codes import Element, Way
from dlc_backend_s2train.container.layout import WORD_2
from dlc_backend_s2train.device.operation import BASE, operation
from dlc_backend_s2train.device.registers import norm_registers, setup_of, writes
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.isa.instruction_set import FORM_OF, spelled
from dlc_backend_s2train.isa.text import print_v2
from dlc_backend_s2train.program import Instruction
from dlc_backend_s2train.simulator.machine import Machine
from dlc_backend_s2train.simulator.operands import Array

VERSION: Final = 1
_STORED: Final = {Element.FP16: "<f2", Element.FP32: "<f4", Element.INT32: "<i4"}
_REGISTER: Final = struct.Struct(">II")


class Dump:
    """Files of one run: `before` and `after` each instruction, then `finish`."""

    def __init__(self, directory: Path, machine: Machine, file: bytes | memoryview, entry: str, run: int) -> None:
        """Begin.

        Raises:
            DlcError: (USAGE) the directory has files in it, or cannot be written.
        """
        self._directory, self._machine, self._run = directory, machine, run
        self._instructions: list[dict[str, Any]] = []
        self._head = {
            "format": "s2t-dump",
            "version": VERSION,
            "program": hashlib.sha256(file).hexdigest(),
            "entry": entry,
            "run": run,
        }
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise error(
                "cannot-write",
                f"--dump {directory}: there is something already",
                help="give a directory that is empty, or that does not exist yet",
                exit_code=ExitCode.USAGE,
            )

    def before(self, number: int) -> None:
        """What instruction `number` is about to read, and its registers."""
        program = self._machine.program
        instruction = program.instructions[number]
        place = f"{number:04}_{_title(instruction).replace(' ', '_')}"
        said: dict[str, Any] = {"number": number, "text": print_v2(instruction), "directory": place}
        if instruction.function is None:
            block = operation(program, number, self._machine.hypers, self._run)
            said |= {"word": block[:WORD_2].hex(), "registers": f"{place}/registers.hex"}
            self._write(f"{place}/registers.hex", self._registers(instruction, block))
            said["setup"] = asdict(setup_of(program, instruction))
        if instruction.geometry is not None:
            said["geometry"] = asdict(program.geometries[instruction.geometry])
        if instruction.hyper is not None:
            said["hyper"] = asdict(self._machine.hypers[instruction.hyper])
        # What works on some samples leaves the others as they are.
        parts = instruction.geometry is not None and program.geometries[instruction.geometry].samples != (0, 0)
        said["operands"] = [
            {
                **self._operand(slot, way, tensor),
                **({"before": self._values(place, slot, tensor)} if way.reads or parts else {}),
            }
            for slot, (way, tensor) in operands_of(program, instruction).items()
        ]
        self._instructions.append(said)

    def after(self, number: int) -> None:
        """What instruction `number` has written."""
        said = self._instructions[-1]
        for operand in said["operands"]:
            if Way(operand["way"]).writes:
                name = f"{operand['slot']}.out"
                operand["after"] = self._values(said["directory"], name, operand["tensor"])
        said["overflow"] = self._machine.overflow

    def finish(self) -> None:
        """The index: a dump without one was interrupted."""
        self._write("index.json", json.dumps({**self._head, "instructions": self._instructions}, indent=1).encode())

    def _operand(self, slot: str, way: Way, number: int) -> dict[str, Any]:
        t = self._machine.program.tensors[number]
        return {
            "slot": slot.replace(" ", "_"),
            "way": way.value,
            "tensor": number,
            "name": t.name,
            "element": t.element.name.lower(),
            "shape": list(t.shape),
            "address": self._machine.program.storages[t.storage].address + t.offset,
            "bytes": t.nbytes,
        }

    def _values(self, place: str, name: str, number: int) -> dict[str, str]:
        """Both files of a tensor as it is now."""
        t = self._machine.program.tensors[number]
        data = self._machine.bytes_at(self._machine.program.storages[t.storage].address + t.offset, t.nbytes)
        stored = _STORED.get(t.element)
        values: Array = self._machine.read(number) if stored is None else np.frombuffer(data, stored).reshape(t.shape)
        name = f"{place}/{name.replace(' ', '_')}"
        made = io.BytesIO()
        np.save(made, values)
        self._write(f"{name}.npy", made.getvalue())
        self._write(f"{name}.hex", hex_lines(data, 1 if stored is None else t.element.bits // 8))
        return {"npy": f"{name}.npy", "hex": f"{name}.hex"}

    def _registers(self, instruction: Instruction, block: bytes) -> bytes:
        """Resets, setup, norms, then the operation."""
        program = self._machine.program
        pairs = [*writes(program.target, setup_of(program, instruction))]
        pairs += norm_registers(program, instruction, self._machine.bytes_at)
        pairs += [(BASE + 4 * k, value) for k, (value,) in enumerate(struct.iter_unpack("<I", block))]
        return hex_lines(b"".join(_REGISTER.pack(*pair) for pair in pairs), 4, "big")

    def _write(self, name: str, content: bytes) -> None:
        write_whole(self._directory / name, content, make_directory=True)


def hex_lines(data: bytes, width: int, order: str = "little") -> bytes:
    """Words of `width` bytes, each a line of digits, the highest first."""
    words = np.frombuffer(data, f"{'<' if order == 'little' else '>'}u{width}").astype(f">u{width}")
    return (words.tobytes().hex("\n", width) + "\n").encode()


def _title(instruction: Instruction) -> str:
    stages = sum(opcode is instruction.opcode for opcode, _ in FORM_OF)
    return spelled(instruction.opcode) + (f" {spelled(instruction.stage)}" if stages > 1 else "")
