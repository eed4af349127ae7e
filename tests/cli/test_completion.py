"""What the shell offers after a tab."""

import os
import subprocess
import sys

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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'dlc'; from dlc.cli import main; main()",
            "--show-completion",
            shell,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_DLC_COMPLETE" in done.stdout
