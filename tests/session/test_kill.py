"""A few rounds of `benchmarks/build_kill.py`; the benchmark itself runs two hundred of two models."""

import subprocess
import sys

from tests.session.building import ROOT


def test_builds_killed_at_any_moment_leave_nothing_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/build_kill.py", "--rounds", "1", "--models", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and " 0 faults" in done.stdout, done.stdout + done.stderr
