"""Devices beside the simulator: the protocol, the registers that an operation wants, `dlc run --device`."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_s2train.checks import Verified, verified
from dlc_backend_s2train.container import read
from dlc_backend_s2train.device.board import Board
from dlc_backend_s2train.device.compare import Comparison
from dlc_backend_s2train.device.link import Link
from dlc_backend_s2train.device.operation import BASE, HYPER_AT, operation
from dlc_backend_s2train.device.protocol import REQUEST, Ask, Space, Status
from dlc_backend_s2train.device.registers import CSR, NORM_CONFIG, POOL_CONFIG, RESET, column_base, setup_of, writes
from dlc_backend_s2train.program import Target
from dlc_backend_s2train.simulator.machine import Machine

from dlc import DlcError
from dlc.base.diagnostics import ExitCode
from dlc.cli.frame import run
from tests.backend_s2train.device_models import trained_program

EXAMPLE = Path(__file__).parents[2] / "examples" / "s2train"
STEP = {"x": np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 1, 8, 8), "y": np.array([1, 3])}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    return trained_program(tmp_path_factory.mktemp("program"), shared)


@pytest.fixture(scope="module")
def legal(program: Path) -> Verified:
    return verified(read(memoryview(program.read_bytes()), "net.s2t"))


class Direct(Link):
    """A device in this process."""

    def __init__(self, board: Board) -> None:
        self._board, self._replies, self._command = board, io.BytesIO(), "board"

    def _send(self, data: bytes) -> None:
        self._board.serve(io.BytesIO(data), replies := io.BytesIO())
        self._replies = io.BytesIO(self._replies.read() + replies.getvalue())

    def _received(self, size: int) -> bytes:
        return self._replies.read(size)


class Faulty(Board):
    """A device whose memory changes a bit of one operand."""

    at = -1
    """Address that is read wrong."""

    def _answered(self, ask: Ask, space: Space, address: int, size: int, data: bytes) -> bytes | None:
        found = super()._answered(ask, space, address, size, data)
        if found and ask is Ask.READ and space is Space.MEMORY and address <= self.at < address + size:
            k = self.at - address
            return found[:k] + bytes([found[k] ^ 1]) + found[k + 1 :]
        return found


class Partial(Board):
    """A device that has no products."""

    def _start(self) -> None:
        if self._block[0] in (1, 2):
            self._reset, self._problem = {}, (Status.UNSUPPORTED, "no array")
        else:
            super()._start()


def steps(machine: Machine, link: Link, said: list[str]) -> Iterator[int]:
    """A step on both sides."""
    entry = machine.entry("step")
    number = machine.begin("step", STEP)
    comparison = Comparison(link, machine, number, said.append)
    for k in range(entry.begin, entry.end):
        comparison.before(k)
        machine.execute(k, number)
        comparison.after(k)
        yield k
    comparison.finish()


def test_the_simulator_as_a_device_agrees_with_the_simulator(legal: Verified) -> None:
    said: list[str] = []
    board = Board()
    count = len([*steps(Machine(legal, "bit-true"), link := Direct(board), said)])
    assert said == [f"device: {count} instructions give the same bits as the simulator"]
    assert link.time() > 0


def test_the_first_difference_is_named(legal: Verified) -> None:
    machine = Machine(legal, "bit-true")
    entry = machine.entry("step")
    third = machine.program.instructions[entry.begin + 2]
    tensor = machine.program.tensors[third.operands["dst0"]]
    board = Faulty()
    board.at = machine.program.storages[tensor.storage].address + tensor.offset + 2 * 3
    done: list[int] = []
    with pytest.raises(DlcError) as refused:
        done += steps(machine, Direct(board), [])
    (problem,) = refused.value.diagnostics
    assert problem.code == "device-differs" and refused.value.exit_code == ExitCode.MISMATCH
    where = f"instruction {entry.begin + 2} (linear forward): dst0 "
    assert problem.message.startswith(where) and "[0, 3] is " in problem.message, problem.message
    assert "on the device" in problem.message and "1 of 10 elements differ" in problem.message


def test_what_a_device_does_not_support_comes_from_the_simulator(legal: Verified) -> None:
    said: list[str] = []
    count = len([*steps(Machine(legal, "bit-true"), Direct(Partial()), said)])
    assert f"; {count - 1} are not supported by it: " in said[0] and said[0].startswith("device: 1 instructions")


def _loaded(legal: Verified, number: int) -> tuple[Direct, bytes]:
    """A device right before it starts an instruction of a program whose values are all those of the file."""
    machine, link = Machine(legal, "bit-true"), Direct(Board())
    program = legal.program
    link.write(Space.MEMORY, 0, machine.bytes_at(0, max(s.address + s.size for s in program.storages)))
    for address, value in writes(program.target, setup_of(program, program.instructions[number])):
        link.write(Space.REGISTERS, address, struct.pack("<I", value))
    return link, operation(program, number, program.hypers, 0)


def _backward(legal: Verified) -> int:
    """A linear backward: it has no norms."""
    return next(k for k, i in enumerate(legal.program.instructions) if (i.opcode, i.stage) == (2, 1))


def _word(offset: int, value: int) -> Any:
    def change(block: bytearray) -> None:
        struct.pack_into("<Q", block, offset, value)

    return change


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (0x000, 0x7F, "CRC-16"),
        (0x100, 1 << 60, "memory"),
        (0x100, 3, "bytes"),
        (0x108, 6, "has 20 bytes, not 6"),
        (0x110, 0x09, "element 9"),
        (0x118, 7, "bytes"),
        (0x180, 1 << 34, "memory"),
    ],
)
def test_an_operation_that_is_not_legal_changes_nothing(legal: Verified, offset: int, value: int, why: str) -> None:
    link, right = _loaded(legal, _backward(legal))
    before = link.read(Space.MEMORY, 0, 2048)
    block = bytearray(right)
    _word(offset, value)(block)
    link.write(Space.REGISTERS, BASE, bytes(block))
    link.start()
    with pytest.raises(DlcError) as refused:
        link.wait()
    assert refused.value.diagnostics[0].code == "device-failed"
    assert why in str(refused.value) or "answered refused" in str(refused.value), refused.value
    assert link.read(Space.MEMORY, 0, 2048) == before
    # The device goes on with what is legal.
    program = legal.program
    for address, held in writes(program.target, setup_of(program, program.instructions[_backward(legal)])):
        link.write(Space.REGISTERS, address, struct.pack("<I", held))
    link.write(Space.REGISTERS, BASE, right)
    link.start()
    assert link.wait() is Status.OK


@pytest.mark.parametrize(
    "address",
    [
        column_base(Target(), 0) + CSR[0],
        column_base(Target(), 63) + CSR[3],
        column_base(Target(), 17) + NORM_CONFIG,
        column_base(Target(), 40) + POOL_CONFIG,
        RESET,
        RESET + 0x1C,
    ],
)
def test_registers_that_are_not_the_instructions_are_refused(legal: Verified, address: int) -> None:
    link, block = _loaded(legal, _backward(legal))
    link.write(Space.REGISTERS, address, struct.pack("<I", 0x5))
    link.write(Space.REGISTERS, BASE, block)
    link.start()
    with pytest.raises(DlcError, match=f"answered refused: register {address:#x} "):
        link.wait()


def test_registers_of_norms_hold_the_operand_of_the_instruction(legal: Verified) -> None:
    number = next(k for k, i in enumerate(legal.program.instructions) if "bn0" in i.operands)
    link, block = _loaded(legal, number)
    link.write(Space.REGISTERS, BASE, block)
    link.start()
    with pytest.raises(DlcError, match="as the norm's operand has it, it is None"):
        link.wait()


def test_requests_that_are_none_end_the_conversation() -> None:
    for data in (REQUEST.pack(0x58, 0, 0, 0), REQUEST.pack(ord("R"), 7, 4, 0), REQUEST.pack(ord("R"), 0, 1 << 30, 0)):
        Board().serve(io.BytesIO(data), replies := io.BytesIO())
        assert b"no request" in replies.getvalue()
    link = Direct(Board(limit=1 << 16))
    for address in (1 << 40, (1 << 16) - 1):
        link.write(Space.MEMORY, address, b"ab")
        with pytest.raises(DlcError, match="memory ends at 65,536"):
            link.time()
    link.write(Space.REGISTERS, BASE + 1, b"abc")
    with pytest.raises(DlcError, match="registers have 4 bytes each"):
        link.time()
    link.write(Space.REGISTERS, BASE + HYPER_AT, b"abcd")
    assert link.time() == 0


@pytest.mark.needs("iverilog")
def test_the_example_in_verilog_agrees_with_dump_and_simulator(
    program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Run by Icarus Verilog: on the files of a dump, and as a device; a unit that reads its mask otherwise is found."""
    source = (EXAMPLE / "linear_backward.v").read_text()
    (tmp_path / "wrong.v").write_text(source.replace("masked && !mask", "masked && mask"))
    for name, file in (("right", EXAMPLE / "linear_backward.v"), ("wrong", tmp_path / "wrong.v")):
        subprocess.run(["iverilog", "-g2005", "-o", tmp_path / name, file], check=True)
    dump = tmp_path / "dump"
    assert run(["run", str(program), "--entry", "step", "--dump", str(dump), "-q"]) == 0
    checked = [folder for folder in dump.iterdir() if folder.name.endswith("linear_backward")]
    assert len(checked) == 2
    for folder in checked:
        (samples, outputs), inputs = np.load(folder / "src0.npy").shape, np.load(folder / "src1.npy").shape[1]
        line = ["vvp", tmp_path / "right", f"+samples={samples}", f"+outputs={outputs}", f"+inputs={inputs}"]
        files = [f"+src0={folder}/src0.hex", f"+src1={folder}/src1.hex", f"+golden={folder}/dst0.out.hex"]
        files += [f"+mask={folder}/mask.hex"] if (folder / "mask.hex").exists() else []
        made = subprocess.run([*line, *files], check=True, capture_output=True, text=True).stdout
        assert f"0 of {samples * inputs} elements differ" in made
    capfd.readouterr()
    device = f"{sys.executable} {EXAMPLE / 'verilog_device.py'} {tmp_path}"
    line = ["run", str(program), "--entry", "step", "-q", "--device"]
    assert run([*line, f"{device}/right"]) == 0
    assert "device: 2 instructions give the same bits as the simulator; 8 are not" in capfd.readouterr().err
    assert run([*line, f"{device}/wrong"]) == ExitCode.MISMATCH
    assert "(linear backward): dst0 " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "why"), [("cat", "which is no reply of the protocol"), ("exit 3", "ended"), ("nonsense", "ended")]
)
def test_a_command_that_is_no_device(program: Path, command: str, why: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(program), "--device", command, "-q"]) == ExitCode.TOOL
    said = capfd.readouterr().err
    assert f"--device {command}: it " in said and why in said, said
