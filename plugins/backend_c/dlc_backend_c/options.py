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

    cc: str = option("", "compiler; by default gcc, else clang, from PATH", runs=True)
    cpu: Literal["native", "generic", "x86-64-v3", "x86-64-v4"] = option(
        "native", "instructions to use: those of this machine, none beyond portable C99, or a level of x86-64"
    )
    strict_float: bool = option(
        False, "round as the kernels are written: sums in the order of their axes, no fused multiply-add; slower"
    )
    lib: Literal["shared", "static", "none"] = option("shared", "library to build; none: sources only")
    weights: Literal["auto", "incbin", "text", "map"] = option(
        "auto",
        "where weights live: a binary file in the library, a C array in the library, or a file given at run time; "
        "auto: in the library up to 256 MiB",
    )
    prefix: str = option("", "first part of all names, a C identifier; by default from the model's name")
    arena: Literal["caller", "static"] = option("caller", "who holds the working memory: the caller, or the library")
    check: Literal["none", "inputs"] = option(
        "none", "what functions check of the values they are given: nothing, or that indices are in range"
    )
    flags: tuple[str, ...] = option((), "further flags for the compiler and linker, after dlc's own", runs=True)
    jobs: int = option(0, "compilers that run at the same time; 0: as many as the build runs", low=0)

    def __post_init__(self) -> None:
        """Refuse what could not become a name in C."""
        problem = prefix_problem(self.prefix) if self.prefix else ""
        if problem:
            raise error("bad-option", f"c: option prefix: {problem}", exit_code=ExitCode.USAGE)
