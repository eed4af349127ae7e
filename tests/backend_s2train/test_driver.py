"""The C driver of a program: compiled by gcc and clang with sanitizers, it trains as dlc does, and refuses all else."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.device import C_SOURCES
from dlc_backend_s2train.device.driver import driver_files
from dlc_backend_s2train.device.registers import with_setups

from tests.backend_s2train.device_models import trained_program
from tests.backend_s2train.host_programs import BOARD, compiled, driven, simulated
from tests.backend_s2train.mutations import MUTATIONS, repaired
from tests.backend_s2train.programs import PROGRAMS
from tests.tools import SANITIZING

STEPS = 2


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose loss scale changes: it begins too large."""
    flags = ("--set", "s2-select.loss-scale=dynamic")
    return trained_program(tmp_path_factory.mktemp("program"), *flags).parent


@pytest.fixture(scope="module")
def drivers(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compiled by every compiler that is here."""
    return {c: compiled(tmp_path_factory.mktemp(c), program, 128, 2, c) for c in SANITIZING}


@pytest.mark.parametrize("compiler", SANITIZING)
def test_training_gives_the_same_bits(compiler: str, program: Path, drivers: dict[str, Path]) -> None:
    rng = np.random.default_rng(3)
    data = [(rng.standard_normal((2, 1, 8, 8)).astype(np.float32), rng.integers(0, 5, 2)) for _ in range(STEPS)]
    # In the first step gradients overflow, so that the second has another scale.
    data[0] = (data[0][0] * np.float32(3000), data[0][1])
    output, said, status = driven(drivers[compiler], program / "net.s2t", data)
    assert (said, status) == ("", 0)
    assert output == simulated(program, data)


def test_files_that_are_another_program_are_refused(program: Path, drivers: dict[str, Path], tmp_path: Path) -> None:
    """The command is not even started; no write reaches the board."""
    made = next(iter(drivers.values()))
    right = (program / "net.s2t").read_bytes()
    other = write(replace(read(memoryview(right), "net.s2t"), meta={"of": "another"}))
    rng = random.Random(5)
    mutated = [repaired(rng.choice(MUTATIONS)(rng, bytearray(right))) for _ in range(6)]
    cases = [b"", b"S2TB", right[:200], right + b"\0", right[:-1], other, *mutated]
    zeros = [(np.zeros((2, 1, 8, 8)), np.zeros(2))]
    for content in cases:
        (tmp_path / "other.s2t").write_bytes(content)
        output, said, status = driven(made, tmp_path / "other.s2t", zeros, "exec cat >/dev/null")
        if content != right:
            assert status in (1, 2, 3) and output == b"", (status, said)
            assert re.match("instruction -1: the file ", said), said


@pytest.mark.parametrize(
    ("board", "why"),
    [("exit 3", "the device has ended"), ("cat", "no reply of the protocol"), ("nonsense", "the device has ended")],
)
def test_boards_that_are_none(board: str, why: str, program: Path, drivers: dict[str, Path]) -> None:
    zeros = [(np.zeros((2, 1, 8, 8)), np.zeros(2))]
    _, said, status = driven(next(iter(drivers.values())), program / "net.s2t", zeros, board)
    assert status == 4 and "a function of the board failed" in said and why in said, said


def test_the_board_refuses_what_a_wrong_driver_writes(program: Path, tmp_path: Path) -> None:
    """The registers of a setup are looked at, so that a driver that leaves some out is found."""
    copy = tmp_path / "out"
    copy.mkdir()
    for file in program.iterdir():
        text = file.read_bytes()
        (copy / file.name).write_bytes(text.replace(b"+ ROWS[row], (uint32_t)get(setup, 4)", b"+ ROWS[row], 0u"))
    made = compiled(tmp_path, copy, 128, 2, SANITIZING[0], ())
    _, said, status = driven(made, copy / "net.s2t", [(np.zeros((2, 1, 8, 8)), np.zeros(2))], BOARD)
    assert status == 4 and re.search(r"instruction 7: .*register 0x4081001c should be 0x[0-9a-f]+, it is 0x0", said)


def test_names_of_models_come_to_c_as_identifiers_alone(tmp_path: Path) -> None:
    """Hostile names of entries, inputs and weights compile, and appear nowhere."""
    made = with_setups(PROGRAMS["conv_step"]())
    hostile = 'x */ #error "'
    names = (hostile, "load", "int", "", "7", "ж")
    tensors = tuple(replace(t, name=f"{names[k % len(names)]}") for k, t in enumerate(made.tensors))
    entries = tuple(replace(e, name=hostile, inputs=tuple((hostile, n) for _, n in e.inputs)) for e in made.entries)
    changed = replace(made, tensors=tensors, entries=entries)
    files = driver_files(changed, write(changed), f"{hostile}\n.s2t", f"{hostile}?")
    for name, content in files.items():
        assert re.fullmatch(r"[A-Za-z0-9_]+\.[ch]", name)
        (tmp_path / name).write_bytes(content)
        assert b"#error" not in content
    (source,) = tmp_path.glob("*_host.c")
    for compiler in SANITIZING:
        flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only")
        subprocess.run([compiler, *flags, f"-I{C_SOURCES}", source], check=True)
