"""Streams, terminals, pipes and interruptions: processes of their own, because that is where these exist."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlc.cli.terminal import size
from tests.cli.models import small
from tests.tools import TERMINAL

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def model() -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())


def environment(**more: str) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "NO_COLOR", "TERM")}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", **more}


def on_terminal(arguments: list[str], **more: str) -> tuple[str, bytes]:
    """(stderr, stdout) of dlc with a terminal as stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dlc", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment(**more))
    os.close(theirs)
    shown = b""
    while True:
        try:
            if not select.select([ours], [], [], 60)[0] or not (part := os.read(ours, 4096)):
                break
        except OSError:  # the other end is closed
            break
        shown += part
    os.close(ours)
    assert process.stdout
    out = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    return shown.decode(), out


@pytest.mark.needs(TERMINAL)
def test_progress_on_a_terminal_only() -> None:
    shown, out = on_terminal(["build", "small.onnx", "-o", "out"])
    assert "\x1b[" in shown  # a line that moves
    assert "emit c" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    # Kernels by the model's nodes, with a bar, a count and the time that is left; never by digests.
    assert re.search(r"generate bias, product and 1 more ━+ 0/1 \S+:\S\S", plain)
    assert re.search(r"compile .+ ━+\S* ?━* \d/2 \S+:\S\S", plain)
    assert "dlc_k_" not in shown
    assert out.startswith(b"out: ")
    assert b"\x1b" not in out


@pytest.mark.parametrize(("arguments", "more"), [(["-q"], {}), ([], {"CI": "true"}), ([], {"TERM": "dumb"})])
@pytest.mark.needs(TERMINAL)
def test_no_progress(arguments: list[str], more: dict[str, str]) -> None:
    shown, _ = on_terminal(["build", "small.onnx", "-o", "out", *arguments], **more)
    assert "\x1b" not in shown


def test_colours_follow_the_conventions() -> None:
    def stderr(**more: str) -> str:
        command = [sys.executable, "-m", "dlc", "build", "absent.onnx"]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(**more)).stderr

    assert "\x1b" not in stderr()
    assert "\x1b[1;31merror" in stderr(FORCE_COLOR="1")
    assert "\x1b" not in stderr(FORCE_COLOR="1", NO_COLOR="1")


def test_a_reader_that_goes_away() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dlc", "list", "ops"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_a_full_disk_behind_stdout() -> None:
    command = [sys.executable, "-m", "dlc", "list", "passes"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment())
    assert done.stderr == "error[cannot-write]: stdout cannot be written: No space left on device\n"
    assert done.returncode == 1


def test_a_terminal_that_knows_few_signs() -> None:
    command = [sys.executable, "-m", "dlc", "list", "passes"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment(PYTHONIOENCODING="ascii"))
    assert b"\\u2192" in done.stdout
    assert done.stderr == b""


def test_interruption(tmp_path: Path) -> None:
    """A compiler that never ends is interrupted: exit code 130, and nothing stands where the program would."""
    slow = tmp_path / "slow-cc"
    slow.write_text('#!/bin/sh\ncase "$*" in *-c*) touch started; exec sleep 60;; esac\nexec gcc "$@"\n')
    slow.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "dlc", "build", "small.onnx", "-o", "out", "-q", "-t", f'c{{cc="{slow}" jobs=1}}'],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(tmp_path)),
        start_new_session=True,
        # Shells start what runs in the background with the signal ignored, and everything below inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # no threads here
    )
    time.sleep(0.1)
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not sleeping(process.pid):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("error[interrupted]: interrupted")
    assert "Traceback" not in err
    assert not Path("out").exists()


def sleeping(session: int) -> bool:
    """Whether a `sleep` runs in the session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")
                name, group = fields[0].partition("(")[2], int(fields[2].split()[3])
            except OSError:
                continue
            if (name, group) == ("sleep", session):
                return True
    return False


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (9_999, "9,999 B"), (10_000, "9.8 KiB"), (1 << 20, "1.0 MiB"), (5 << 40, "5,120.0 GiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
