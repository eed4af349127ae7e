"""A few builds of `benchmarks/cache_levels.py`; the benchmark itself runs two hundred."""

import subprocess
import sys

from tests.session.building import ROOT


def test_servers_that_fail_at_random_change_no_file_and_fail_no_build() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/cache_levels.py", "--builds", "5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "5 right, 0 wrong, 0 failed" in done.stdout, done.stdout + done.stderr
