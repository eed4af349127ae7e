"""Programs that the kit runs: Python with the packages of this process, somewhere else, in another environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """What a program left."""

    code: int
    """Exit status; -1: it ran past its limit and was ended."""
    out: str
    err: str


def python(
    arguments: Sequence[str], cwd: Path, limit: float, environment: Mapping[str, str] | None = None, given: str = ""
) -> Ran:
    """Run Python in a directory for at most `limit` seconds, with `given` on its standard input."""
    path = os.pathsep.join(dict.fromkeys(os.path.abspath(entry or os.curdir) for entry in sys.path))
    # The settings of the user's dlc must not reach what is tested.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("DLC_")}
    full = {**inherited, "PYTHONPATH": path, **(environment or {})}
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=full,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            out, err = process.communicate(given, timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return Ran(-1, out, err)
    return Ran(process.returncode, out, err)
