"""The C driver of a program: compiled by gcc and clang with sanitizers, it trains as dlc does, and refuses all else."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_s2train.checks import verified, verify
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.device import C_SOURCES
from dlc_backend_s2train.device.driver import driver_files
from dlc_backend_s2train.device.registers import with_setups
from dlc_backend_s2train.simulator.machine import Machine

from dlc.cli.frame import run
from tests.backend_s2train.device_models import trained_program
from tests.backend_s2train.host_programs import called, compiled, driven, simulated
from tests.backend_s2train.mutated_doors import DOORS, by_driver
from tests.backend_s2train.programs import PROGRAMS, hosted
from tests.tools import SANITIZING

STEPS = 2
pytestmark = pytest.mark.uses("clang")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """The directory of a training program."""
    return trained_program(tmp_path_factory.mktemp("program"), shared).parent


@pytest.fixture(scope="module")
def drivers(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compiled by every compiler that is here."""
    return {c: compiled(tmp_path_factory.mktemp(c), program, 128, 2, c) for c in SANITIZING}


@pytest.mark.needs("gcc's sanitizers")
def test_training_gives_the_same_bits(program: Path, drivers: dict[str, Path]) -> None:
    """All compilers compile the driver; one trains, benchmarks/s2t_driver.py has both train."""
    rng = np.random.default_rng(3)
    data = [(rng.standard_normal((2, 1, 8, 8)).astype(np.float32), rng.integers(0, 5, 2)) for _ in range(STEPS)]
    output, said, status = driven(drivers[SANITIZING[-1]], program / "net.s2t", data)
    assert (said, status) == ("", 0)
    wanted, scales = simulated(program, data)
    assert output == wanted and scales[0] > scales[1], "gradients should overflow in the first step"


def test_a_file_that_is_another_program_is_refused(program: Path, drivers: dict[str, Path], tmp_path: Path) -> None:
    """Although it is a program that the verifier finds right."""
    right = (program / "net.s2t").read_bytes()
    other = write(replace(read(memoryview(right), "net.s2t"), meta={"of": "another"}))
    (tmp_path / "other.s2t").write_bytes(other)
    zeros = [(np.zeros((2, 1, 8, 8)), np.zeros(2))]
    made = next(iter(drivers.values()))
    output, said, status = driven(made, tmp_path / "other.s2t", zeros, "exec cat >/dev/null")
    assert (status, output) == (3, b"") and "is not the program that the driver was written for" in said


@pytest.mark.parametrize(
    ("board", "why"),
    [("exit 3", "the device has ended"), ("cat", "no reply of the protocol")],
)
def test_boards_that_are_none(board: str, why: str, program: Path, drivers: dict[str, Path]) -> None:
    zeros = [(np.zeros((2, 1, 8, 8)), np.zeros(2))]
    _, said, status = driven(next(iter(drivers.values())), program / "net.s2t", zeros, board)
    assert status == 4 and "a function of the board failed" in said and why in said, said


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


@pytest.mark.parametrize("door", DOORS)
def test_damaged_programs_come_through_no_door(door: str, tmp_path: Path) -> None:
    """A few of those of `benchmarks/s2t_fuzz.py`: nothing that is not legal is executed."""
    found = {DOORS[door](number, tmp_path) for number in range(24)}
    assert len(found) == 2, found


@pytest.mark.parametrize("number", [4235, 10491, 13898])
def test_a_device_agrees_with_the_pages_at_the_ends(number: int, tmp_path: Path) -> None:
    """Operands behind the memory that was written, which is zeros; a decay that fp32 rounds to 0, and an infinite
    weight."""
    assert DOORS["device"](number, tmp_path) == "executed"


@pytest.mark.needs("gcc's sanitizers")
def test_a_driver_refuses_damaged_programs(tmp_path: Path) -> None:
    found = by_driver(range(100), tmp_path, "gcc")
    assert found.total() > 90 and len(found) == 3


@pytest.mark.needs("gcc's sanitizers")
def test_functions_of_the_host_are_computed_in_c(tmp_path: Path) -> None:
    """`dlc host-functions` compiles them for the target c: what dlc computes, but for the rounding of a power."""
    made = with_setups(hosted())
    content = write(made)
    (tmp_path / "h.s2t").write_bytes(content)
    for name, text in driver_files(made, content, "h.s2t", "h").items():
        (tmp_path / name).write_bytes(text)
    assert run(["host-functions", str(tmp_path / "h.s2t")]) == 0
    sources = [tmp_path / name for name in ("h_host.c", "h_functions.c", "h_f0.c")]
    x = np.random.default_rng(8).standard_normal((1, 4, 3, 3)).astype(np.float32)
    output = np.frombuffer(called(tmp_path, tmp_path / "h.s2t", sources, x, "gcc"), np.float32)
    wanted = Machine(verified(made), "bit-true").run("predict", {"x": x})["y"]
    np.testing.assert_allclose(output.reshape(wanted.shape), wanted, rtol=2e-3, atol=2e-3)


def test_registers_in_a_file_are_those_of_its_instructions() -> None:
    made = with_setups(PROGRAMS["conv_step"]())
    assert read(memoryview(write(made)), "file") == made and not verify(made)
    other = replace(made, setups=(replace(made.setups[0], csr=made.setups[0].csr ^ 1), *made.setups[1:]))
    (found,) = verify(read(memoryview(write(other)), "file"))
    assert found.code == "bad-registers" and "instruction 0 (" in found.message
    (found,) = verify(replace(made, setups=made.setups[1:]))
    assert found.code == "bad-registers"
