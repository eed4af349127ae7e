"""A machine without some of the programs that tests use: what is missing is one line, and an error where CI runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import SLOW_TESTS
from tests.programs import main, path_with
from tests.tools import FOR_LONG, OPTIONAL, OTHERS, PACKAGES, PATH, is_here, missing, program

ROOT = Path(__file__).parents[1]
PROGRAMS = tuple(tool for tool in OPTIONAL if tool not in {**OTHERS, **FOR_LONG} and "'s " not in tool)


def started(ci: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The suite's own start on a PATH without optional programs."""
    command = [sys.executable, "-m", "tests.programs", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PATH": PATH, "CI": ci}
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_what_is_missing_is_named_and_the_rest_runs() -> None:
    done = started("false", "tests/docs/test_licence.py", f"{__file__}::test_without_a_tool")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("left out, because this machine lacks it: ")]
    names = line.partition("tests with ")[2].partition(" (apt install g++ clang ")[0].split(", ")
    assert {*PROGRAMS, "clang's sanitizers"} <= {*names} and "gcc" not in names
    assert " passed, 1 skipped" in done.stdout and "not installed: iverilog (apt install iverilog)" in done.stdout


def test_ci_has_everything() -> None:
    done = started("true", "tests/docs/test_licence.py")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "CI=true, and tests need what is not here: g++, clang, " in done.stderr
    assert "passed" not in done.stdout


def test_a_test_sees_gcc_and_nothing_optional() -> None:
    assert shutil.which("gcc") and shutil.which("nm") and shutil.which("sh")
    assert [tool for tool in PROGRAMS if shutil.which(tool)] == []


@pytest.mark.needs("iverilog")
def test_without_a_tool() -> None:
    """Skipped without it, and sees no other."""
    assert [tool for tool in PROGRAMS if shutil.which(tool)] == ["iverilog"]


@pytest.mark.parametrize("spec", ["c{cc=clang}"])
def test_a_parameter_that_names_a_tool_declares_it(spec: str) -> None:
    assert spec and bool(shutil.which("clang")) == bool(program("clang"))
    assert not shutil.which("clang++")
    assert bool(shutil.which("g++", path=path_with(["g++"]))) == bool(program("g++"))


def test_a_command_without_optional_programs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sh", "-c", "command -v gcc; command -v g++ c++ clang; exit 3"]) == 3
    assert len(capfd.readouterr().out.splitlines()) == 1


def test_a_compiler_without_the_libraries_of_its_sanitizers_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the flags, and fails when it links."""
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho 'ld: cannot find libclang_rt.asan-x86_64.a' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr("tests.tools.PATH", str(tmp_path))
    monkeypatch.setitem(PACKAGES, "fake", "fake")
    monkeypatch.setitem(PACKAGES, "fake's sanitizers", "libfake-rt-dev")
    assert missing(["fake", "fake's sanitizers"]) == "fake's sanitizers (apt install libfake-rt-dev)"


def test_rustup_without_rust_is_no_rust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shim := tmp_path / "rustc").write_text("#!/bin/sh\necho 'error: rustup could not choose a version' >&2\nexit 1\n")
    shim.chmod(0o755)
    monkeypatch.setattr("tests.tools.PATH", str(tmp_path))
    is_here.cache_clear()
    try:
        assert missing(["rustc"]) == "rustc (apt install rustc)"
    finally:
        is_here.cache_clear()


def test_every_slow_function_is_one() -> None:
    """A function that is renamed would be quick from then on, unseen."""
    for line in SLOW_TESTS.read_text(encoding="utf-8").split():
        file, _, function = line.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text or file.endswith(".dlc"), f"tests/slow.txt: {line} is none"
