"""Options of the C backend, as every part of it reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from dlc import ExitCode, option
from dlc.base.diagnostics import did_you_mean, error
from dlc.base.memories import problem_of
from dlc.spec import Bytes, Configurable, OptionError
from dlc_backend_c import machine_file
from dlc_backend_c.linker import sections_problem
from dlc_backend_c.names import prefix_problem, reserved

MOST_THREADS: Final = 256
"""Of a program: each has working memory of its own."""
AUTO_THREADS: Final = 16
"""Threads that memory is planned for where their number is found when the program runs."""
Math = Literal["ordered", "strict", "fast", "bf16x3", "bf16x2", "bf16"]
OF_MACHINE: Final = "machine"
"""For the option memory: those that the description of the machine has."""
ORDERED: Final = "ordered"
STRICT: Final = "strict"
PARTS: Final[Mapping[str, int]] = {"bf16x3": 3, "bf16x2": 2, "bf16": 1}
"""Modes in which products may be computed of factors that so many bf16 stand for."""
FAST: Final = "fast"


@dataclass(frozen=True)
class Options(Configurable):
    """What a user may choose."""

    renamed: ClassVar[Mapping[str, str]] = {
        "strict-float": "math=ordered adds and rounds in the order of plain loops, as strict-float=yes did; "
        "math=strict only leaves out Winograd's algorithm"
    }

    described: ClassVar[Mapping[str, Path]] = {}
    """Machines of plugins: name → file."""

    cc: str = option("", "compiler; by default gcc or clang on PATH", runs=True, path=True)
    """Results depend on what the compiler is, not on what it is called: `Toolchain.identity` is in their keys."""
    cpu: str = option(
        "native", f"what the code is for: this machine (native), or one by name: {', '.join(machine_file.names())}"
    )
    machine: str = option("", "TOML file that describes what the code is for, in place of cpu", runs=True)
    math: Math = option(
        FAST,
        "what floating point may do: ordered: sums in the order of the axes, every operation rounded by itself, as in "
        "plain loops, slower; strict: sums in any order; fast: Winograd's algorithm, reciprocals and digits of factors "
        "too; bf16x3, bf16x2, bf16: also products of three, two or one bf16 for each factor, where that is faster",
    )
    lib: Literal["shared", "static", "none"] = option("shared", "library to build; none: sources only")
    weights: Literal["auto", "incbin", "text", "map"] = option(
        "auto",
        "how weights are stored: a binary file that the library includes, a C array, or a file that the program maps; "
        "auto: in the library up to 256 MiB",
    )
    prefix: str = option("", "prefix of all names, a C identifier; by default from the name of the model's file")
    arena: Literal["caller", "static"] = option("caller", "who provides the arena: the caller, or the library")
    memory: Literal["machine"] | tuple[tuple[str, Bytes], ...] = option(
        (),
        "working memories and their sizes, the fastest first, for plan-memory: fast:64KiB,slow:8MiB; of a single one, "
        "ram:256KiB, the size is a limit of the arena; machine: those that the description of the machine has",
    )
    inputs: Literal["kept", "consumed"] = option(
        "kept", "consumed: a call may write over its inputs after their last use, so that it needs less memory beside"
    )
    stack: Bytes | None = option(
        None, "what the buffers of a function may take on its stack, together; others lie in the arena"
    )
    section: tuple[tuple[str, str], ...] = option(
        (),
        "sections of the linker for weights, and for the library's own arena or memories: weights:.flash,arena:.dtcm",
    )
    steps: bool = option(False, "a function beside the others that runs one step of a call, so that others run between")
    check: Literal["none", "inputs"] = option(
        "inputs",
        "what functions check in their inputs, once a call: that what selects elements, such as ids of rows and "
        "positions, is in range; none: a number out of range selects some element, and no error is returned",
    )
    threads: str = option("1", "threads of a call: a number, or auto: as many as cores that the process may use")
    pool: Literal["own", "openmp", "caller"] = option(
        "own", "who runs them: threads of the library's own, OpenMP, or a function of the caller"
    )
    profile: bool = option(False, "a function beside the others that tells how long each step takes, for dlc bench")
    schedule: tuple[tuple[str, str], ...] = option(
        (), "schedules of kernels, by the first digits of their digests; others are chosen"
    )
    tune: str = option("", "file of dlc tune: kernels get the schedules that were measured for the machine", path=True)
    flags: tuple[str, ...] = option((), "additional flags for the compiler and linker, after those of dlc", runs=True)
    jobs: int = option(0, "number of compilers that run in parallel; 0: as --jobs of the build", low=0)

    def __post_init__(self) -> None:
        """Refuse what could not become a name in C."""
        if self.cpu not in ("native", *(known := (*machine_file.names(), *self.described))):
            help = did_you_mean(self.cpu, ("native", *known), "machines")
            message = f"c: option cpu: there is no machine {self.cpu}"
            raise OptionError(error("bad-option", message, help=help, exit_code=ExitCode.USAGE), "cpu")
        if self.threads != "auto" and not (self.threads.isdecimal() and 1 <= int(self.threads) <= MOST_THREADS):
            message = f"c: option threads: {self.threads} is neither auto nor a number from 1 to {MOST_THREADS}"
            raise OptionError(error("bad-option", message, exit_code=ExitCode.USAGE), "threads")
        problem = prefix_problem(self.prefix) if self.prefix else ""
        if problem:
            raise error("bad-option", f"c: option prefix: {problem}", exit_code=ExitCode.USAGE)
        if self.memory == OF_MACHINE and self.cpu == "native" and not self.machine:
            return  # --machine may follow; where it does not, whoever asks for the memories is told so
        problem = problem_of(self.working) or self._no_memory()
        if problem:
            raise OptionError(error("bad-option", f"c: option memory: {problem}", exit_code=ExitCode.USAGE), "memory")
        problem = sections_problem(self.section, self.memories) or self._no_section()
        if problem:
            raise OptionError(error("bad-option", f"c: option section: {problem}", exit_code=ExitCode.USAGE), "section")

    def _no_section(self) -> str:
        """Why a section would hold nothing, or ""."""
        regions = dict(self.section)
        if self.arena != "static" and any(name in regions for name in self.memories):
            return "the arena is the caller's; arena=static makes it the library's"
        if "weights" in regions and self.weights == "map":
            return "with weights=map the weights are a file that the program maps"
        return ""

    def _no_memory(self) -> str:
        """Why the header could not have members of these names, or ""."""
        words = [name for name, _ in self.working if reserved(name)]
        return f"{words[0]} is a word of C or C++" if words else ""

    @property
    def working(self) -> tuple[tuple[str, int], ...]:
        """The working memories with their sizes; none: one of any size.

        Raises:
            DlcError: (USAGE) the machine was asked for them, and its description cannot be read or has none.
        """
        if self.memory != OF_MACHINE:
            return self.memory
        if found := self._described().memories:
            return found
        which = self.machine or self.cpu
        message = f"c: option memory: the description of the machine {which} has no memories"
        help = "declare them in a machine file, under the key memories, or write them: memory=fast:64KiB,slow:8MiB"
        raise OptionError(error("bad-option", message, help=help, exit_code=ExitCode.USAGE), "memory")

    @property
    def costs(self) -> tuple[tuple[str, float], ...]:
        """What the description of the machine tells of accesses to them."""
        return self._described().costs if self.memory == OF_MACHINE else ()

    def _described(self) -> machine_file.MachineFile:
        """The description of the machine; of this machine, of which nobody wrote any, an empty one."""
        if file := self.machine or str(self.described.get(self.cpu, "")):
            return machine_file.read(Path(file))
        return machine_file.MachineFile() if self.cpu == "native" else machine_file.named(self.cpu)

    @property
    def memories(self) -> tuple[str, ...]:
        """Names of the working memories; that of the only one is arena."""
        return tuple(name for name, _ in self.working) if len(self.working) > 1 else ("arena",)

    @property
    def most_threads(self) -> int:
        """Threads of a call, at most."""
        return AUTO_THREADS if self.threads == "auto" else int(self.threads)
