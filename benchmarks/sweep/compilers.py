"""C compilers of this machine, of other root directories, and of any command: from a text to an object.

A command of one word is a compiler here. One of more words, as `chroot /srv/trixie gcc-14` or `docker run -i gcc:9
gcc`, may see other files: it reads C from its input and writes assembler to its output, which the compiler of this
machine assembles. Objects are linked here, so that one C library serves all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = (
    *("gcc", *(f"gcc-{n}" for n in range(9, 17))),
    *("clang", *(f"clang-{n}" for n in range(11, 23))),
    "tcc",
)
SECONDS: Final = 300
"""That a compiler has for a unit."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler.

    Attributes:
        command: How it is called.
        identity: The first line in which it says its version.
    """

    command: tuple[str, ...]
    identity: str

    @property
    def family(self) -> str:
        """gcc, clang or tcc."""
        return next((f for f in ("clang", "tcc") if f in self.identity), "gcc")

    @property
    def title(self) -> str:
        """`gcc 12.2.0`."""
        version = re.search(r"\d+\.\d+(\.\d+)?", re.sub(r"\(.*?\)", "", self.identity))
        return f"{self.family} {version[0] if version else '?'}"

    @property
    def has_vectors(self) -> bool:
        """Whether it knows gcc's vectors."""
        return self.family != "tcc"

    def compile(self, source: Path, flags: Sequence[str], library: Path) -> str:
        """Make a shared library; what the compiler says if it does not."""
        made = source.with_suffix(".o")
        if len(self.command) == 1:
            complaint = _run([*self.command, *flags, "-w", "-fPIC", "-c", str(source), "-o", str(made)])
        else:
            complaint = self._through(source, flags, made)
        return complaint or _run(["cc", "-shared", str(made), "-o", str(library), "-lm"])

    def _through(self, source: Path, flags: Sequence[str], made: Path) -> str:
        assembler = source.with_suffix(".s")
        own = ["-fno-addrsig"] if self.family == "clang" else []  # a word that GNU's assembler does not know
        command = [*self.command, *flags, *own, "-w", "-fPIC", "-S", "-x", "c", "-", "-o", "-"]
        complaint = _run(command, source.read_bytes(), assembler)
        return complaint or _run(["cc", "-c", str(assembler), "-o", str(made)])


def compilers_of(wanted: Iterable[str] = (), roots: Iterable[str] = ()) -> list[Compiler]:
    """Those that are wanted, by their commands, or all that are here; and all of root directories.

    Each version once. Raises SystemExit: a command that is wanted does not work.
    """
    commands = [tuple(w.split()) for w in wanted] or [(n,) for n in NAMES if shutil.which(n)]
    made = [_compiler(c, required=bool(wanted)) for c in commands]
    made += [_compiler(c, required=False) for root in roots for c in _inside(root)]
    return list({c.title: c for c in reversed([c for c in made if c])}.values())[::-1]


def _inside(root: str) -> Iterator[tuple[str, ...]]:
    for name in NAMES:
        if Path(root, "usr/bin", name).exists():
            yield "chroot", root, name


def _compiler(command: tuple[str, ...], *, required: bool) -> Compiler | None:
    flag = "-v" if Path(command[-1]).name.startswith("tcc") else "--version"
    try:
        done = subprocess.run([*command, flag], capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as problem:
        if required:
            raise SystemExit(f"{' '.join(command)}: {problem}") from None
        return None
    lines = (done.stdout + done.stderr).splitlines()
    if done.returncode or not lines:
        if required:
            raise SystemExit(f"{' '.join(command)}: status {done.returncode}: {' '.join(lines[:1])}")
        return None
    return Compiler(command, re.sub(r"^\S*\bgcc[-\d.]* ", "gcc ", lines[0]))


def _run(command: Sequence[str], given: bytes = b"", result: Path | None = None) -> str:
    """What a command says if it fails; its output goes to `result`."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"more than {SECONDS} s"
    if done.returncode:
        lines = [x for x in done.stderr.decode(errors="replace").splitlines() if "error" in x.lower()]
        return lines[0] if lines else f"status {done.returncode}"
    if result is not None:
        result.write_bytes(done.stdout)
    return ""
