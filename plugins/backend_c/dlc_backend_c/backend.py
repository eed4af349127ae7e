"""`C`: options, and the three things a backend does: emit, build, load."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from dlc import Artifact, Backend, Region, Report, Workshop
from dlc.files.inputs import input_bytes
from dlc.spec import format_bytes
from dlc_backend_c import machine_file
from dlc_backend_c.names import default_prefix
from dlc_backend_c.options import PARTS, STRICT, Options

if TYPE_CHECKING:
    from dlc.api.artifact import KernelFunction
    from dlc.api.backend import KernelSchedule
    from dlc.api.families import Family
    from dlc.api.plan import Plan
    from dlc.api.profile import MeasuredMachine
    from dlc.api.training import Bundle
    from dlc.api.variants import Variants
    from dlc.kernel.kernel import Kernel
    from dlc.kernel.loops.program import LoopProgram
    from dlc.kernel.schedules.choice import Choice
    from dlc_backend_c.profiler import CProfiler
    from dlc_backend_c.runtime import Model
    from dlc_backend_c.training_runtime import TrainingModel
    from dlc_backend_c.tuning import CTuner


@dataclass(frozen=True)
class C(Options, Backend):
    """C99 sources with a header, and a shared or static library compiled from them."""

    name: ClassVar[str] = "c"
    is_structural: ClassVar[bool] = True
    workshop: ClassVar[Workshop | None] = None

    def for_model(self, title: str) -> "C":
        """The backend with its prefix taken from a model's title, unless the user chose one."""
        return self if self.prefix else self._changed(prefix=default_prefix(title))

    @classmethod
    def with_machines(cls, machines: Mapping[str, Path]) -> "type[Self]":
        """The class whose option `cpu` names these machines too."""
        own = machine_file.names()
        described = {name: file for name, file in machines.items() if name not in own}
        if not described:
            return cls
        return cast("type[Self]", type(cls.__name__, (cls,), {"described": described, "__doc__": cls.__doc__}))

    def with_workshop(self, workshop: Workshop) -> "C":
        """The backend that keeps the text of kernels."""
        return self._holding(workshop=workshop)

    def with_families(self, families: "tuple[Family, ...]") -> "C":
        """The backend that tries these families of schedules too."""
        return self._holding(families=families)

    def _holding(self, **held: object) -> "C":
        """The same options with what is no option."""
        new = copy(self)
        for name, value in held.items():
            object.__setattr__(new, name, value)
        return new

    def _changed(self, **options: Any) -> "C":
        """Other options, and the same of what is none."""
        return replace(self, **options)._holding(workshop=self.workshop, families=self.families)

    def _loaded_families(self) -> "tuple[type[Choice], ...]":
        """Imported now; raises DlcError (PLUGIN)."""
        return tuple(family.load() for family in self.families)

    def regions(self) -> Mapping[str, Region]:
        """One arena, or the memories that the option names."""
        from dlc.api.plan import INPUTS  # not above: it imports graphs, which finding a build in the cache does without
        from dlc_backend_c.target import target_of

        align = target_of(self).align
        inputs = {INPUTS: Region(align)} if self.inputs == "consumed" else {}
        working = self.working
        if len(working) > 1:
            return {**{name: Region(align, size) for name, size in working}, **inputs}
        return {"arena": Region(align, working[0][1] if working else None), **inputs}

    def known_faults(self) -> tuple[tuple[str, str], ...]:
        """Of the compiler, by programs that it compiles wrong; raises DlcError (TOOL) if there is none."""
        from dlc_backend_c.faults import known_faults
        from dlc_backend_c.toolchain import find_toolchain

        return tuple(known_faults(find_toolchain(self.cc).command))

    def verified_sizes(self) -> tuple[int, ...]:
        """Around the lanes of a vector, and more rows than two tiles have: a tile holds its rows in registers."""
        from dlc_backend_c.target import target_of

        machine = target_of(self).machine
        lanes = max(machine.lanes(4), 4)
        return lanes - 1, lanes, lanes + 1, 2 * machine.registers

    def toolchain(self) -> str:
        """The processor, and the compiler when a library is built; raises DlcError (TOOL) if there is none."""
        from dlc_backend_c.toolchain import find_toolchain

        target = f"target {self.processor()}"
        return target if self.lib == "none" else f"{target}\n{find_toolchain(self.cc).identity}"

    def machines(self) -> Mapping[str, str]:
        """Values of the option cpu."""
        from dlc_backend_c.machine_file import described, named, names, summary
        from dlc_backend_c.target import NATIVE, level_of, target_for

        here = level_of(target_for(NATIVE).flags)
        own = {NATIVE: f"this machine: {named(here).description}"} | {n: summary(named(n)) for n in names()}
        return own | {name: described(file) for name, file in self.described.items()}

    def processor(self) -> str:
        """What compilers are reported of it, the sizes that loops are made for, and what was measured on it."""
        from dlc_backend_c.target import target_of

        identity = target_of(self).identity
        if file := self.described.get(self.cpu):
            # Its content is code of its plugin, not of this package.
            identity += f" description={sha256(input_bytes(file, machine_file.MOST_BYTES)).hexdigest()[:32]}"
        if not self.tune:
            return identity
        from dlc_backend_c.scheduling import tuning_of

        tuning = tuning_of(self.tune)
        return f"{identity} tuned={tuning.digest}" if tuning else identity

    def settings(self) -> Mapping[str, Mapping[str, str | tuple[str, ...]]]:
        """What the machine asks for: its alignment, numbers for estimates where it has vectors, narrow panels without
        padding and bytes by themselves where it has none; and what the mode of floating point allows."""
        from dlc.kernel.schedules.machine import SCALAR_PANEL, WORDS_PANEL
        from dlc_backend_c.instructions import PORTABLE_BF16
        from dlc_backend_c.target import target_of

        target = target_of(self)
        memory: dict[str, str | tuple[str, ...]] = {"align": str(target.align)}
        if self.memory:
            memory["regions"] = tuple(f"{name}:{format_bytes(size)}" for name, size in self.working)
        if self.costs:
            memory["costs"] = tuple(f"{name}:{cost!r}" for name, cost in self.costs)
        if self.inputs == "consumed":
            memory["inputs"] = self.inputs
        align = {"align": str(target.align)}
        found: dict[str, Mapping[str, str | tuple[str, ...]]] = {
            "parts": {"bytes": "4KiB"},
            "stream": align,
            "rematerialise": align,
            "plan-memory": memory,
        }
        if target.pairs:
            found["bf16"] = {"parts": str(PARTS[target.math]), "operations": str(target.pairs)}
        if not target.vector_bytes:
            bytes_ = WORDS_PANEL if target.machine.words else 0
            layout = {"panel": str(SCALAR_PANEL), "byte-panel": str(bytes_), "pad": "no"}
            return {**found, "layout": layout, "fuse": {"words": "no"}, "integers": {"group": "1"}}
        if target.ordered:
            return {**found, "layout": {"rows": "2"}, "fuse": {"words": "no"}}  # a row's sum is a loop of its own
        if 0 < target.pairs < PORTABLE_BF16:
            found["layout"] = {"pairs": "yes"}
        sizes = {"vector-bytes": target.vector_bytes, "registers": target.registers, "l1": target.l1, "l2": target.l2}
        whole = {"vector-bytes": str(target.vector_bytes)}
        rates = {key.replace("_", "-"): value for key, value in target.speeds if key in ("l2_rate", "memory_rate")}
        numbers = {k: str(v) for k, v in (sizes | rates).items()}
        found |= {"whole-vectors": whole, "row-blocks": numbers}
        return found if target.math == STRICT else found | {"winograd": numbers}

    def schedules(self, kernels: "Sequence[Kernel]") -> "Sequence[KernelSchedule]":
        """How each kernel becomes loops, and the workspace that its function asks for; raises DlcError (USAGE)."""
        from dlc_backend_c.scheduling import Preferred, schedules
        from dlc_backend_c.target import target_of

        return schedules(kernels, target_of(self, self._loaded_families()), Preferred.of(self), self.workshop)

    def loops(self, kernel: "Kernel") -> "LoopProgram":
        """What the kernel's function does, before it is divided into parts; raises DlcError (USAGE)."""
        from dlc_backend_c.scheduling import Preferred, loops_of, plain_kernel
        from dlc_backend_c.target import target_of

        target = target_of(self, self._loaded_families())
        given = Preferred.of(self).schedule(kernel, target)
        program, _ = loops_of(plain_kernel(kernel), target.machine, given, target.families)
        return program

    def emit(self, plan: "Plan", report: Report) -> Artifact:
        """Sources, header, weights, build files and manifest; raises DlcError when the plan has no places."""
        from dlc_backend_c.emit import emit

        return emit(plan, self, report, self.workshop, families=self._loaded_families())

    def emit_variants(self, variants: "Variants", report: Report) -> Artifact:
        """As `emit`, with a function for each variant, which calls of its sizes take."""
        from dlc_backend_c.emit import emit

        return emit(variants.general, self, report, self.workshop, variants.variants, self._loaded_families())

    def emit_training(self, bundle: "Bundle", report: Report) -> Artifact:
        """As `emit`, of all functions of a training program: one library, one header."""
        from dlc_backend_c.training import emit_training

        return emit_training(bundle, self, report, self.workshop, self._loaded_families())

    def build(self, artifact: Artifact, workshop: Workshop) -> Artifact:
        """`artifact` with its library; raises DlcError (TOOL)."""
        from dlc_backend_c.build import build

        return artifact if self.lib == "none" else build(artifact, self, workshop)

    def kernel_functions(self, artifact: Artifact) -> "Mapping[str, KernelFunction]":
        """The C function of each kernel."""
        from dlc_backend_c.kernel_lines import kernel_functions

        return kernel_functions(artifact)

    def profiler(self) -> "tuple[C, CProfiler]":
        """Programs with the option profile, timed by a clock that is compiled for them; raises DlcError (TOOL)."""
        from dlc_backend_c.profiler import CProfiler

        return self._changed(profile=True), CProfiler.made(self, threads=self.threads_of_call())

    def measured_machine(self) -> "MeasuredMachine":
        """This machine, measured by code that is compiled with the options; raises DlcError (USAGE, TOOL)."""
        from dlc_backend_c.measure import measured

        return measured(self)

    def tuner(self) -> "CTuner":
        """What measures schedules for these options here."""
        from dlc_backend_c.tuning import CTuner

        return CTuner(self, self._loaded_families())

    def threads_of_call(self) -> int:
        """As the option says; of `auto`, those that the process may use."""
        if self.threads != "auto":
            return self.most_threads
        from dlc_backend_c.processor import cores

        return min(self.most_threads, cores())

    def with_threads(self, threads: int) -> "C":
        """The same with another number; raises DlcError (USAGE) where programs cannot have so many."""
        return self._changed(threads=str(threads))

    def load(self, directory: Path) -> "Model | TrainingModel":
        """The program whose shared library was built into `directory`, with training if it has any; raises DlcError."""
        from dlc_backend_c.runtime import load

        return load(directory)
