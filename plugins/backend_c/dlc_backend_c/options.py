"""Options of the C backend, as every part of it reads them."""

from dataclasses import dataclass
from typing import Literal

from dlc import ExitCode, option
from dlc.base.diagnostics import error
from dlc.spec import Configurable
from dlc_backend_c.names import prefix_problem


@dataclass(frozen=True)
class Options(Configurable):
    """What a user may choose."""

    cc: str = option("", "compiler; by default gcc or clang on PATH", runs=True)
    cpu: Literal["native", "generic", "x86-64-v3", "x86-64-v4"] = option(
        "native", "instruction set: that of this machine, portable C99 without extensions, or a level of x86-64"
    )
    strict_float: bool = option(
        False, "sums in the order of the axes and no fused multiply-add, as in plain loops; slower"
    )
    lib: Literal["shared", "static", "none"] = option("shared", "library to build; none: sources only")
    weights: Literal["auto", "incbin", "text", "map"] = option(
        "auto",
        "how weights are stored: a binary file that the library includes, a C array, or a file that the program maps; "
        "auto: in the library up to 256 MiB",
    )
    prefix: str = option("", "prefix of all names, a C identifier; by default from the name of the model's file")
    arena: Literal["caller", "static"] = option("caller", "who provides the arena: the caller, or the library")
    check: Literal["none", "inputs"] = option(
        "none", "what functions check in their inputs: nothing, or that indices are in range"
    )
    schedule: tuple[tuple[str, str], ...] = option(
        (), "schedules of kernels, by the first digits of their digests; others are chosen"
    )
    flags: tuple[str, ...] = option((), "additional flags for the compiler and linker, after those of dlc", runs=True)
    jobs: int = option(0, "number of compilers that run in parallel; 0: as --jobs of the build", low=0)

    def __post_init__(self) -> None:
        """Refuse what could not become a name in C."""
        problem = prefix_problem(self.prefix) if self.prefix else ""
        if problem:
            raise error("bad-option", f"c: option prefix: {problem}", exit_code=ExitCode.USAGE)
