"""Machines as data: files that describe what code is generated and compiled for, those of this package among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from dlc import ExitCode, option
from dlc.base.diagnostics import DlcError, error
from dlc.base.memories import costs_problem, problem_of
from dlc.base.toml_text import BadToml, read_toml
from dlc.files.inputs import input_bytes
from dlc.spec import Bytes, Configurable, Spec, format_bytes
from dlc_backend_c.instructions import INSTRUCTIONS

FOLDER: Final = Path(__file__).parent / "machines"
VECTORS: Final = (0, 8, 16, 32, 64)
ALIGNMENTS: Final = (8, 16, 32, 64)
"""Of any element type at least."""
SPEEDS: Final = ("l2_rate", "memory_rate", "operations", "loads", "latency")
"""What decides estimates alone, by its name in `dlc.kernel.schedules.Machine`."""
LEAST: Final = 0.01
"""Of a speed."""
MOST_BYTES: Final = 64 << 10
"""Of a file: a description takes a few hundred."""


@dataclass(frozen=True)
class MachineFile(Configurable):
    """A class of processors, as a TOML file describes it."""

    name = "machine"
    description: str = option("", "what it is, in a few words")
    vector_bytes: int = option(0, "bytes of a vector register: 8, 16, 32 or 64; 0: there are no vectors")
    registers: int = option(
        16, "number of vector registers; without vectors, of those that hold floats", low=4, high=256
    )
    general_registers: int = option(
        0,
        "without vectors, registers that hold sums of integers and their operands; 0: as many as floats",
        low=0,
        high=256,
    )
    l1: Bytes = option(32 << 10, "first-level data cache per core", low=256)
    l2: Bytes = option(256 << 10, "second-level cache per core; without one, what the processor reads fast", low=256)
    l2_rate: float = option(32.0, "bytes that a core reads from its second-level cache in a cycle", low=LEAST)
    memory_rate: float = option(6.0, "bytes that a core reads from beyond that in a cycle", low=LEAST)
    operations: float = option(2.0, "arithmetic operations of vectors that a core starts in a cycle", low=LEAST)
    loads: float = option(2.0, "vectors that a core loads from its first-level cache in a cycle", low=LEAST)
    latency: float = option(4.0, "cycles from an operand of a sum of floats to its result", low=LEAST)
    align: int = option(64, f"bytes that buffers and weights are aligned to: {', '.join(map(str, ALIGNMENTS))}")
    stack: Bytes = option(64 << 10, "what the buffers of a function may take on its stack, together; 0: none lie there")
    past: Bytes = option(
        0,
        "size from which on results are stored past the caches, as of the last one; 0: no such stores",
    )
    flags: tuple[str, ...] = option((), "flags for the compiler that mean this processor", runs=True)
    features: tuple[str, ...] = option(
        (), "what a processor must have to run the code, as /proc/cpuinfo calls it; libraries are not loaded without"
    )
    instructions: tuple[str, ...] = option(
        (), "what multiplies bytes and bf16: names of instructions, the fastest first"
    )
    architectures: tuple[str, ...] = option(
        (), "what compilers for it call their target, up to the first '-'; none: any compiler"
    )
    memories: tuple[tuple[str, Bytes], ...] = option(
        (), "working memories and their sizes, the fastest first, for c{memory=machine}: dtcm:128KiB,sram:512KiB"
    )
    costs: tuple[tuple[str, float], ...] = option(
        (),
        "what reading or writing a byte of each costs, relative to the others; by default 1 for the fastest, and four "
        "times as much in each that follows",
    )

    def __post_init__(self) -> None:
        """Refuse vectors, alignments and instructions that generated code does not have."""
        numbers = (("vector-bytes", self.vector_bytes, VECTORS), ("align", self.align, ALIGNMENTS))
        for key, value, known in (*numbers, *(("instructions", name, INSTRUCTIONS) for name in self.instructions)):
            if value not in known:
                message = f"machine: option {key}: {value} is none of {', '.join(map(str, known))}"
                raise error("bad-option", message, exit_code=ExitCode.USAGE)
        for key, problem in (
            ("memories", problem_of(self.memories)),
            ("costs", costs_problem(self.memories, self.costs)),
        ):
            if problem:
                raise error("bad-option", f"machine: option {key}: {problem}", exit_code=ExitCode.USAGE)


def to_toml(machine: MachineFile) -> str:
    """The file that describes a machine: `read` gives the machine again."""
    values = ((doc, getattr(machine, f.name)) for f, doc in zip(fields(machine), machine.options_doc(), strict=True))
    pairs = dict(machine.to_spec().options)
    # Of text, numbers and lists of text, TOML is written as JSON is.
    return "".join(
        f"{doc.key} = {json.dumps(_written(doc.type, x, pairs.get(doc.key)), ensure_ascii=False)}\n"
        for doc, x in values
        if x != ()
    )


def _written(kind: str, value: object, pairs: object) -> object:
    """A value as TOML has it: sizes with units, pairs of a name and something as texts with a colon between."""
    if kind == "size":
        return format_bytes(cast("int", value))
    return pairs if kind.startswith("list of name:") else value


def names() -> tuple[str, ...]:
    """The machines of this package."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.toml")))


@lru_cache
def named(name: str) -> MachineFile:
    """A machine of this package."""
    return read(FOLDER / f"{name}.toml")


def read(path: Path) -> MachineFile:
    """The machine that a file describes.

    Raises:
        DlcError: (USAGE) it cannot be read, is no TOML, or holds another key or value than a description has.
    """
    try:
        content = input_bytes(path, MOST_BYTES)
        if len(content) > MOST_BYTES:
            raise _bad(path, f"has more than {MOST_BYTES:,} bytes, which descriptions have at most")
        table = read_toml(content.decode("utf-8"))
    except OSError as problem:
        help = f"a machine that comes with dlc is chosen by c{{cpu={path}}}" if str(path) in names() else ""
        raise _bad(path, problem.strerror or "cannot be read", help) from None
    except (BadToml, UnicodeDecodeError) as problem:
        raise _bad(path, f"is no TOML: {problem}") from None
    return from_table(table, path)


def summary(machine: MachineFile) -> str:
    """What a machine is, with its memories."""
    memories = ", ".join(f"{name} {format_bytes(size)}" for name, size in machine.memories)
    return f"{machine.description}; memories: {memories}" if memories else machine.description


def described(path: Path) -> str:
    """What the machine of a file is, for a listing; of a file that describes none, why."""
    try:
        return summary(read(path))
    except DlcError as problem:
        return problem.diagnostics[0].message


def from_table(table: Mapping[str, Any], path: Path) -> MachineFile:
    """The machine of a file's content."""
    try:
        return MachineFile.from_spec(Spec("machine", tuple((key, _value(key, v)) for key, v in table.items())))
    except DlcError as problem:
        first = problem.diagnostics[0]
        raise _bad(path, first.message.removeprefix("machine: "), first.help) from None


def _value(key: str, value: Any) -> str | tuple[str, ...]:
    """As options are written: words, and lists of them."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(x, str | int | float) for x in items):
        raise error("bad-option", f"option {key}: {value} is neither text, a number nor a list of these")
    return tuple(map(str, items)) if isinstance(value, list) else str(value)


def _bad(path: Path, what: str, help: str = "") -> DlcError:
    return error("machine-file", f"{path}: {what}", help=help, exit_code=ExitCode.USAGE)
