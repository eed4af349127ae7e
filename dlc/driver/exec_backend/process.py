"""One question to an executable: a line of JSON to its input, a line of JSON from its output.

Whatever the executable does, dlc gets an answer or a diagnostic: time and output are bounded, and the processes that it
leaves are ended with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from dlc.base.diagnostics import DlcError, ExitCode, error, escape

MOST_OUTPUT: Final = 16 << 20
"""Bytes of an answer."""
KEPT: Final = 2000
"""Bytes of standard error that a message quotes, from its end."""
_BLOCK: Final = 1 << 16


@dataclass
class Conversation:
    """What one run of an executable wrote."""

    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    too_long: bool = False


def ask(program: Path, request: bytes, directory: Path, seconds: float) -> tuple[Any, tuple[str, ...]]:
    """The JSON value that an executable answers, and the lines of its standard error, for messages.

    Args:
        program: The executable.
        request: A line, without its end.
        directory: Where it runs.
        seconds: Until it has to be done.

    Raises:
        DlcError: (USAGE) it cannot be started; (PLUGIN) it ends otherwise than with status 0, in time, after one line
            of JSON of at most `MOST_OUTPUT` bytes. Its standard error is quoted.
    """
    try:
        process = subprocess.Popen(
            [str(program)],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that what it starts can be ended with it
        )
    except OSError as problem:
        help = "a script needs a line #! with its interpreter, and the right to be executed"
        raise error(
            "exec-backend",
            f"{program} cannot be started: {problem.strerror or problem}",
            help=help,
            exit_code=ExitCode.USAGE,
        ) from None
    found = Conversation()
    in_time = _converse(process, request, found, seconds)
    notes = quoted(bytes(found.errors))
    status = process.returncode

    def failed(what: str, help: str = "") -> DlcError:
        return error("exec-backend", f"{program}: {what}", notes=notes, help=help, exit_code=ExitCode.PLUGIN)

    if found.too_long:
        raise failed(f"it wrote more than {MOST_OUTPUT >> 20} MiB", "an answer is one line; files go to the directory")
    if not in_time:
        help = "exec:PATH{…} has the option timeout: --target 'exec{command=PATH timeout=300}'"
        raise failed(f"it did not finish within {seconds:g} seconds and was ended", help)
    if status < 0:
        raise failed(f"it was ended by signal {-status} ({signal_name(-status)})")
    if status:
        raise failed(
            f"it ended with exit code {status}", "it has to exit with 0; errors are answers with a field error"
        )
    return _line(bytes(found.output), failed), notes


def _converse(process: subprocess.Popen[bytes], request: bytes, found: Conversation, seconds: float) -> bool:
    """Whether it was done in time; then, or after it was ended, all it wrote is in `found`."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    threads = [
        threading.Thread(target=_write, args=(process.stdin, request), daemon=True),
        threading.Thread(target=_read_output, args=(process.stdout, found, process), daemon=True),
        threading.Thread(target=_read_errors, args=(process.stderr, found), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        process.wait(seconds)
        in_time = True
    except subprocess.TimeoutExpired:
        in_time = False
    except BaseException:
        _end(process)
        raise
    # Also after it exited: what it left behind may hold its output open, and must not outlive the build.
    _end(process)
    process.wait()
    for thread in threads:
        thread.join(5)
    return in_time


def _write(stream: IO[bytes], request: bytes) -> None:
    with suppress(OSError):  # one that does not read says why on its standard error
        stream.write(request + b"\n")
    with suppress(OSError):
        stream.close()


def _read_output(stream: IO[bytes], found: Conversation, process: subprocess.Popen[bytes]) -> None:
    while block := os.read(stream.fileno(), _BLOCK):
        found.output += block
        if len(found.output) > MOST_OUTPUT:
            found.too_long = True
            _end(process)
            return


def _read_errors(stream: IO[bytes], found: Conversation) -> None:
    while block := os.read(stream.fileno(), _BLOCK):
        found.errors = (found.errors + block)[-KEPT:]


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _line(output: bytes, failed: Any) -> Any:
    """The one value in the output."""
    lines = output.strip().split(b"\n")
    if not output.strip():
        raise failed("it answered nothing", "a line of JSON has to be written and flushed before it exits")
    if len(lines) > 1:
        raise failed(f"it wrote {len(lines)} lines, not one", "messages for people go to standard error")
    try:
        return json.loads(lines[0].decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        start = escape(lines[0][:80].decode("utf-8", "replace"))
        raise failed(f"its answer is not JSON: {str(problem)[:200]}: {start}") from None


def quoted(errors: bytes) -> tuple[str, ...]:
    """The end of a standard error as notes, escaped."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()[-12:]
    return tuple(f"standard error: {escape(line[:300])}" for line in lines)


def signal_name(number: int) -> str:
    """SIGSEGV for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
