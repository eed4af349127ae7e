"""What C code is generated and compiled for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_backend_c.instructions import PORTABLE_BF16, dots_instruction, in_general_registers
from dlc_backend_c.machine_file import SPEEDS, MachineFile, named, names, read
from dlc_backend_c.options import FAST, ORDERED, PARTS, STRICT, Math
from dlc_backend_c.processor import cores, information

if TYPE_CHECKING:
    from dlc.kernel.schedules.choice import Choice
    from dlc.kernel.schedules.machine import Machine
    from dlc_backend_c.options import Options

NATIVE, PORTABLE = "native", "generic"
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
        math: What floating point may do, as the option of the backend says it.
        features: What a processor must have to run the code, as /proc/cpuinfo spells it.
        architectures: What compilers for it call their target; none: any compiler.
        threads: Threads that a call runs on, at most.
        cores: Processors that they run on, where there are fewer; 0: as many.
        align: Bytes that buffers and weights are aligned to.
        stack: Bytes that the buffers of a function may take on its stack.
        instructions: What multiplies bytes and bf16, the fastest first.
        general: Registers for integers where there are no vectors; 0: as many as `registers`.
        speeds: What estimates know of it beside sizes, by the fields of `Machine`, where it is not as by default.
        families: Families of schedules of plugins, which are tried beside the core's.
        past: Bytes of a result from which on it is stored past the caches; 0: never.
    """

    cpu: str
    vector_bytes: int
    registers: int
    l1: int
    l2: int
    flags: tuple[str, ...]
    math: Math = FAST
    features: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    threads: int = 1
    cores: int = 0
    align: int = 64
    stack: int = 64 << 10
    instructions: tuple[str, ...] = ()
    speeds: tuple[tuple[str, float], ...] = ()
    families: tuple[type[Choice], ...] = ()
    general: int = 0
    past: int = 0

    @property
    def machine(self) -> Machine:
        """The numbers that schedules need."""
        from dlc.kernel.schedules.machine import (
            Machine,  # not above: naming a target is part of finding a build in the cache
        )

        found = Machine(
            self.vector_bytes,
            self.registers,
            self.l1,
            self.l2,
            self.ordered,
            threads=self.threads,
            cores=self.cores,
            general=self.general,
            words=in_general_registers(self.instructions),
            stack=self.stack,
            pairs=self.pairs,
            digits=self.digits,
            past=self.past,
            reciprocals=self.math not in (ORDERED, STRICT),
        )
        return replace(found, **dict(self.speeds))

    @property
    def pairs(self) -> int:
        """Operations of a vector of dot products of bf16, by an instruction or without; 0: the mode has none."""
        if self.math not in PARTS:
            return 0
        sums = self.vector_bytes // 4  # of f32
        return 1 if dots_instruction("f32", sums, self.instructions) else PORTABLE_BF16

    @property
    def digits(self) -> bool:
        """Whether an instruction multiplies bytes in vectors, and the mode allows to round factors to what it takes."""
        if self.math in (ORDERED, STRICT):
            return False
        found = dots_instruction("i32", self.vector_bytes // 4, self.instructions)
        return found is not None and found.single

    @property
    def identity(self) -> str:
        """Everything that code for it depends on, in a line."""
        return f"{self.cpu} {self.characteristics}"

    @property
    def characteristics(self) -> str:
        """The same without its name: what kernels and their schedules depend on."""
        registers = f"{self.registers}+{self.general}" if self.general else self.registers
        sizes = f"vectors={self.vector_bytes} registers={registers} l1={self.l1} l2={self.l2} math={self.math}"
        threads = f" threads={self.threads}" * (self.threads > 1) + f" cores={self.cores}" * bool(self.cores)
        words = " ".join((*self.flags, *self.instructions))
        speeds = "".join(f" {name}={value}" for name, value in self.speeds)
        return f"{words} {sizes}{threads} align={self.align} stack={self.stack}{speeds} past={self.past}"

    @property
    def ordered(self) -> bool:
        """Every operation rounds by itself, and sums keep the order of their axes."""
        return self.math == ORDERED

    def in_mode(self, math: Math) -> CTarget:
        """The target for code that computes in this way."""
        contract = "off" if math == ORDERED else "fast"
        flags = tuple(f"-ffp-contract={contract}" if f.startswith("-ffp-contract=") else f for f in self.flags)
        return replace(self, flags=flags, math=math)


def from_file(name: str, machine: MachineFile) -> CTarget:
    """The target that a description means."""
    return CTarget(
        name,
        machine.vector_bytes,
        machine.registers,
        machine.l1,
        machine.l2,
        (*COMMON_FLAGS, *machine.flags),
        features=machine.features,
        architectures=machine.architectures,
        align=machine.align,
        stack=machine.stack,
        instructions=machine.instructions,
        speeds=tuple((f.name, getattr(machine, f.name)) for f in fields(machine) if _is_speed(f, machine)),
        general=machine.general_registers,
        past=machine.past,
    )


def _is_speed(field: Field[Any], machine: MachineFile) -> bool:
    return field.name in SPEEDS and getattr(machine, field.name) != field.default


GENERIC, X86_64_V3, X86_64_V4 = (from_file(name, named(name)) for name in (PORTABLE, "x86-64-v3", "x86-64-v4"))
_NATIVE = (
    from_file("x86-64-v4-bf16", named("x86-64-v4-bf16")),
    from_file("x86-64-v4-vnni", named("x86-64-v4-vnni")),
    X86_64_V4,
    from_file("x86-64-v3-vnni", named("x86-64-v3-vnni")),
    X86_64_V3,
)
"""What the processor of this machine may be, the fastest first."""


@lru_cache
def levels() -> Mapping[str, frozenset[str]]:
    """The machines of this package that programs are loaded on, with what they need a processor to have, ascending."""
    found = ((name, frozenset(named(name).features)) for name in names() if name == PORTABLE or named(name).features)
    return dict(sorted(found, key=lambda level: (len(level[1]), level[0] != PORTABLE)))


def level_of(flags: Iterable[str]) -> str:
    """The machine of this package that a compiler builds for by its flags."""
    given = set(flags)
    meant = (name for name in reversed(tuple(levels())) if named(name).flags and given.issuperset(named(name).flags))
    return next(meant, PORTABLE)


def missing(features: tuple[str, ...]) -> tuple[str, ...]:
    """What this processor lacks of features, as /proc/cpuinfo spells them."""
    return tuple(sorted(frozenset(features) - _features()))


def native(features: frozenset[str], l1: int = 32 << 10, l2: int = 512 << 10) -> CTarget:
    """The target for a processor with these features (as /proc/cpuinfo spells them)."""
    for level in _NATIVE:
        if features.issuperset(named(level.cpu).features):
            return replace(level, cpu=NATIVE, l1=l1, l2=l2)
    return replace(GENERIC, cpu=NATIVE, l1=l1, l2=l2)


def target_of(options: Options, families: tuple[type[Choice], ...] = ()) -> CTarget:
    """The target that options choose: the machine of a file, or one by name; with families of schedules of plugins.

    Raises DlcError (USAGE).
    """
    found = target_for(options.cpu, options.math, options.machine or str(options.described.get(options.cpu, "")))
    found = replace(found, threads=options.most_threads, cores=_cores(options), families=families)
    return found if options.stack is None else replace(found, stack=options.stack)


def _cores(options: Options) -> int:
    """Processors of this machine where the program is for it and has more threads; else 0.

    On one processor loops are cut as for two: they have to be shared somewhere.
    """
    if options.cpu != NATIVE or options.machine or options.most_threads < 3:
        return 0
    found = max(2, cores())
    return found if found < options.most_threads else 0


def target_for(cpu: str, math: Math = FAST, machine: str = "") -> CTarget:
    """The target of a name; "native" looks at the processor of this machine (portable C when it cannot tell).

    A `machine` is a file that describes it, in place of a name.
    """
    found = from_file(Path(machine).stem, read(Path(machine))) if machine else _named(cpu)
    return found.in_mode(math)


def _named(cpu: str) -> CTarget:
    return native(_features()) if cpu == NATIVE else from_file(cpu, named(cpu))


def _features() -> frozenset[str]:
    return frozenset(information("flags").split())
