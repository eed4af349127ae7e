"""What the processor of this machine says of itself, where Linux passes it on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlc.spec.convert import Problem, parse_bytes

CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
"""A folder for each cache of a core: its level, its type, and its size, as 32K."""
INFORMATION: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """A processor.

    Attributes:
        model: What its maker calls it; its architecture where nobody tells.
        cores: That this process may use.
        caches: Bytes of the caches that hold data, by level; {} where nobody tells.
    """

    model: str
    cores: int
    caches: Mapping[int, int]

    @classmethod
    def here(cls) -> Processor:
        """That of this machine."""
        return cls(_model(), cores(), caches())


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def caches(folder: Path = CACHES) -> Mapping[int, int]:
    """Bytes of the caches of a core that hold data, by level, from a folder like Linux's."""
    found: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            kind, level, size = (
                (index / name).read_text(encoding="ascii").strip() for name in ("type", "level", "size")
            )
            if kind in ("Data", "Unified"):
                found[int(level)] = parse_bytes(f"{size}iB")
        except (OSError, ValueError, Problem):
            continue  # a cache that nobody tells of
    return found


def information(name: str) -> str:
    """The line of that name of /proc/cpuinfo; "" where there is none."""
    try:
        text = INFORMATION.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return next((x.partition(":")[2].strip() for x in text.splitlines() if x.startswith(name)), "")


def _model() -> str:
    found = information("model name") or platform.processor() or platform.machine()
    return "".join(c if c.isprintable() else " " for c in found)
