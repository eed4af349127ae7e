"""The compiler: found once, identified by content, run in a clean environment."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dlc import ExitCode
from dlc.base.diagnostics import error

_SEARCH = ("gcc", "clang")
_SHOWN = 12
"""Lines of a tool's complaint that are shown."""


@dataclass(frozen=True)
class Toolchain:
    """A C compiler and the binary utilities that go with it."""

    command: tuple[str, ...]
    """How to run the compiler: ("/usr/bin/gcc",)."""
    identity: str
    """One fact a line, without directories: version, machine, digests of the programs involved."""

    @property
    def name(self) -> str:
        """How the user calls it."""
        return Path(self.command[0]).name

    @property
    def machine(self) -> str:
        """What it builds for: `x86_64-linux-gnu`; `unknown` where it does not say."""
        machines = (line.removeprefix("machine ") for line in self.identity.splitlines() if line.startswith("machine "))
        return next(machines, "unknown")

    def tool(self, name: str) -> str:
        """Path of ld, ar or objcopy, by the compiler's own search path first; raises DlcError (TOOL)."""
        path = _output((*self.command, f"-print-prog-name={name}"))
        found = shutil.which(path) or shutil.which(name)
        if found is None:
            raise error(
                "no-tool",
                f"{name} is not installed, and a static library needs it",
                help="install binutils (Debian, Ubuntu: apt install binutils), or choose c{lib=shared}",
                exit_code=ExitCode.TOOL,
            )
        return found


def find_toolchain(cc: str) -> Toolchain:
    """The compiler that `cc` names, or the first of gcc and clang on PATH; raises DlcError (TOOL)."""
    words = shlex.split(cc) if cc else [next((name for name in _SEARCH if shutil.which(name)), "")]
    path = shutil.which(words[0]) if words and words[0] else None
    if path is None:
        raise error(
            "no-compiler",
            f"the C compiler {words[0]} is not installed or not executable" if cc and words else "no C compiler found",
            notes=[] if cc else [f"looked for {' and '.join(_SEARCH)} on PATH"],
            help="install gcc or clang (Debian, Ubuntu: apt install gcc libc6-dev), or use c{lib=none}: sources only",
            exit_code=ExitCode.TOOL,
        )
    command = (os.path.abspath(path), *words[1:])  # it runs in directories of its own
    return Toolchain(command, _identity(command, *_stamp(path)))


def _stamp(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns


@lru_cache(maxsize=16)
def _identity(command: tuple[str, ...], size: int, mtime_ns: int) -> str:
    """Size and time belong to the memo's key: a compiler that is updated while we run is identified again."""
    del size, mtime_ns
    # One start of the driver says it all: with -### it names the programs that it would run, and runs none.
    lines = _said(command).splitlines()
    version = next((x.strip() for x in lines if re.search(r"\bversion \d", x)), lines[0] if lines else "unknown")
    machine = next((x.partition(":")[2].strip() for x in lines if x.startswith("Target:")), "unknown")
    # A link and its target are one compiler: gcc, gcc-12 and x86_64-linux-gnu-gcc-12. But clang++, a link to clang,
    # is one for another language.
    called = Path(command[0] if "++" in Path(command[0]).name else os.path.realpath(command[0])).name
    facts = [f"cc {' '.join((called, *command[1:]))}", f"version {version}", f"machine {machine}"]
    # gcc's driver is small: the compiler proper and the binary utilities are programs of their own.
    programs = [command[0], *_programs(lines), *filter(None, (shutil.which("ld"),))]
    named = {Path(p).name if k else "cc": p for k, p in enumerate(dict.fromkeys(programs))}
    return "\n".join([*facts, *(f"{name} {fingerprint(path)}" for name, path in named.items())])


def _programs(lines: Sequence[str]) -> list[str]:
    """Paths of the programs in the commands that a driver printed: indented, the first word quoted or not."""
    words = [line.split()[0].strip('"') for line in lines if re.match(r" \S", line)]
    return [found for word in words if (found := shutil.which(word))]


def fingerprint(path: str) -> str:
    """What identifies a program by its content: the build ID that its linker made of it, else its SHA-256."""
    with open(path, "rb") as file:
        head = file.read(1 << 16)
        # The note: 4 bytes of name, n bytes of ID, type 3, "GNU". It lies in front, where the loader maps it.
        note = re.search(rb"\x04\0\0\0(.)\0\0\0\x03\0\0\0GNU\0", head, re.DOTALL)
        if head.startswith(b"\x7fELF") and note and len(found := head[note.end() : note.end() + note[1][0]]) >= 16:
            return f"build-id {found.hex()} {os.fstat(file.fileno()).st_size}"
        digest = hashlib.sha256(head)
        while block := file.read(1 << 20):
            digest.update(block)
    return f"sha256 {digest.hexdigest()}"


def _said(command: tuple[str, ...]) -> str:
    """What a compiler tells of itself; of one that does not know gcc's options, its version."""
    try:
        done = _run((*command, "-v", "-###", "-x", "c", "-c", os.devnull), Path.cwd())
        if done.returncode == 0:
            return done.stderr + done.stdout
    except OSError:
        pass  # reported below
    return _output((*command, "--version"))


def _output(command: Sequence[str]) -> str:
    return run(command, Path.cwd(), "asking the compiler about itself").strip()


def _run(command: Sequence[str], directory: Path) -> subprocess.CompletedProcess[str]:
    # Variables such as CPATH or LIBRARY_PATH change results without a trace in any cache key, so only what a tool needs
    # to be found passes.
    kept = {k: v for k in ("PATH", "TMPDIR", "SYSTEMROOT") if (v := os.environ.get(k))}
    environment = {**kept, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    return subprocess.run(
        list(command), cwd=directory, env=environment, capture_output=True, text=True, errors="replace", check=False
    )


def run(command: Sequence[str], directory: Path, doing: str, help: str = "") -> str:
    """Standard output of a tool run in `directory`; raises DlcError (TOOL) when it fails, with what would help then."""
    try:
        done = _run(command, directory)
    except OSError as problem:
        raise error(
            "tool-failed",
            f"{Path(command[0]).name} cannot be run: {problem.strerror}",
            notes=[f"while {doing}"],
            exit_code=ExitCode.TOOL,
        ) from None
    if done.returncode:
        raise _failed(command, doing, done.returncode, done.stderr, help)
    return done.stdout


def _failed(command: Sequence[str], doing: str, status: int, complaint: str, help: str) -> Exception:
    name = Path(command[0]).name
    # The complaint's first lines say what is wrong; temporary directories in them would only mislead.
    lines = [re.sub(r"/\S*/(?=[\w.-]+[:\s])", "", line) for line in complaint.splitlines() if line.strip()]
    how = f"was stopped by signal {-status}" if status < 0 else f"failed with status {status}"
    return error(
        "tool-failed",
        f"{name} {how} while {doing}",
        notes=lines[:_SHOWN],
        help=help or "check the compiler and the option flags; if both are right, this is a bug in dlc",
        exit_code=ExitCode.TOOL,
    )
