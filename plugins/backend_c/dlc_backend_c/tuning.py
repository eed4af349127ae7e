"""What `dlc tune` asks of C: which schedules of a kernel are worth measuring, and where they are measured."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlc.api.tuning import Fingerprint, Trial
from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.alternatives import alternatives
from dlc.kernel.schedules.text import print_choices
from dlc_backend_c.options import Options
from dlc_backend_c.scheduling import Families, plain_kernel
from dlc_backend_c.target import target_of
from dlc_backend_c.toolchain import find_toolchain

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class CTuner:
    """Schedules for the target of these options."""

    options: Options
    families: Families = ()

    def fingerprint(self) -> Fingerprint:
        """Target, compiler with its own flags, and this computer's processor; raises DlcError (TOOL)."""
        facts = find_toolchain(self.options.cc).identity.splitlines()
        version = next(line.removeprefix("version ") for line in facts if line.startswith("version "))
        compiler = " ".join((version, *self.options.flags))
        return Fingerprint(target_of(self.options).characteristics, compiler, processor_name())

    def trials(self, kernel: Kernel, most: int, seed: int) -> Sequence[Trial]:
        """The schedule that is chosen, then others of little estimated time."""
        found = alternatives(plain_kernel(kernel), target_of(self.options).machine, most, seed, self.families)
        return [Trial(print_choices(a.choices), int(a.cycles)) for a in found]


def processor_name() -> str:
    """The model of this computer's processor; its architecture where the system does not say more."""
    try:
        text = _CPUINFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        text = ""
    names = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next(names, "") or platform.machine() or "unknown"
