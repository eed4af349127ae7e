"""Steps of a program against the limits of the machine: the roofline of each.

    least time of a step = max(operations / operations per second, sum of bytes / bytes per second of where they lie)

Constants are read once in a call of the program: they lie where all that a call touches fits. What a step reads and
writes beside them was just written, or is read next: it lies where all of the step fits.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlc.api.plan import Plan, results_of
from dlc.api.profile import Limits
from dlc.graph.op import Op
from dlc.graph.structure import Call
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
    """None: nobody knows, as of a loop, or of sizes that are open."""
    constants: int = 0
    """Bytes of constants that are read."""
    moved: int = 0
    """Bytes of other values that are read and written."""

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


def works(plan: Plan) -> tuple[Work, ...]:
    """What each step does; no operations where a size is open, because their number depends on the call."""
    is_open = any(i.type.is_open or i.type.symbol is not None for i in plan.graph.inputs)
    constants = {c.digest for c in plan.constants}
    return tuple(_work(plan, k, step, constants, known=not is_open) for k, step in enumerate(plan.steps))


def _work(plan: Plan, number: int, step: Op, constants: set[str], *, known: bool) -> Work:
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
    return Work(number, step.body.digest, nodes, work(step.body)[1], held, moved)


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
    far, near = limits.memory(whole), limits.memory(step.bytes)
    parts = {far.name: step.constants / far.rate}
    parts[near.name] = parts.get(near.name, 0.0) + step.moved / near.rate
    compute, moving = step.operations / limits.operations, sum(parts.values())
    return max(compute, moving), COMPUTE if compute >= moving else max(parts, key=lambda name: parts[name])


def _rate(count: int | None, seconds: float) -> float | None:
    return count / seconds if count is not None and seconds else None
