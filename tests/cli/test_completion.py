"""What the shell offers after a tab."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def offered(line: str) -> list[str]:
    """What bash would show for a line that ends where the cursor is."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "from dlc.cli import main; main()"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "_DLC_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("dlc bui", ["build"]),
        ("dlc cache v", ["verify"]),
        ("dlc build --without plan", ["plan-memory"]),
        ("dlc build --stop-after em", ["emit"]),
        ("dlc build -p expand,low", ["expand,lower"]),
        ("dlc build --cache re", ["require", "refresh"]),
        ("dlc list pa", ["passes"]),
        ("dlc build --print-p", ["--print-pipeline"]),
    ],
)
def test_completion(line: str, wanted: list[str]) -> None:
    assert offered(line) == wanted


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`dlc` away from any shell: a session of its own, with only this interpreter above it."""
    return subprocess.run(
        [sys.executable, "-c", "from dlc.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "complete -o"), ("zsh", "#compdef dlc"), ("fish", "complete --command dlc")]
)
def test_the_script_of_the_shell_that_is_named(shell: str, words: str) -> None:
    done = command("--show-completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert words in done.stdout and "_DLC_COMPLETE" in done.stdout


@pytest.mark.parametrize("given", [(), ("tcsh",)])
def test_a_shell_has_to_be_named(given: tuple[str, ...]) -> None:
    done = command("--show-completion", *given)
    assert done.returncode == 2
    assert "error[usage]" in done.stderr and "--show-completion" in done.stderr
    assert not given or "'bash', 'zsh', 'fish'" in done.stderr


def test_installing_writes_where_the_shell_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = command("--install-completion", "bash")
    assert done.returncode == 0, done.stderr
    written = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file())
    assert "_DLC_COMPLETE" in written
