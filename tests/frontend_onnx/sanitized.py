"""Sources that a build wrote, in a program with exactly the memory that they ask for, under a compiler's sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dlc.runtime.manifest import read_manifest
from tests.tools import SANITIZE, found

SANITIZERS = found("gcc's sanitizers", "clang's sanitizers")


def run_sanitized(sources: Path, prefix: str, main: str, tools: str) -> None:
    """Compile them with the main function and one of `SANITIZERS`, every warning an error, and run the program."""
    (sources / "main.c").write_text(main)
    own = [flag for flag in read_manifest(sources).data["cpu"] if not flag.startswith("-std=")]
    # Not optimised, or clang takes half a minute to instrument the vectors of one network.
    flags = [*own, "-std=gnu11", "-O0", *SANITIZE, "-Wall", "-Wextra", "-Werror"]
    files = ["main.c", f"{prefix}.c", f"{prefix}_weights.c", "-o", "main", "-lm"]
    subprocess.run([tools.partition("'")[0], *flags, *files], cwd=sources, check=True)
    subprocess.run(["./main"], cwd=sources, check=True)
