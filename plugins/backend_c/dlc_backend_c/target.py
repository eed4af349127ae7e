"""What C code is generated and compiled for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dlc.kernel.schedules import Machine


Cpu = Literal["native", "generic", "x86-64-v3", "x86-64-v4"]

COMMON_FLAGS = (
    "-std=c99",
    "-O3",
    # Products may be fused with the sum that follows; errno and traps are nobody's interface here.
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)


@dataclass(frozen=True)
class CTarget:
    """A class of processors.

    Attributes:
        cpu: Its name; "generic" is portable C99 without extensions of the language.
        vector_bytes: Bytes of a vector register; 0: no vector extensions.
        registers: Number of vector registers.
        l1, l2: Bytes of data cache per core.
        flags: Passed to the compiler.
        strict: Every operation rounds by itself, and sums keep the order of their axes.
    """

    cpu: Cpu
    vector_bytes: int
    registers: int
    l1: int
    l2: int
    flags: tuple[str, ...]
    strict: bool = False

    @property
    def machine(self) -> Machine:
        """The numbers that schedules need."""
        from dlc.kernel.schedules import Machine  # not above: naming a target is part of finding a build in the cache

        return Machine(self.vector_bytes, self.registers, self.l1, self.l2, self.strict)

    @property
    def identity(self) -> str:
        """Everything that code for it depends on, in a line."""
        sizes = f"vectors={self.vector_bytes} registers={self.registers} l1={self.l1} l2={self.l2} strict={self.strict}"
        return f"{self.cpu} {' '.join(self.flags)} {sizes}"

    def strictly(self) -> CTarget:
        """The target with sums and roundings exactly as kernels are written."""
        off = tuple("-ffp-contract=off" if f == "-ffp-contract=fast" else f for f in self.flags)
        return replace(self, flags=off, strict=True)


GENERIC = CTarget("generic", 0, 16, 32 << 10, 256 << 10, COMMON_FLAGS)
X86_64_V3 = CTarget("x86-64-v3", 32, 16, 32 << 10, 512 << 10, (*COMMON_FLAGS, "-march=x86-64-v3"))
# Named features, because a hypervisor may hide the model name that -march=native looks at.
X86_64_V4 = CTarget(
    "x86-64-v4", 64, 32, 32 << 10, 1 << 20, (*COMMON_FLAGS, "-march=x86-64-v4", "-mprefer-vector-width=512")
)


_V3 = frozenset({"avx2", "fma", "bmi1", "bmi2", "movbe", "f16c"})
LEVELS: Mapping[str, frozenset[str]] = {
    "generic": frozenset(),
    "x86-64-v3": _V3,
    "x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
"""By what the option cpu calls them, ascending: what the instructions in code for a level need a processor to have."""


def level_of(flags: Iterable[str]) -> str:
    """The level that a compiler gets by its flags."""
    found = {flag.removeprefix("-march=") for flag in flags}
    return next((level for level in reversed(tuple(LEVELS)) if level in found), "generic")


def missing(level: str) -> tuple[str, ...]:
    """What this processor lacks for a level, as /proc/cpuinfo spells it."""
    return tuple(sorted(LEVELS[level] - _features()))


def native(features: frozenset[str], l1: int = 32 << 10, l2: int = 512 << 10) -> CTarget:
    """The target for a processor with these features (as /proc/cpuinfo spells them)."""
    if LEVELS["x86-64-v4"] <= features:
        return CTarget("native", 64, 32, l1, l2, X86_64_V4.flags)
    if LEVELS["x86-64-v3"] <= features:
        return CTarget("native", 32, 16, l1, l2, X86_64_V3.flags)
    return CTarget("native", 0, 16, l1, l2, COMMON_FLAGS)


def target_for(cpu: str, strict: bool = False) -> CTarget:
    """The target of a name; "native" looks at the processor of this machine (portable C when it cannot tell).

    `strict`: floating point rounds as the kernels are written (see `CTarget.strictly`).
    """
    return _named(cpu).strictly() if strict else _named(cpu)


def _named(cpu: str) -> CTarget:
    match cpu:
        case "x86-64-v3":
            return X86_64_V3
        case "x86-64-v4":
            return X86_64_V4
        case "native":
            return native(_features())
        case _:
            return GENERIC


def _features() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    line = next((x for x in text.splitlines() if x.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())
