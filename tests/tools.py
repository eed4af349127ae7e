"""The programs that tests use beside Python: which are here, and what a machine without them leaves out.

Tests take their compilers from here and nowhere else, so what is missing is known in one place: one line of the summary
names it, and under CI=true nothing may be missing.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""What makes a program stop at its first wrong access or undefined operation."""
PACKAGES = {
    "gcc": "gcc libc6-dev",
    "g++": "g++",
    "clang": "clang",
    "clang++": "clang",
    "gcc's sanitizers": "gcc",
    "clang's sanitizers": "libclang-rt-dev",
    "make": "make",
    "cmake": "cmake",
    "pkg-config": "pkg-config",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-system-arm": "qemu-system-arm",
    "bindgen": "bindgen",
    "rustc": "rustc",
    "nm": "binutils",
    "objdump": "binutils",
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "nginx": "nginx-light",
    "redis-server": "redis-server",
    "mpiexec": "openmpi-bin",
    "mpicc": "libopenmpi-dev openmpi-bin",
    "iverilog": "iverilog",
}
"""What tests use → the packages of Debian and Ubuntu that have it."""


def program(tool: str) -> str | None:
    """Where a program of `PACKAGES` is; servers are where only root's PATH may lead."""
    return shutil.which(tool) or shutil.which(tool, path="/usr/sbin")


@cache
def is_here(tool: str) -> bool:
    """Whether a program of `PACKAGES` is on this machine, or a compiler can link with its sanitizers."""
    compiler, _, part = tool.partition("'s ")
    return _can_sanitize(compiler) if part else program(tool) is not None


def found(*tools: str) -> tuple[str, ...]:
    """Those that are here, to parametrise a test with."""
    return tuple(t for t in tools if is_here(t))


def missing(tools: Iterable[str] = tuple(PACKAGES)) -> str:
    """One line: what is not here and which packages have it; "" if nothing is missing."""
    absent = [t for t in tools if not is_here(t)]
    return f"{', '.join(absent)} (apt install {' '.join(packages(absent))})" if absent else ""


def packages(tools: Iterable[str] = tuple(PACKAGES)) -> tuple[str, ...]:
    """The packages that have those of the tools that are not here."""
    return tuple(dict.fromkeys(word for t in tools if not is_here(t) for word in PACKAGES[t].split()))


def _can_sanitize(compiler: str, flags: Iterable[str] = SANITIZE) -> bool:
    # Linking is what fails: a compiler without the libraries of its sanitizers still knows their flags.
    if shutil.which(compiler) is None:
        return False
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "probe.c")
        source.write_text("int main(void) { return 0; }\n")
        command = [compiler, *flags, str(source), "-o", str(Path(place, "probe"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


COMPILERS = found("gcc", "clang")
CXX_COMPILERS = found("g++", "clang++")
SANITIZING = tuple(cc for cc in COMPILERS if is_here(f"{cc}'s sanitizers"))
"""C compilers that can link a program with address and undefined-behaviour sanitizers."""
SANITIZE_THREADS = ("-fsanitize=thread",)
THREAD_SANITIZING = tuple(cc for cc in SANITIZING if _can_sanitize(cc, SANITIZE_THREADS))
"""Those that can with the one for threads, which some processors have not."""
