"""Whether the loops of a program compute what its kernels say: each kernel once, as it was scheduled.

kernel, loops of its function → findings of `dlc.kernel.loops.check`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dlc.api.backend import Backend
from dlc.api.schedules import kernels_as_stored
from dlc.graph.graph import Graph
from dlc.graph.structure import Call
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import Finding, check_loops


@dataclass(frozen=True)
class CheckedLoops:
    """What was found of one kernel.

    Attributes:
        kernel: Its digest.
        function: Function of a training program that has it first, or "".
        nodes: Names of the model's nodes that it comes from.
        schedule: How it became loops, as text.
        findings: What is wrong; nothing if all is right.
        seconds: That the check took.
    """

    kernel: str
    function: str
    nodes: tuple[str, ...]
    schedule: str
    findings: tuple[Finding, ...]
    seconds: float


@dataclass
class LoopChecker:
    """Checks the kernels of graphs that were scheduled for a target, each once."""

    backend: Backend
    tell: Callable[[str], object] = str
    """Told what is checked now."""
    checked: list[CheckedLoops] = field(default_factory=list[CheckedLoops])

    def see(self, graph: Graph, function: str = "") -> tuple[CheckedLoops, ...]:
        """Check the kernels of a graph that were not seen before, up to the first with a finding; what is new."""
        first = len(self.checked)
        seen = {c.kernel for c in self.checked}
        calls = {op.body.digest: (op, each) for each in graph.graphs for op in each.ops if isinstance(op, Call)}
        waiting = [(digest, *found) for digest, found in calls.items() if digest not in seen]
        kernels = kernels_as_stored(graph)
        for k, (digest, op, each) in enumerate(waiting):
            self.tell(f"verify loops of kernel {k + 1} of {len(waiting)}")
            start = time.perf_counter()
            findings = self._findings(kernels[digest])
            if findings is None:
                continue
            seconds, nodes = time.perf_counter() - start, tuple(each.origin(op))
            schedule = each.schedules.get(digest, "")
            self.checked.append(CheckedLoops(digest, function, nodes, schedule, findings, seconds))
            if findings:
                break
        return tuple(self.checked[first:])

    def _findings(self, body: Kernel) -> tuple[Finding, ...] | None:
        """None of a kernel without loops."""
        kernel = Kernel.canonical(body.params, body.results, body.nests, body.locals)
        program = self.backend.loops(kernel)
        return None if program is None else check_loops(kernel, program)


def has_loops(backend: Backend) -> bool:
    """Whether a target has loops to check."""
    return type(backend).loops is not Backend.loops
