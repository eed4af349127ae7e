"""The class that a plugin extends to write programs for a target."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from dlc.api.artifact import Artifact, Description, KernelFunction, Workshop
from dlc.api.families import Family
from dlc.api.program import Program
from dlc.api.source import Source
from dlc.base.diagnostics import ExitCode, error
from dlc.base.level import Level
from dlc.spec import Configurable

if TYPE_CHECKING:
    from dlc.api.device_run import DeviceRun
    from dlc.api.plan import Plan
    from dlc.api.profile import MeasuredMachine, Profiler
    from dlc.api.training import Bundle
    from dlc.api.tuning import Tuner
    from dlc.api.variants import Variants
    from dlc.base.report import Report
    from dlc.base.types import DType, Type
    from dlc.graph import Op
    from dlc.kernel.kernel import Kernel
    from dlc.kernel.loops.program import LoopProgram


@dataclass(frozen=True)
class Reason:
    """Why a backend refuses an op, a type or a kernel; becomes a diagnostic at the nodes that need it."""

    text: str
    """What is not supported, with the numbers."""
    help: str = ""
    """What would make it legal."""


@dataclass(frozen=True)
class Tuned:
    """What measurements say of a kernel."""

    state: Literal["used", "unknown", "other-machine", "unfit"]
    """Whether its schedule is the measured one; that there are none, or of other machines only, or none that applies.
    """
    reason: str = ""
    """Why it does not apply."""


@dataclass(frozen=True)
class KernelSchedule:
    """What a backend says of a kernel before steps are ordered."""

    workspace: int = 0
    """Bytes that it works in while it runs, beside its arguments and results."""
    text: str = ""
    """How it becomes loops, as the backend writes it; "" where there is nothing to choose."""
    cycles: int = 0
    """Of one core, as the backend estimates them; 0 where it does not."""
    bytes: int = 0
    """That come from beyond the caches of a core, or go there, as the backend estimates them."""
    others: tuple[tuple[str, str], ...] = ()
    """(candidate, why it was not chosen) of every other way in which it may become loops."""
    given: bool = False
    """Whether the user gave it."""
    tuned: Tuned | None = None
    """What became of measurements that were asked for; None where none were."""


@dataclass(frozen=True)
class Region:
    """A kind of memory that a program uses."""

    align: int = 64
    """Bytes that every buffer's offset is a multiple of."""
    limit: int | None = None
    """Bytes available, or None."""


class Backend(Configurable, ABC):
    """A writer of programs: what the pipeline leaves → Artifact. The least backend is `name` and `emit`."""

    consumes: ClassVar[Level] = "plan"
    """What the pipeline must leave behind, and `emit` gets: a Graph of ops, a Graph of kernel calls, or a Plan."""
    pipeline: ClassVar[str] = "infer"
    """Default pipeline: a name or spec text."""
    training: ClassVar[str] = ""
    """Options of the pass autodiff that training programs for the target begin with: those of --train come on top."""

    offloads: ClassVar[str] = ""
    """The pass that leaves to a host what the target has no operation for; "" for a target that computes everything.

    It has the options `min-ops` and `min-macs`, the least percentages of the model that stay on the target, which
    --min-offload sets, and refuses with exit code 4 (LIMIT) what is below them.
    """

    stores: ClassVar[Mapping["DType", "DType"]] = {}
    """Element types of constants that `emit` gets → types in which its programs hold them: {dlc.f32: dlc.f16}.

    What these cannot hold, numbers that become infinite or 0, a build warns of (`value-range`). A pass or backend that
    converts by `dlc.base.narrowing.narrowed` inside of `recording` warns likewise.
    """

    tolerance: ClassVar[tuple[float, float] | None] = None
    """How far `dlc verify` lets outputs of its programs be from a reference, unless the user says so.

    (relative, absolute as a part of an output's largest element); None: what suits 32-bit floats.
    """
    is_structural: ClassVar[bool] = False
    """Whether its answers about ops, types and kernels do not depend on names of nodes, inputs and outputs, and it
    leaves all arithmetic on values to `Op.evaluate` and `evaluate_ops`; see `Pass.is_structural`. Emission sees the
    names."""
    tools_decide: ClassVar[bool] = False
    """Whether `accepts` depends on what `toolchain` identifies, as it does where an executable answers."""
    families: ClassVar[tuple[Family, ...]] = ()
    """Families of schedules of plugins that it chooses among: what `with_families` was given, where it takes any."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Types of files, as (".bin",), each a whole program that the backend reads back.

    `dlc show`, `run`, `verify`, `train` and `dlc.load` take such a file: `describe`, `check` and `load_file` are then
    all to be there.
    """

    def accepts(self, op: "Op") -> bool | Reason:
        """Whether the target runs `op`; a Reason says why not and what would help.

        Asked about every op that depends on an input, just before ops become kernels, or before `emit` when the backend
        consumes ops. All refused ops are reported at once. True by default: what has a kernel can be built.
        """
        return True

    def accepts_all(self, ops: "Sequence[Op]") -> "Sequence[bool | Reason]":
        """`accepts` for each of these ops, for backends that are asked about all at once."""
        return [self.accepts(op) for op in ops]

    def accepts_type(self, type: "Type") -> bool | Reason:
        """Whether programs for the target have values of `type`, element type and shape; a Reason says why not.

        Asked about every value that `emit` gets: inputs, outputs, constants that passes made, operands and results of
        ops, and of kernels parameters, locals and (as a scalar) the numbers in between, `Kernel.element_types`. Inputs
        and results of the model's ops are asked about together with `accepts`, everything else before `emit`. True by
        default.
        """
        del type
        return True

    def accepts_kernel(self, kernel: "Kernel") -> bool | Reason:
        """Whether the target runs a kernel; a Reason says why not, as that it has no function of `kernel.functions`.

        Asked before `emit` about every kernel that it gets, whatever it consumes: kernels are made of ops that
        `accepts` was asked about, by passes that choose how. True by default.
        """
        del kernel
        return True

    def own_level(self) -> Level:
        """`consumes`, unless an option decides."""
        return self.consumes

    def own_pipeline(self) -> str:
        """The default pipeline with these options: `pipeline`, unless one of them wants another."""
        return self.pipeline

    def schedules(self, kernels: "Sequence[Kernel]") -> "Sequence[KernelSchedule]":
        """How each kernel becomes loops on this target, and the bytes that it works in.

        They are stated before steps are ordered. Workspaces are placed like values: `Plan.workspaces` says where;
        `Graph.schedules` has the texts. By default nothing is stated.

        Raises:
            DlcError: (USAGE) a schedule that the user gave does not apply.
        """
        return (KernelSchedule(),) * len(kernels)

    def loops(self, kernel: "Kernel") -> "LoopProgram | None":
        """The loops that programs for this target have for a kernel, with the schedule that is chosen or given for it.

        `dlc build --verify-loops` checks them against the kernel. None, the default: there are none to check.

        Raises:
            DlcError: (USAGE) a schedule that the user gave does not apply.
        """
        del kernel
        return None

    def machines(self) -> Mapping[str, str]:
        """What the backend builds for, by the names that its options take → what that is, for `dlc list machines`."""
        return {}

    def processor(self) -> str:
        """What the code of kernels depends on beside the options; part of the cache key of what is made of them."""
        return ""

    def settings(self) -> Mapping[str, Mapping[str, str | tuple[str, ...]]]:
        """Options of passes that suit the target, {"layout": {"panel": "1"}}, where the user says nothing of them."""
        return {}

    def regions(self) -> Mapping[str, Region]:
        """Memory by name: a plan that does not fit into a region, or is not aligned as it asks, is refused."""
        return {"arena": Region()}

    def for_model(self, title: str) -> "Backend":
        """The backend with options that it derives from a model's title, such as a prefix of names."""
        return self

    def with_families(self, families: tuple[Family, ...]) -> "Backend":
        """The backend that tries these families of schedules too, as `families`; itself where it has no use for any."""
        del families
        return self

    @classmethod
    def with_machines(cls, machines: Mapping[str, Path]) -> "type[Self]":
        """The class whose options may name these machines too: name → file; itself where none names any.

        A class, not an instance: options are checked when an instance is made of a spec.
        """
        del machines
        return cls

    def with_workshop(self, workshop: Workshop) -> "Backend":
        """The backend with cached sub-steps for `schedules`, `emit`, `emit_training`; itself when it needs none.

        For text that takes long and depends on little, such as a kernel's, while the program around it changes.
        """
        del workshop
        return self

    def known_faults(self) -> tuple[tuple[str, str], ...]:
        """(name, meaning) of faults that its tools have, which its programs avoid; `dlc doctor` tells them."""
        return ()

    def verified_sizes(self) -> tuple[int, ...]:
        """Sizes of open dimensions at which its programs take other paths: `dlc verify` runs them within bounds."""
        return 7, 8, 9, 24

    def toolchain(self) -> str:
        """Identity of the tools that `build` runs, one fact a line; part of the cache key. Raises DlcError (TOOL)."""
        return ""

    def planned(self, plans: "Mapping[str, Plan]") -> Mapping[str, int | str]:
        """Facts of plans by function (of a program without functions by ""), for `dlc plan`; `summary` says them."""
        del plans
        return {}

    @abstractmethod
    def emit(self, state: Any, /, report: "Report") -> Artifact:
        """The program as text and data; `state` is a Graph or a Plan, as `consumes` says. Must not touch the disk."""

    def emit_training(self, bundle: "Bundle", report: "Report") -> Artifact:
        """The functions of a training program as one program; must not touch the disk.

        Raises:
            DlcError: (USAGE) by default: the target has no training programs.
        """
        del bundle, report
        raise error(
            "no-training",
            f"{self.name} does not build training programs",
            help="build for another target, or leave --train out",
            exit_code=ExitCode.USAGE,
        )

    def emit_variants(self, variants: "Variants", report: "Report") -> Artifact:
        """A program that has a plan of its own for some sizes, which calls of these sizes take; see `Variants`.

        Raises:
            DlcError: (USAGE) by default: the target has no such programs.
        """
        del variants, report
        raise error(
            "no-variants",
            f"{self.name} builds programs of one size only",
            help="build for another target, or leave --specialise out",
            exit_code=ExitCode.USAGE,
        )

    def build(self, artifact: Artifact, workshop: Workshop) -> Artifact:
        """`artifact` with what the toolchain makes of it; raises DlcError (TOOL)."""
        return artifact

    def load(self, directory: Path) -> Program:
        """The program installed in `directory`, ready to be called here; raises DlcError when it cannot run here.

        `dlc.ArrayProgram` makes one of a function on arrays, such as a simulator.
        """
        raise error("cannot-load", f"programs for {self.name} cannot run on this machine", exit_code=ExitCode.USAGE)

    def profiler(self) -> "tuple[Backend, Profiler] | None":
        """For `dlc bench`: a backend whose programs tell the time of their steps, and what measures them here.

        The programs are otherwise those of this backend. None, the default: nothing measures steps.

        Raises:
            DlcError: (TOOL) what it needs is not installed.
        """
        return None

    def measured_machine(self) -> "MeasuredMachine | None":
        """This machine as a file that the option `machine` reads, for `dlc doctor --measure-machine`.

        None, the default: the backend builds for machines that it does not measure.

        Raises:
            DlcError: (TOOL) what it needs is not installed; (USAGE) its options are for another machine.
        """
        return None

    def tuner(self) -> "Tuner | None":
        """For `dlc tune`: what schedules of kernels there are to measure, and where that is done.

        They are measured in programs of `profiler` with the option `schedule`; the option `tune` takes the file with
        the results. None, the default: schedules are not measured.
        """
        return None

    def threads_of_call(self) -> int:
        """Threads that a call of its programs runs on, at most: `dlc bench` gives other runtimes as many."""
        return 1

    def with_threads(self, threads: int) -> "Backend":
        """The backend whose calls run on so many threads, for `dlc bench --threads`.

        Raises:
            DlcError: (USAGE) its programs cannot; by default they have one thread.
        """
        if threads == 1:
            return self
        message = f"--threads {threads}: a call of a program of {self.name} runs on one thread"
        raise error("no-effect", message, help="leave it out", exit_code=ExitCode.USAGE)

    def load_file(self, source: Source) -> Program:
        """As `load`, of a file whose type is among `suffixes`, wherever it lies. Raises DlcError as `load` does."""
        raise self._no_file(source)

    def load_device_run(self, source: Source, wanted: "DeviceRun") -> Program:
        """As `load_file`, of one function of a device's program, which is looked at while it runs.

        Raises:
            DlcError: (USAGE) by default: programs of this target are no instructions of a device.
        """
        del source
        message = f"{wanted.flags[0]}: a program of {self.name} has no instructions of a device"
        raise error("no-effect", message, help="leave it out", exit_code=ExitCode.USAGE)

    def limited(self, memory: int) -> "Backend":
        """The backend that loads and checks programs of up to `memory` bytes, where it bounds what a file may take.

        Raises:
            DlcError: (USAGE) by default: nothing bounds the programs of this target.
        """
        del memory
        message = f"--max-memory: programs of {self.name} run in memory that their caller gives them"
        raise error("no-effect", message, help="leave it out", exit_code=ExitCode.USAGE)

    def describe(self, source: Source) -> Description:
        """What such a file holds. Raises DlcError with the place in the file when it is none."""
        raise self._no_file(source)

    def check(self, source: Source) -> str:
        """What was found right with such a file without running it, in a line.

        Raises:
            DlcError: everything that is wrong with it, with places in the file.
        """
        raise self._no_file(source)

    def summary(self, facts: Mapping[str, int | str]) -> Sequence[str]:
        """Lines that `dlc build` prints at its end, from the facts of an artifact; beside those on its memory."""
        del facts
        return ()

    def stats(self, artifact: Artifact) -> tuple[str, Mapping[str, Any]] | None:
        """What `dlc build --stats` tells of a program, as text and as a JSON object.

        None, the default: how often the loops of its kernels run.
        """
        del artifact
        return None

    def kernel_functions(self, artifact: Artifact) -> Mapping[str, KernelFunction]:
        """Where the program has its kernels, by their digests, for the record of a build (`dlc build --record`).

        By default nothing is known of that.
        """
        del artifact
        return {}

    def pages(self, artifact: Artifact) -> Mapping[str, str]:
        """Further pages of the report of `dlc build --html`, by name, as {"timeline.html": …}: each a whole page.

        They are written beside the program, no part of it, and report.html refers to them.
        """
        del artifact
        return {}

    def _no_file(self, source: Source) -> Exception:
        return error(
            "not-an-artifact",
            f"{source.name}: {self.name} cannot read a program from a single file",
            help="give the directory that it was built into",
            exit_code=ExitCode.USAGE,
        )
