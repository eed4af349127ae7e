"""What tests use beside Python: which of it is here, and what a machine without it leaves out.

The README asks for Python and gcc; everything else is optional. A test says what it uses: `@pytest.mark.needs("g++")`
skips it where that is missing, `@pytest.mark.uses("clang")` does not, and a parameter that names a tool is `uses` too.
A test sees no other optional program (tests/programs.py): a missing declaration fails on a machine that has all.
One line of the summary names what is missing, and under CI=true nothing may be.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

PATH = os.environ.get("TESTS_PATH") or f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
"""Where programs are; servers are where only root's PATH may lead. While a test runs, `PATH` has less."""
BASE = ("gcc", "nm", "objdump")
"""What the README asks for, with what the packages of it bring."""

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
"""Programs, and parts of them, that tests use → the packages of Debian and Ubuntu that have them."""
FOR_LONG = {
    "powerpc64-linux-gnu-gcc": "gcc-powerpc64-linux-gnu libc6-dev-ppc64-cross",
    "mips-linux-gnu-gcc": "gcc-mips-linux-gnu libc6-dev-mips-cross",
    "qemu-ppc64-static": "qemu-user-static",
    "qemu-mips-static": "qemu-user-static",
}
"""The same of programs that only tests with `-m long` use: nothing installs them, and nobody misses them."""
TERMINAL = "a pseudo-terminal"
OTHERS = {TERMINAL: "mount -t devpts devpts /dev/pts"}
"""What else tests use → how to have it."""
OPTIONAL = tuple(tool for tool in (*PACKAGES, *FOR_LONG, *OTHERS) if tool not in BASE)


def program(tool: str) -> str | None:
    """Where a program of `PACKAGES` is."""
    return shutil.which(tool, path=PATH)


@cache
def is_here(tool: str) -> bool:
    """Whether this machine has a tool, and it works."""
    compiler, _, part = tool.partition("'s ")
    if part:
        return _can_sanitize(compiler)
    works = _PROBES.get(tool)
    return (tool in OTHERS or program(tool) is not None) and (works is None or works())


def found(*tools: str) -> tuple[str, ...]:
    """Those that are here, to parametrise a test with."""
    return tuple(t for t in tools if is_here(t))


def missing(tools: Iterable[str] = (*PACKAGES, *OTHERS)) -> str:
    """One line: what is not here and how to have it; "" if nothing is missing."""
    absent = [t for t in tools if not is_here(t)]
    ways = [f"apt install {' '.join(packages(absent))}"] if packages(absent) else []
    ways += [OTHERS[t] for t in absent if t in OTHERS]
    return f"{', '.join(absent)} ({'; '.join(ways)})" if absent else ""


def packages(tools: Iterable[str] = tuple(PACKAGES)) -> tuple[str, ...]:
    """The packages that have those of the tools that are not here."""
    return tuple(
        dict.fromkeys(word for t in tools if not is_here(t) for word in {**PACKAGES, **FOR_LONG}.get(t, "").split())
    )


def _can_sanitize(compiler: str, flags: Iterable[str] = SANITIZE) -> bool:
    # Linking is what fails without their libraries, and starting where the kernel places memory as they do not expect.
    return program(compiler) is not None and _works(compiler, *flags, source="int main(void) { return 0; }\n", run=True)


def _works(*command: str, source: str = "", run: bool = False) -> bool:
    """Whether a command succeeds, with the file of a source in place of nothing, and the program that it makes."""
    first = program(command[0]) or command[0]
    with tempfile.TemporaryDirectory() as place:
        made = Path(place, "probe")
        files: list[str] = []
        if source:
            Path(place, "probe.c").write_text(source, encoding="utf-8")
            files = ["probe.c", *(["-o", str(made)] if run else [])]
        commands = [[first, *command[1:], *files], *([[str(made)]] if run else [])]
        return all(subprocess.run(c, capture_output=True, check=False, cwd=place).returncode == 0 for c in commands)


def _can_open_a_terminal() -> bool:
    try:
        ends = pty.openpty()
    except OSError:
        return False
    for end in ends:
        os.close(end)
    return True


def _compiles_cxx(compiler: str) -> Callable[[], bool]:
    return lambda: _works(compiler, "-x", "c++", "-fsyntax-only", source="#include <new>\n")


_PROBES: dict[str, Callable[[], bool]] = {
    "rustc": lambda: _works("rustc", "--version"),  # that of rustup is there without any Rust
    "g++": _compiles_cxx("g++"),
    "clang++": _compiles_cxx("clang++"),  # its headers are those of g++
    TERMINAL: _can_open_a_terminal,
}
"""Tools of which a program may be here that does not work."""


COMPILERS = found("gcc", "clang")
CXX_COMPILERS = found("g++", "clang++")
SANITIZING = tuple(cc for cc in COMPILERS if is_here(f"{cc}'s sanitizers"))
"""C compilers that can link a program with address and undefined-behaviour sanitizers."""
SANITIZE_THREADS = ("-fsanitize=thread",)
THREAD_SANITIZING = tuple(cc for cc in SANITIZING if _can_sanitize(cc, SANITIZE_THREADS))
"""Those that can with the one for threads, which some processors have not."""
