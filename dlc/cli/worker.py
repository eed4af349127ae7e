"""Command lines in a process of their own, one after another: `python -m dlc.cli.worker`.

What a built program does to its process, as to crash, must not end a search that runs many of them. The process is kept
from one command line to the next, because starting it takes longer than most of these.

    {"arguments": ["verify", "model.onnx"]}   →   {"code": 3, "error": ""}        a line each
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dlc.base.diagnostics import DlcError, ExitCode

HANGS: Final = "hangs"
CRASHES: Final = "crashes"


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    """Exit code; of a process that a signal ended, its number as a negative one."""
    error: str = ""
    """The code of its first error, the class of an exception that dlc does not expect, `crashes` or `hangs`."""

    def __str__(self) -> str:
        what = f" ({self.error})" if self.error else ""
        return f"signal {-self.code}{what}" if self.code < 0 else f"exit code {self.code}{what}"


@dataclass
class Worker:
    """The process, as the one that starts it sees it."""

    seconds: float
    """That a command line may take; longer ones hang."""
    directory: Path | None = None
    """Where it runs; None: here."""
    _process: subprocess.Popen[bytes] | None = field(default=None)

    def run(self, arguments: Sequence[str]) -> Ended:
        """What becomes of `dlc ARGUMENTS`."""
        process = self._process or self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"arguments": list(arguments)}).encode() + b"\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], self.seconds)
            line = process.stdout.readline() if ready else b""
        except BrokenPipeError:
            ready, line = [process.stdout], b""
        if line:
            return Ended(**json.loads(line))
        if not ready:
            self.close()
            return Ended(0, HANGS)
        code = process.wait()
        self._process = None
        return Ended(code, CRASHES)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        # What this process can import, that one can.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in sys.path)}
        command = [sys.executable, "-m", "dlc.cli.worker"]
        self._process = subprocess.Popen(
            command,
            env=environment,
            cwd=self.directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interruption from the keyboard is for the search, which then ends this one
        )
        return self._process


def ended(arguments: Sequence[str]) -> Ended:
    """Run one command line here. What is no error of the user is told by its class; no report is written."""
    from dlc.cli.app import root
    from dlc.cli.terminal import Outcome, Terminal
    from dlc.debug.crash_report import fault_name
    from dlc.driver.session import StepFailed

    try:
        found: Any = root().main(
            list(arguments), prog_name="dlc", standalone_mode=False, obj=Terminal(json=True, quiet=True)
        )
    except DlcError as problem:
        return Ended(int(problem.exit_code), problem.diagnostics[0].code)
    # All else is a bug, of which the class tells one from another; click's complaints have an exit code.
    except (Exception, SystemExit) as bug:  # noqa: BLE001
        cause = bug.__cause__ if isinstance(bug, StepFailed) and bug.__cause__ else bug
        usage = hasattr(bug, "format_message")
        return Ended(int(ExitCode.USAGE if usage else ExitCode.BUG), fault_name(cause))
    return Ended(int(found.code) if isinstance(found, Outcome) else int(found or 0))


def serve() -> None:
    """Answer command lines until there are no more. What they print is dropped."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    for line in sys.stdin:
        found = ended(json.loads(line)["arguments"])
        answers.write(json.dumps({"code": found.code, "error": found.error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
