"""The corpus of programs that some compilers compile wrong, and what tells that one of them does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from dlc_backend_c.faults import known_faults, meaning, programs

from tests.tools import COMPILERS


@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("cc", COMPILERS)
def test_every_program_is_right_without_optimisation(cc: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "fault.c").write_text(programs()[name])
    command = [cc, "-std=gnu99", "-O0", "-Wall", "-Wextra", "-Werror", "fault.c", "-o", "fault"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "fault"], check=True)
    assert meaning(programs()[name]).endswith(".py.")


def test_a_compiler_that_is_wrong_is_told(tmp_path: Path) -> None:
    """One that breaks the table of the first program, and is right otherwise."""
    fake = tmp_path / "cc"
    fake.write_text(
        f'#!/bin/sh\nsed -i "s/10, 20}}/10, 30}}/" fault.c\nexec {shutil.which("gcc")} -O0 -w fault.c -o fault\n'
    )
    fake.chmod(0o755)
    assert [name for name, _ in known_faults((str(fake),))] == ["condition_index"]
    assert not list(known_faults((str(tmp_path / "none"),)))
