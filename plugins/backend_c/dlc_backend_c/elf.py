"""Which machine a library is for: the head of its file says so, in plainer words than a loader that refuses it."""

import sys
from pathlib import Path

from dlc import ExitCode
from dlc.base.diagnostics import error

_MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390", 40: "arm", 62: "x86-64", 183: "aarch64",
             243: "riscv", 258: "loongarch"}  # fmt: skip
"""`e_machine` of the System V ABI → name."""


def check_machine(library: Path) -> None:
    """Raises DlcError (USAGE) when a library is for another machine than the interpreter; none that is no ELF file."""
    found, here = machine_of(library), machine_of(Path(sys.executable))
    if found and here and found != here:
        raise error(
            "cannot-load",
            f"the library is built for {found}, this machine runs {here}",
            help=f"build the model again here, with a compiler for {here}; or run it on {found}",
            exit_code=ExitCode.USAGE,
        )


def machine_of(file: Path) -> str:
    """`x86-64`, of a file that begins as executables and libraries of ELF do; "" of any other."""
    try:
        with file.open("rb") as opened:
            head = opened.read(20)
    except OSError:
        return ""
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return ""
    code = int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")
    return f"{_MACHINES.get(code, f'machine {code}')}{' (32 bits)' if code == 62 and head[4] == 1 else ''}"
