"""A machine without some of the programs that tests use: what is missing is one line, and an error where CI runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import SLOW_TESTS
from tests.tools import PACKAGES, missing

ROOT = Path(__file__).parents[1]
LACKS = "clang, clang++, clang's sanitizers (apt install clang libclang-rt-dev)"


def without_clang(place: Path, ci: str) -> subprocess.CompletedProcess[str]:
    """The suite's own start, on one small file of tests, with a PATH that has no clang."""
    for tool in (*PACKAGES, "as", "ld"):
        path = shutil.which(tool)
        if path and not tool.startswith("clang"):
            (place / tool).symlink_to(path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/docs/test_licence.py"]
    environment = {**os.environ, "PATH": str(place), "CI": ci}
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_what_is_missing_is_named_and_the_rest_runs(tmp_path: Path) -> None:
    done = without_clang(tmp_path, "false")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"left out, because this machine lacks it: tests with {LACKS}" in done.stdout
    assert "passed" in done.stdout


def test_ci_has_everything(tmp_path: Path) -> None:
    done = without_clang(tmp_path, "true")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"CI=true, and tests need what is not here: {LACKS}" in done.stderr
    assert "passed" not in done.stdout


def test_a_compiler_without_the_libraries_of_its_sanitizers_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the flags, and fails when it links."""
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho 'ld: cannot find libclang_rt.asan-x86_64.a' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(PACKAGES, "fake", "fake")
    monkeypatch.setitem(PACKAGES, "fake's sanitizers", "libfake-rt-dev")
    assert missing(["fake", "fake's sanitizers"]) == "fake's sanitizers (apt install libfake-rt-dev)"


def test_every_slow_function_is_one() -> None:
    """A function that is renamed would be quick from then on, unseen."""
    for line in SLOW_TESTS.read_text(encoding="utf-8").split():
        file, _, function = line.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text or file.endswith(".dlc"), f"tests/slow.txt: {line} is none"
