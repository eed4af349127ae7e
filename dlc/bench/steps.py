"""Steps of a program against the limits of the machine: the roofline of each.

    least time of a step = max(operations / operations per second, sum of bytes / bytes per second of where they lie)

Three quantities are told apart. *MACs* are the multiply-accumulates of the model, whatever computes them. *Operations*
are those that the program executes: Winograd's algorithm executes fewer than two for a MAC, a kernel that computes a
value again more. *Bytes* are read and written, each once. Only operations and bytes are compared with limits, and none
is counted that a program may do without, so no step is faster than its least time.

Constants are read once in a call of the program: they lie where all that a call touches fits, and of what does not fit
in a cache only the rest comes from farther away. What a step reads and writes beside them was just written, or is read
next: it lies where all of the step fits. A first-level cache reads and writes at the same time.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dlc.api.artifact import KernelFunction
from dlc.api.plan import Plan, results_of
from dlc.api.profile import Limits
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.schedules.winograd_nests import model_macs
from dlc.kernel.work import bytes_read, work

COMPUTE: Final = "compute"
"""What limits a step that is not limited by a memory."""


@dataclass(frozen=True)
class Work:
    """What one step does in a call."""

    number: int
    """In the order of the plan."""
    kernel: str
    """Digest of the kernel; "" of a branch or a loop."""
    nodes: tuple[str, ...]
    """Of the model, that it computes; of a step without any, the outputs."""
    operations: int | None = None
    """That are executed; None: nobody knows, as of a loop, or of sizes that are open."""
    constants: int = 0
    """Bytes of constants that are read."""
    moved: int = 0
    """Bytes of other values that are read and written."""
    macs: int | None = None
    """Multiply-accumulates of the model; None: nobody knows."""
    weight: float | None = None
    """The operations in those on 32-bit floats, as limits count them; None: they are of such floats."""
    written: int = 0
    """Bytes of `moved` that are written."""

    @property
    def bytes(self) -> int | None:
        """All that is read and written; None: nobody knows."""
        return None if self.operations is None else self.constants + self.moved


@dataclass(frozen=True)
class Measured:
    """A step and the time that it takes."""

    work: Work
    seconds: float
    """Median of several calls."""
    share: float
    """Of the time of all steps, 0 to 1."""
    least: float | None
    """Seconds that it takes at least by the machine's limits; None: nobody knows."""
    limit: str
    """What says so: compute, or the memory that takes longest; "" where nobody knows."""

    @property
    def operations_rate(self) -> float | None:
        """In a second."""
        return _rate(self.work.operations, self.seconds)

    @property
    def bytes_rate(self) -> float | None:
        """In a second."""
        return _rate(self.work.bytes, self.seconds)

    @property
    def part(self) -> float | None:
        """Of the limit that is reached, 0 to 1."""
        return self.least / self.seconds if self.least is not None and self.seconds else None


def works(plan: Plan, functions: Mapping[str, KernelFunction] = MappingProxyType({})) -> tuple[Work, ...]:
    """What each step does; no operations where a size is open, because their number depends on the call.

    Args:
        plan: The steps.
        functions: By digest of a kernel, what the target counted of its loops; of others their nests are counted.
    """
    is_open = any(i.type.is_open or i.type.symbol is not None for i in plan.graph.inputs)
    constants = {c.digest for c in plan.constants}
    return tuple(_work(plan, k, step, constants, functions, known=not is_open) for k, step in enumerate(plan.steps))


def _work(
    plan: Plan, number: int, step: Op, constants: set[str], functions: Mapping[str, KernelFunction], *, known: bool
) -> Work:
    results = {r.digest for r in results_of(step)}
    outputs = (n for n, o in zip(plan.graph.names, plan.graph.outputs, strict=True) if o.digest in results)
    nodes = tuple(plan.graph.origin(step)) or tuple(outputs)
    if not isinstance(step, Call):
        return Work(number, "", nodes)
    if not known:
        return Work(number, step.body.digest, nodes)
    read = dict(zip((x.digest for x in step.operands), bytes_read(step.body), strict=True))
    held = sum(size for digest, size in read.items() if digest in constants)
    written = sum(r.type.nbytes for r in results_of(step) if r.digest not in plan.beside)
    if step.digest in plan.beside:  # as much of a value that others hold the rest of as its kernel writes
        out = step.body.results[0]
        written += sum(n.points for n in step.body.nests if n.out == out.name) * out.dtype.itemsize
    moved = sum(read.values()) - held + written
    operations = work(step.body)[1]
    function = functions.get(step.body.digest)
    counted = (operations, float(operations))
    if function and function.operations is not None and function.weight is not None:
        counted = function.operations, function.weight
    macs = model_macs(step.body)
    return Work(number, step.body.digest, nodes, counted[0], held, moved, macs, counted[1], written)


def measured(found: Sequence[Work], calls: Sequence[Sequence[float]], limits: Limits) -> tuple[Measured, ...]:
    """The steps with their times.

    Args:
        found: The steps.
        calls: Of every call the seconds of every step.
        limits: Of the machine.
    """
    seconds = [statistics.median(times) for times in zip(*calls, strict=True)]
    total = sum(seconds) or 1.0
    whole = sum(w.constants for w in found) + max((w.moved for w in found), default=0)
    return tuple(Measured(w, s, s / total, *least_time(w, whole, limits)) for w, s in zip(found, seconds, strict=True))


def least_time(step: Work, whole: int, limits: Limits) -> tuple[float | None, str]:
    """(seconds that a step takes at least, what says so); `whole`: bytes that a call of the program touches."""
    if step.operations is None or step.bytes is None:
        return None, ""
    near, parts = limits.memory(step.bytes), dict[str, float]()
    left = 1.0
    for memory in reversed(limits.memories):  # what does not fit into the nearer ones comes from the last
        nearer = [m.size for m in limits.memories if m.size is not None and m.rate > memory.rate]
        part = max(0.0, left - min(1.0, max(nearer, default=0) / whole)) if whole else 0.0
        left -= part
        if part:
            parts[memory.name] = part * step.constants / memory.rate
    # Only the nearest cache reads and writes at once.
    moved = max(step.written, step.moved - step.written) if near is limits.memories[0] else step.moved
    parts[near.name] = parts.get(near.name, 0.0) + moved / near.rate
    weight = step.operations if step.weight is None else step.weight
    compute, moving = weight / limits.operations, sum(parts.values())
    return max(compute, moving), COMPUTE if compute >= moving else max(parts, key=lambda name: parts[name])


def _rate(count: int | None, seconds: float) -> float | None:
    return count / seconds if count is not None and seconds else None
