"""A disk that is full is reported as that, not as an error of dlc."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dlc.base.diagnostics import ExitCode
from tests.session.building import ROOT


@pytest.mark.parametrize("train", [(), ("--train", "loss=cross-entropy{axis=0}")])
def test_weights_that_find_no_room(tmp_path: Path, train: tuple[str, ...]) -> None:
    """Files may have 8 KiB; the model has 24 KiB of weights."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    line = [sys.executable, "-m", "dlc", "build", str(ROOT / "examples/mnist.onnx"), "-q", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [*line, "--cache", "off", "-t", "c{lib=none}", *train],
        cwd=tmp_path,
        # Compiled modules would be cut off too, and stay so for whoever imports them next.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert done.returncode == ExitCode.MODEL, done.stderr
    assert "error[no-space]: emit c: its files cannot be written: File too large" in done.stderr
    assert "internal" not in done.stderr and "Traceback" not in done.stderr
    assert not any(p.name == "out" or "crash" in p.name for p in tmp_path.iterdir())
