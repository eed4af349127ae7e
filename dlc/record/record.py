"""The record of a build or a measurement: declared here once, read by tables, pages, traces and comparisons.

    model node → layer (a step of the program) → kernel → C function with file and line

`dlc.record.json_form` derives the JSON form and its schema from these declarations. Times are in milliseconds where
names say ms, sizes in bytes; names are as the model has them, so whoever prints them escapes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dlc.record.passes import Job, Pass

SCHEMA: Final = "dlc.record/1"
"""Grows when a field changes its meaning or goes; new fields with defaults may come without."""
NAME: Final = "record.json"
"""Of the file beside a program."""
VALUE: Final = "value"
"""What bytes of an arena are for where nothing else is known."""


@dataclass(frozen=True)
class Port:
    """An input or output of the program."""

    name: str
    """As callers say it."""
    type: str
    """Element type and shape: f32[1,3,224,224]."""


@dataclass(frozen=True)
class Node:
    """A box of a graph: an op of the model, a kernel of the program, or an input."""

    op: str
    """What it computes: the op's name, what a kernel does, "input"."""
    names: tuple[str, ...]
    """Nodes of the model that it comes from; of an input, its name."""
    type: str
    """Of the result."""
    reads: tuple[int, ...]
    """Numbers of nodes of the same graph; weights are left out."""
    layers: tuple[int, ...]
    """Numbers of the layers that compute it, of the function that the graph belongs to."""
    outputs: tuple[str, ...] = ()
    """Outputs of the program that it gives."""


@dataclass(frozen=True)
class Ops:
    """What the graph or plan after a pass consists of."""

    step: str
    """Name of the pass."""
    function: str
    """As in `Pass`."""
    ops: int
    """Everything but inputs and constants."""
    constants: int
    """How many there are."""
    bytes: int
    """Of the constants."""
    kinds: Mapping[str, int]
    """How often each op occurs."""
    kernels: int
    """Different ones; 0 before there are any."""


@dataclass(frozen=True)
class Layer:
    """A step of the program: one call of a kernel, an instruction of a target, a branch or a loop."""

    number: int
    """In the order of the plan."""
    nodes: tuple[str, ...]
    """Of the model, that it computes."""
    kernel: str
    """Digest; "" of what is no call of a kernel."""
    operation: str
    """What it computes, in a few words."""
    reads: tuple[str, ...]
    """Types of the operands."""
    gives: tuple[str, ...]
    """Types of the results."""
    macs: int | None
    """Multiply-accumulates of the model, whatever computes them; null: nobody knows, as of sizes that are open."""
    operations: int | None
    """That the program executes: scalar functions of elements, a multiply-accumulate is two."""
    constant_bytes: int
    """Of weights, that are read."""
    moved_bytes: int
    """Of other values, that are read and written."""
    workspace: int
    """Bytes that it works in."""
    ms: float | None = None
    """Median of what it took in the first run; null: not measured."""


@dataclass(frozen=True)
class Value:
    """Bytes of the arena that hold something for a while."""

    name: str
    """Nodes that it comes from, or "input NAME"."""
    kind: str
    """Its type, or "workspace"."""
    begin: int
    """The first layer that uses it."""
    end: int
    """The one behind the last."""
    offset: int
    """In the arena."""
    size: int
    """In bytes."""
    role: str = VALUE
    """What it is for, as `dlc.record.memory_roles` names it: forward, backward, workspace."""


@dataclass(frozen=True)
class Memory:
    """The arena of a function."""

    arena: int
    """Bytes."""
    bound: int
    """Bytes that are live at once: no plan of this order can do with less."""
    values: tuple[Value, ...]
    """Everything that lies in it."""


@dataclass(frozen=True)
class Weight:
    """A constant that the program reads."""

    name: str
    """Tensor or nodes of the model that it comes from."""
    type: str
    """Element type and shape."""
    bytes: int
    """That it has in the program."""
    layers: tuple[int, ...]
    """Numbers of the layers that read it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of the program, and the function that it became."""

    digest: str
    """That layers name it by."""
    symbol: str
    """Its function; "" where the target has none."""
    file: str
    """That the function is in; relative to the program."""
    line: int
    """Of the definition, from 1; 0 where it is not known."""
    schedule: str
    """How it became loops."""
    cycles: int
    """Of one core, as estimated; 0 where nothing was."""
    traffic: int
    """Bytes beyond the caches of a core, as estimated."""
    workspace: int
    """Bytes that it works in beside arguments and results."""
    stack: int
    """Bytes of stack."""
    jobs: tuple[Job, ...] = ()
    """What it took to be scheduled, written and compiled."""


@dataclass(frozen=True)
class Function:
    """A function of the program: an ordinary one has one, a training program several."""

    name: str
    """"" of an ordinary program."""
    layers: tuple[Layer, ...]
    """In the order in which they run."""
    graph: tuple[Node, ...]
    """What it runs, a box per layer."""
    memory: Memory | None
    """None: the plan has no places."""
    weights: tuple[Weight, ...] = ()
    """What it reads of them, the first use first."""


@dataclass(frozen=True)
class File:
    """A file of the program."""

    name: str
    """Relative to its directory."""
    bytes: int
    """Its size."""


@dataclass(frozen=True)
class MemoryLimit:
    """A cache, or what lies beyond all of them."""

    name: str
    """L1, L2, L3 or memory."""
    bytes: int | None
    """That it holds; null: whatever there is."""
    gbytes_per_second: float
    """10^9 bytes that are read from it in a second."""


@dataclass(frozen=True)
class MachineLimits:
    """What the machine does at most, as measured in the same run."""

    gflops: float
    """10^9 operations on 32-bit floats in a second."""
    memories: tuple[MemoryLimit, ...]
    """The fastest first."""


@dataclass(frozen=True)
class OutputDifference:
    """An output of dlc's program against that of another one."""

    name: str
    """Of the output."""
    ok: bool
    """Whether `dlc verify` would allow it."""
    max_abs: float | str
    """Largest difference; "inf" or "nan" where it is not finite."""
    max_rel: float | str
    """Largest difference as a part of the value."""


@dataclass(frozen=True)
class PausedTimes:
    """Calls of a program, each some time after the last one, as those of a service come."""

    calls: int
    """That were measured."""
    median_ms: float
    """Of a call."""
    p10_ms: float
    """10th percentile."""
    p90_ms: float
    """90th percentile."""
    relative_time: float | None
    """The median in units of dlc's after a pause."""
    gain: float | None
    """How many times as long it takes in the first run, of other threads, after a pause."""


@dataclass(frozen=True)
class ProgramTimes:
    """A program that was called in turn with the others, its calls back to back; the first one is dlc's."""

    name: str
    """dlc, or a runtime."""
    version: str
    """Of it."""
    measured: bool
    """Whether it could be."""
    reason: str
    """Why not."""
    calls: int
    """That were measured."""
    median_ms: float | None
    """Of a call."""
    p10_ms: float | None
    """10th percentile."""
    p90_ms: float | None
    """90th percentile."""
    calls_per_second: float | None
    """Inferences per second, one after the other."""
    relative_time: float | None
    """The median in units of dlc's."""
    outputs: tuple[OutputDifference, ...]
    """Its outputs against dlc's."""
    gain: float | None
    """How many times as long it takes in the first run, of other threads."""
    after_pause: PausedTimes | None = None
    """Of calls after a pause; null: not measured."""


@dataclass(frozen=True)
class StepTimes:
    """A step of the program and the time that it takes."""

    step: int
    """Number of the layer."""
    kernel: str
    """Digest; "" of what is no call of a kernel."""
    nodes: tuple[str, ...]
    """Of the model, that it computes."""
    ms: float
    """Median of several calls."""
    share: float
    """Of the time of all steps, 0 to 1."""
    macs: int | None
    """As in `Layer`."""
    operations: int | None
    """As in `Layer`."""
    bytes: int | None
    """That are read and written; null: nobody knows."""
    gflops: float | None
    """10^9 operations in a second."""
    gbytes_per_second: float | None
    """10^9 bytes in a second."""
    limit: str
    """What bounds it: "compute" or a memory; "" where nobody knows."""
    least_ms: float | None
    """That it takes at least by that limit."""
    part_of_limit: float | None
    """Of the limit that is reached, 0 to 1."""
    gain: float | None
    """How many times as long it takes in the first run, of other threads."""


@dataclass(frozen=True)
class Run:
    """What was measured with one number of threads."""

    threads: int
    """Of a call, at most."""
    target: str
    """Spec text, only what differs from the defaults."""
    seed: int
    """Of random inputs."""
    random_inputs: tuple[str, ...]
    """Their names."""
    operations: int | None
    """Of a call; null: nobody knows."""
    gflops: float | None
    """10^9 operations in a second, of dlc's program."""
    part_of_peak: float | None
    """What part of the machine's that is, 0 to 1."""
    programs: tuple[ProgramTimes, ...]
    """dlc's first."""
    limits: MachineLimits | None
    """None where steps are not measured."""
    steps: tuple[StepTimes, ...]
    """In the order of the plan."""
    no_steps: str = ""
    """Why they are not measured, where that is not what the user asked for."""
    pause_ms: float | None = None
    """Before each call that is measured after a pause; null: none is."""


@dataclass(frozen=True)
class Counts:
    """How the cache served the build."""

    hits: int
    """Results that it had."""
    misses: int
    """Results that it had not."""


@dataclass(frozen=True)
class Record:
    """Everything that a build, or a measurement of a program, came to."""

    model: str
    """The file, as it was given."""
    target: str
    """Spec text of the backend."""
    pipeline: str = ""
    """Spec text of the passes; "" where the program was built before."""
    dlc: str = ""
    """Version that made the record."""
    schema: str = SCHEMA
    """Version of this declaration."""
    inputs: tuple[Port, ...] = ()
    """Of the program."""
    outputs: tuple[Port, ...] = ()
    """Of the program."""
    facts: Mapping[str, int | str] = field(default_factory=dict[str, int | str])
    """Figures of the program by name, as the backend and the planner give them."""
    passes: tuple[Pass, ...] = ()
    """The steps of the build."""
    ops: tuple[Ops, ...] = ()
    """What the graph was after each pass."""
    graph: tuple[Node, ...] = ()
    """The model as it was read; `layers` are those of the first function, or of the one that learns."""
    functions: tuple[Function, ...] = ()
    """Of the program."""
    kernels: tuple[Kernel, ...] = ()
    """Of all functions, the first use first."""
    files: tuple[File, ...] = ()
    """Of the program."""
    cache: Counts | None = None
    """None where there was no build."""
    runs: tuple[Run, ...] = ()
    """What was measured."""
