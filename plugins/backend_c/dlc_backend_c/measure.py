"""This machine as a file: what its processor says of itself, and what it does at most as measured.

    processor, limits, clock   →   description, l1, l2, l2-rate, memory-rate, operations, loads, latency

Rates are per cycle of the clock that was measured beside them, so they hold for other frequencies too.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from dlc import ExitCode
from dlc.api.profile import Limits, MeasuredMachine
from dlc.base.diagnostics import error
from dlc_backend_c.machine_file import MachineFile, named, read, to_toml
from dlc_backend_c.options import Options
from dlc_backend_c.processor import Processor
from dlc_backend_c.profiler import Clock, CProfiler, vector_bytes
from dlc_backend_c.target import CTarget, level_of, missing, target_of

TIMES: Final = 32
"""A number is the best of so many: others that work here at times are not part of the machine."""


class Probes(Protocol):
    """What measures a machine."""

    def limits(self) -> Limits:
        """Operations and bytes in a second."""
        ...

    def clock(self) -> Clock:
        """Cycles in a second."""
        ...


@dataclass(frozen=True)
class Machine:
    """A machine before it is measured.

    Attributes:
        base: Vectors, registers, flags and instructions: the description of its kind of processors.
        processor: What it says of itself.
    """

    base: MachineFile
    processor: Processor

    @classmethod
    def of(cls, options: Options) -> Machine:
        """This machine, in the description that options name; of native, the best one that its processor fits.

        Raises:
            DlcError: (USAGE) the description is of other processors.
        """
        base = _base(options)
        here, lacks = platform.machine().lower(), missing(base.features)
        why = f"it lacks {', '.join(lacks)}" if lacks else ""
        if base.architectures and here not in base.architectures:
            why = f"it is {here}"
        if why:
            raise error(
                "other-machine",
                f"this machine cannot be measured as {base.description}: {why}",
                help="leave cpu and machine out of the target, or measure on that machine",
                exit_code=ExitCode.USAGE,
            )
        return cls(base, Processor.here())

    def target(self, options: Options) -> CTarget:
        """What the code that measures is compiled for: its caches have the sizes that the processor tells."""
        return replace(target_of(options), l1=self.l1, l2=self.l2)

    @property
    def l1(self) -> int:
        """Bytes of the first-level cache."""
        return self.processor.caches.get(1, self.base.l1)

    @property
    def l2(self) -> int:
        """Bytes of the second-level cache."""
        return self.processor.caches.get(2, self.base.l2)

    def measured(self, probes: Probes) -> MeasuredMachine:
        """The machine with its speed."""
        limits, clock = probes.limits(), probes.clock()
        width = vector_bytes(self.base.vector_bytes)
        rates = {m.name: m.rate / clock.cycles for m in limits.memories}
        found = replace(
            self.base,
            description=f"{self.processor.model}, as measured",
            l1=self.l1,
            l2=self.l2,
            l2_rate=_rounded(rates["L2"]),
            memory_rate=_rounded(rates[limits.memories[-1].name]),
            operations=_rounded(limits.operations / 2 / (width // 4) / clock.cycles),
            loads=_rounded(rates["L1"] / width),
            latency=_rounded(clock.latency),
        )
        facts: dict[str, int | float | str] = {
            "processor": self.processor.model,
            "cores": self.processor.cores,
            "GHz": _rounded(clock.cycles / 1e9),
            "GFLOP/s": _rounded(limits.operations / 1e9),
            **{f"GB/s from {m.name}": _rounded(m.rate / 1e9) for m in limits.memories},
        }
        return MeasuredMachine(to_toml(found), facts)


def measured(options: Options) -> MeasuredMachine:
    """This machine, measured by code that is compiled with the compiler and flags of options.

    Raises:
        DlcError: (USAGE) options describe another machine; (TOOL) there is no compiler, or it fails.
    """
    machine = Machine.of(options)
    return machine.measured(CProfiler.made(options, machine.target(options), TIMES))


def _base(options: Options) -> MachineFile:
    if options.machine:
        return read(Path(options.machine))
    if file := options.described.get(options.cpu):
        return read(file)
    return named(level_of(target_of(options).flags) if options.cpu == "native" else options.cpu)


def _rounded(value: float) -> float:
    """Three digits: what is measured differs in the fourth from one time to the next."""
    return float(f"{value:.3g}")
