"""`C`: options, and the three things a backend does: emit, build, load."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from dlc import Artifact, Backend, ExitCode, Region, Report, Workshop, option
from dlc.diagnostics import error
from dlc_backend_c.names import default_prefix, prefix_problem

if TYPE_CHECKING:
    from dlc.plan import Plan
    from dlc_backend_c.runtime import Model


@dataclass(frozen=True)
class C(Backend):
    """C99 sources with a header, and a shared or static library made of them."""

    name: ClassVar[str] = "c"
    cc: str = option("", "compiler; by default gcc, else clang, from PATH")
    cpu: Literal["native", "generic", "x86-64-v3", "x86-64-v4"] = option(
        "native", "instructions to use: those of this machine, none beyond portable C99, or a level of x86-64"
    )
    lib: Literal["shared", "static", "none"] = option("shared", "library to build; none: sources only")
    weights: Literal["incbin", "text", "map"] = option(
        "incbin",
        "where weights live: a binary file in the library, a C array in the library, or a file given at run time",
    )
    prefix: str = option("", "first part of all names, a C identifier; by default from the model's name")
    arena: Literal["caller", "static"] = option("caller", "who holds the working memory: the caller, or the library")
    flags: tuple[str, ...] = option((), "further flags for the compiler and linker, after dlc's own")
    jobs: int = option(0, "compilers that run at the same time; 0: as many as the build runs", low=0)

    def __post_init__(self) -> None:
        """Refuse what could not become a name in C."""
        problem = prefix_problem(self.prefix) if self.prefix else ""
        if problem:
            raise error("bad-option", f"c: option prefix: {problem}", exit_code=ExitCode.USAGE)

    def for_model(self, title: str) -> "C":
        """The backend with its prefix taken from a model's title, unless the user chose one."""
        return self if self.prefix else replace(self, prefix=default_prefix(title))

    def regions(self) -> Mapping[str, Region]:
        """One arena."""
        return {"arena": Region(align=64)}

    def toolchain(self) -> str:
        """Target features, and the compiler when a library is built; raises DlcError (TOOL) if there is none."""
        from dlc_backend_c.target import target_for
        from dlc_backend_c.toolchain import find_toolchain

        target = f"target {self.cpu} {' '.join(target_for(self.cpu).flags)}".rstrip()
        return target if self.lib == "none" else f"{target}\n{find_toolchain(self.cc).identity}"

    def emit(self, plan: "Plan", report: Report) -> Artifact:
        """Sources, header, weights, build files and manifest; raises DlcError when the plan has no places."""
        from dlc_backend_c.emit import emit

        return emit(plan, self, report)

    def build(self, artifact: Artifact, workshop: Workshop) -> Artifact:
        """`artifact` with its library; raises DlcError (TOOL)."""
        from dlc_backend_c.build import build

        return artifact if self.lib == "none" else build(artifact, self, workshop)

    def load(self, directory: Path) -> "Model":
        """The model whose shared library was built into `directory`; raises DlcError."""
        from dlc_backend_c.runtime import Model

        return Model.load(directory)
