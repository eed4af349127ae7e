"""What `dlc run` asks of a program for a device besides its outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


def _silent(line: str) -> None:
    del line


@dataclass(frozen=True)
class DeviceRun:
    """One run of a device's program that is looked at while it runs; see `Backend.load_device_run`."""

    entry: str = ""
    """The function to run, by its name in the program; "": the one that a load gives."""
    until: int | None = None
    """Number of the last instruction that is executed; its results then are the outputs."""
    trace: Path | None = None
    """Where to write the estimated times of the units, as a trace that Chrome and Perfetto read."""
    dump: Path | None = None
    """Directory for what each instruction reads and writes; it does not exist yet, or is empty."""
    device: str = ""
    """Command of a device to compare with after every instruction."""
    tell: Callable[[str], object] = field(default=_silent, repr=False, compare=False)
    """Takes lines for the user."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the command line that ask for something."""
        asked = {
            "--entry": bool(self.entry),
            "--until": self.until is not None,
            "--trace": self.trace is not None,
            "--dump": self.dump is not None,
            "--device": bool(self.device),
        }
        return tuple(flag for flag, is_asked in asked.items() if is_asked)
