"""What `dlc show` prints of kernels: as the core holds them, their gradients, and the loops they become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dlc.base.diagnostics import ExitCode, did_you_mean, error, escape

if TYPE_CHECKING:
    from dlc.cli.options import BuildOptions
    from dlc.cli.workspace import Workspace
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op
    from dlc.graph.structure import Call

PARTS: Final = ("kernel", "gradient", "loops")
"""In the order in which they are printed."""


@dataclass(frozen=True)
class Views:
    """A model and its gradients."""

    forward: Graph
    gradient: Graph | None
    """None when neither a flag nor the file asks for gradients."""

    @classmethod
    def of(cls, space: Workspace, choice: BuildOptions) -> Views:
        """Both, read from the file that the flags name."""
        wanted = space.graph(choice)
        forward = space.graph(replace(choice, grad=()), forward=True)
        return cls(forward, None if wanted.digest == forward.digest else wanted)

    @property
    def shown(self) -> Graph:
        """What a build would compile."""
        return self.forward if self.gradient is None else self.gradient

    def chosen(self, words: str) -> tuple[str, ...]:
        """The parts that `--what` names; without it all that there are for a kernel, and none for a model of ops.

        Raises DlcError (USAGE).
        """
        names = [w.strip() for w in words.split(",")] if words else []
        for name in names:
            if name not in PARTS:
                help = did_you_mean(name, PARTS, "parts")
                raise error("bad-option", f"--what {name}: there is no such part", help=help, exit_code=ExitCode.USAGE)
        if "gradient" in names and self.gradient is None:
            raise error(
                "no-effect",
                "--what gradient: the inputs to differentiate with respect to are missing",
                help="add --grad INPUT",
                exit_code=ExitCode.USAGE,
            )
        if not words:
            names = [p for p in PARTS if p != "gradient" or self.gradient] if self._is_kernel else []
        return tuple(p for p in PARTS if p in names)

    @property
    def _is_kernel(self) -> bool:
        from dlc.graph.structure import Call, Input, Item

        return all(isinstance(op, Input | Call | Item) for op in self.forward.ops) and bool(self.forward.outputs)

    def text(self, part: str) -> str:
        """One part, under a line that says what it is."""
        match part:
            case "kernel":
                return "\n".join(["# kernel", *_kernels(self.forward)])
            case "gradient":
                assert self.gradient is not None
                return "\n".join(["# gradient", *_kernels(self.gradient)])
            case _:
                return "\n".join(["# loops, on a machine without vectors", *_loops(self.shown)])


def _kernels(graph: Graph) -> Iterator[str]:
    """Every kernel that a graph's ops become, once, with what its tensors are."""
    from dlc.kernel.text import print_kernel

    for call, lowered in _calls(graph):
        yield from _legend(call, lowered)
        yield print_kernel(call.body)


def _loops(graph: Graph) -> Iterator[str]:
    from dlc.kernel.loops.print import print_loops
    from dlc.kernel.schedules.machine import Machine
    from dlc.kernel.schedules.schedule import schedule

    for call, lowered in _calls(graph):
        yield from _legend(call, lowered)
        yield print_loops(schedule(call.body, Machine()))


def _calls(graph: Graph) -> Iterator[tuple[Call, Graph]]:
    """The first call of each kernel, and the graph it is part of."""
    from dlc.api.inside import run_inside
    from dlc.api.plan import calls_of
    from dlc.base.report import Report
    from dlc.graph.structure import Call
    from dlc.passes.lower import Lower

    seen: set[str] = set()
    for lowered in run_inside(Lower(), graph, Report()).graphs:
        for call in calls_of(lowered):
            if isinstance(call, Call) and call.body.digest not in seen:
                seen.add(call.body.digest)
                yield call, lowered


def _legend(call: Call, graph: Graph) -> Iterator[str]:
    """Lines on where a call comes from, and which of its tensors are the graph's inputs and outputs."""
    from dlc.api.plan import results_of
    from dlc.graph.structure import Input

    for line in graph.origin(call):
        yield f"# {escape(line)}"
    outputs: dict[Op, str] = dict(zip(graph.outputs, graph.names, strict=True))
    known = [f"p{k} {escape(x.name)}" for k, x in enumerate(call.args) if isinstance(x, Input)]
    known += [f"r{k} {escape(outputs[r])}" for k, r in enumerate(results_of(call)) if r in outputs]
    if known:
        yield f"# {', '.join(known)}"
