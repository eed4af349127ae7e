"""`S2Train`: options, and what a backend does: emit a `.s2t` file, run it in the simulator."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dlc import Artifact, Backend, Description, Region, Report, Source, option
from dlc_backend_s2train.defaults import LIMIT, SUFFIX, TRAINING

if TYPE_CHECKING:
    from dlc.api.device_run import DeviceRun
    from dlc.api.plan import Plan
    from dlc.api.training import Bundle
    from dlc.runtime.array_program import ArrayProgram
    from dlc_backend_s2train.simulator.training import SimulatedTraining


@dataclass(frozen=True)
class S2Train(Backend):
    """A binary for the S2Train training accelerator: instructions and data in one `.s2t` file."""

    name: ClassVar[str] = "s2train"
    pipeline: ClassVar[str] = "s2train"
    training: ClassVar[str] = TRAINING
    offloads: ClassVar[str] = "s2-select"
    suffixes: ClassVar[tuple[str, ...]] = (SUFFIX,)
    tolerance: ClassVar[tuple[float, float] | None] = (5e-3, 5e-3)
    """About ten times the rounding of fp16, in which every layer stores its results."""
    prefix: str = option("", "name of the file without .s2t; by default from the name of the model's file")
    emit_: Literal["program", "frames"] = option(
        "program",
        "frames: the file also has the frames that are sent to the device: with the values of weights, and with open "
        "frames for values of a run",
    )
    simulate: Literal["fast", "bit-true"] = option(
        "fast", "how the simulator adds: by numpy's matrix products, or in the order of the device"
    )
    isa: Literal["v1", "v2"] = option(
        "v2",
        "encoding of instructions: v1 also writes the words of the published compiler, which number 512 tensors",
    )
    lifetimes: Literal["own", "published"] = option(
        "own",
        "published: also report memory as the published compiler counts it; programs are the same",
    )

    memory_limit: int = field(default=LIMIT, init=False, repr=False, compare=False)
    """Bytes that a program may take in the simulator. It is no option: a program's manifest must not raise it."""

    def limited(self, memory: int) -> "S2Train":
        """The same for programs that take up to `memory` bytes in the simulator."""
        made = copy(self)
        object.__setattr__(made, "memory_limit", memory)
        return made

    def own_pipeline(self) -> str:
        """One that selects what words of version 1 say, where those are wanted."""
        return "s2train-v1" if self.isa == "v1" else self.pipeline

    def for_model(self, title: str) -> "S2Train":
        """The backend with its prefix taken from a model's title, unless the user chose one."""
        from dlc_backend_s2train.artifact import file_title

        return self if self.prefix else replace(self, prefix=file_title(title))

    def regions(self) -> Mapping[str, Region]:
        """One range of addresses for features, their gradients and those of weights."""
        from dlc_backend_s2train.emit import ALIGN

        return {"arena": Region(align=ALIGN)}

    def planned(self, plans: "Mapping[str, Plan]") -> Mapping[str, int | str]:
        """Memory in the published count, where that is asked for."""
        if self.lifetimes == "own":
            return {}
        from dlc_backend_s2train.artifact import published_of

        return published_of(plans)

    def emit(self, plan: "Plan", report: Report) -> Artifact:
        """The binary; raises DlcError when the plan has no places, or holds what is no instruction."""
        from dlc_backend_s2train.artifact import artifact_of

        return artifact_of(plan, self, report)

    def emit_training(self, bundle: "Bundle", report: Report) -> Artifact:
        """As `emit`, of all functions of a training program."""
        from dlc_backend_s2train.artifact import training_artifact

        return training_artifact(bundle, self, report)

    def load(self, directory: Path) -> "ArrayProgram | SimulatedTraining":
        """The program in the simulator, once the verifier found nothing; raises DlcError for any other file."""
        from dlc_backend_s2train.simulator.loading import load

        return load(directory, self.memory_limit)

    def load_file(self, source: Source) -> "ArrayProgram | SimulatedTraining":
        """As `load`."""
        from dlc_backend_s2train.simulator.loading import load_file

        return load_file(source, self.simulate, self.memory_limit)

    def load_device_run(self, source: Source, wanted: "DeviceRun") -> "ArrayProgram":
        """An entry in the simulator, traced, dumped or compared with a device as it runs."""
        from dlc_backend_s2train.device.bring_up import bring_up

        return bring_up(source, self.simulate, self.memory_limit, wanted)

    def describe(self, source: Source) -> Description:
        """Entries, memory, tensors, instructions."""
        from dlc_backend_s2train.container.files import describe

        return describe(source)

    def check(self, source: Source) -> str:
        """Structure, operands, bounds, lifetimes, and that nothing is read before it is written."""
        from dlc_backend_s2train.container.files import check

        program = check(source, self.memory_limit).program
        what = f"{len(program.instructions):,} instructions, {len(program.tensors):,} tensors"
        words = "; words of version 1 say the same" if program.legacy else ""
        frames = "; frames decoded again are the tensors" if program.frames else ""
        right = "structure, operands, bounds and lifetimes are right, nothing is read before it is written"
        return f"{what}: {right}{words}{frames}"

    def summary(self, facts: Mapping[str, int | str]) -> Sequence[str]:
        """Instructions, traffic of the link, cycles under both readings."""
        from dlc_backend_s2train.build_lines import cost_lines, coverage_lines, published_lines, word_lines

        return (*cost_lines(facts), *coverage_lines(facts), *word_lines(facts), *published_lines(facts))

    def stats(self, artifact: Artifact) -> tuple[str, Mapping[str, Any]]:
        """What every instruction costs."""
        from dlc_backend_s2train.cost.figures import stats

        return stats(artifact)

    def pages(self, artifact: Artifact) -> Mapping[str, str]:
        """The costs over time, and memory over time."""
        from dlc_backend_s2train.cost.figures import pages

        return pages(artifact)
