"""What a backend refuses: ops, types and kernels that it cannot build, and plans that do not fit into its memory.

Everything is found before anything is written and reported at once: what, how often, where, why, and what would help.

    check_ops      the model's ops, and the types of inputs and of results, before kernels are made of them
    check_values   whatever `emit` would get: the types of all values, constants that passes made included, and kernels
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dlc.api.backend import Backend, Reason
from dlc.api.plan import INPUTS, Plan
from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
from dlc.base.types import Type
from dlc.graph.constants import compute_ops, constant_ops
from dlc.graph.structure import Call

if TYPE_CHECKING:
    from dlc.api.backend import Region
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op
    from dlc.kernel.kernel import Kernel

_NAMED = 3
"""Nodes and types that a message names; the others are counted."""
_LINES = 6
"""Of a refused kernel's text."""
_Nodes: TypeAlias = tuple[str, ...]
_Value: TypeAlias = tuple[str, str, Reason]
"""(element type, what has it, why it is refused)."""


def asks_about_ops(backend: Backend) -> bool:
    """Whether the backend has something to say about single ops."""
    return type(backend).accepts is not Backend.accepts


def asks_about_values(backend: Backend) -> bool:
    """Whether the backend has something to say about what `emit` gets."""
    kind = type(backend)
    if backend.stores:
        return True
    return kind.accepts_type is not Backend.accepts_type or kind.accepts_kernel is not Backend.accepts_kernel


def check_ops(graph: Graph, backend: Backend) -> None:
    """Ask about a model's ops, and the types of its inputs and of what they compute.

    Ops that depend on constants only are evaluated while compiling and are never asked about.

    Raises:
        DlcError: (MODEL) one diagnostic per kind of op, or of value, and reason that the backend refuses.
    """
    found = _Refusals(backend)
    asked = [(each, op) for each in graph.graphs for op in compute_ops(each)]
    answers = backend.accepts_all([op for _, op in asked]) if asks_about_ops(backend) else [True] * len(asked)
    for (each, op), answer in zip(asked, answers, strict=True):
        if answer is not True:
            found.add_op(each, op, answer)
    for each in graph.graphs:
        found.ask_inputs(each)
    for (each, op), answer in zip(asked, answers, strict=True):
        if answer is True:
            found.ask_results(each, op)
    found.end()


def check_values(state: Graph | Plan, backend: Backend) -> None:
    """Ask about the types of all values that `emit` would get, and about all kernels.

    Raises:
        DlcError: (MODEL) one diagnostic per kind of value, or kernel, and reason that the backend refuses.
    """
    found = _Refusals(backend)
    for graph, steps in _parts(state):
        constant = constant_ops(graph)
        found.ask_inputs(graph)
        for op in dict.fromkeys((*compute_ops(graph), *steps)):
            for x in op.operands:
                if x.digest in constant:
                    found.ask_type(x.type, "a constant", graph.origin(x) or graph.origin(op))
            found.ask_results(graph, op)
        for op in steps:
            if isinstance(op, Call):
                found.ask_kernel(op.body, graph.origin(op))
        for name, y in zip(graph.names, graph.outputs, strict=True):
            found.ask_type(y.type, "an output", graph.origin(y) or (name,))
    found.end()


def _parts(state: Graph | Plan) -> Iterator[tuple[Graph, tuple[Op, ...]]]:
    """Every graph with the ops of it that a program runs."""
    if isinstance(state, Plan):
        yield from ((plan.graph, plan.steps) for plan in state.plans)
    else:
        yield from ((graph, compute_ops(graph)) for graph in state.graphs)


@dataclass
class _Refusals:
    """What a backend refuses of a model, in the order of the questions; each type and kernel is asked about once."""

    backend: Backend
    ops: dict[tuple[str, Reason], list[_Nodes]] = field(default_factory=dict[tuple[str, Reason], list[_Nodes]])
    """(op, reason) → the nodes that each such op came from."""
    values: dict[_Value, dict[Type, list[_Nodes]]] = field(default_factory=dict[_Value, dict[Type, list[_Nodes]]])
    """Kind of value → types → the same."""
    kernels: dict[tuple[str, Reason], list[_Nodes]] = field(default_factory=dict[tuple[str, Reason], list[_Nodes]])
    """(text of a kernel, reason) → the same."""
    types: dict[Type, bool | Reason] = field(default_factory=dict[Type, bool | Reason])
    bodies: dict[str, bool | Reason] = field(default_factory=dict[str, bool | Reason])

    def add_op(self, graph: Graph, op: Op, answer: bool | Reason) -> None:
        """An op that is refused."""
        reason = answer if isinstance(answer, Reason) else Reason("the target has no such operation")
        self.ops.setdefault((op.text_name, reason), []).append(graph.origin(op))

    def ask_inputs(self, graph: Graph) -> None:
        """The types of what a graph is given."""
        for i in graph.inputs:
            self.ask_type(i.type, "an input", (i.name,))

    def ask_results(self, graph: Graph, op: Op) -> None:
        """The types of what an op gives."""
        what = "computed by a kernel" if isinstance(op, Call) else f"computed by {op.text_name}"
        for type in op.types:
            self.ask_type(type, what, graph.origin(op))

    def ask_kernel(self, kernel: Kernel, nodes: _Nodes) -> None:
        """A kernel, and what it computes with beside its arguments and results."""
        for local in kernel.locals:
            self.ask_type(local.type, "computed inside a kernel", nodes)
        for dtype in sorted(kernel.element_types - {t.dtype for t in (*kernel.params, *kernel.results)}, key=str):
            self.ask_type(Type(dtype, ()), "computed inside a kernel", nodes)
        if kernel.digest not in self.bodies:
            self.bodies[kernel.digest] = self.backend.accepts_kernel(kernel)
        if (answer := self.bodies[kernel.digest]) is not True:
            reason = answer if isinstance(answer, Reason) else Reason("the target cannot run it")
            self.kernels.setdefault((kernel.text(), reason), []).append(nodes)

    def ask_type(self, type: Type, what: str, nodes: _Nodes) -> None:
        """The type of a value: `what` says which, as "a constant"."""
        if type not in self.types:
            self.types[type] = self.backend.accepts_type(type)
        if (answer := self.types[type]) is not True:
            reason = answer if isinstance(answer, Reason) else Reason("the target has no such values")
            self.values.setdefault((str(type.dtype), what, reason), {}).setdefault(type, []).append(nodes)

    def end(self) -> None:
        """Raises DlcError: something was refused."""
        name = self.backend.name
        found = [_refusal("unsupported-op", f"{name} cannot build {op}", r, at) for (op, r), at in self.ops.items()]
        for (_, what, reason), types in self.values.items():
            several = _several(list(dict.fromkeys(type.text if type.shape else str(type.dtype) for type in types)))
            at = [nodes for each in types.values() for nodes in each]
            found.append(_refusal("unsupported-type", f"{name} has no {several}, {what}", reason, at))
        for (text, reason), at in self.kernels.items():
            lines = text.splitlines()
            notes = (*lines[:_LINES], *((f"and {len(lines) - _LINES} more lines",) if len(lines) > _LINES else ()))
            found.append(_refusal("unsupported-kernel", f"{name} cannot build a kernel", reason, at, notes))
        if found:
            raise DlcError(*found)


def check_regions(plan: Plan, backend: Backend) -> None:
    """Raises DlcError: (LIMIT) the plan takes more memory than there is; (USAGE) a value is where it cannot be."""
    regions = backend.regions()
    for full, size in plan.regions.items():
        name = full.partition(":")[0]  # inputs:0
        if name not in regions and name == INPUTS:
            raise error(
                "no-such-memory",
                f"{backend.name} as it is asked for writes over no inputs",
                help="leave out plan-memory.inputs; some targets have an option for it, as c{inputs=consumed}, which "
                "callers can see",
                exit_code=ExitCode.USAGE,
            )
        if name not in regions:
            raise error(
                "no-such-memory",
                f"{backend.name} has no memory called {name}",
                help=f"its memories: {', '.join(regions)}; some targets have an option that names them, "
                "as c{memory=fast:64KiB,slow:8MiB}",
                exit_code=ExitCode.USAGE,
            )
        limit = regions[name].limit
        if limit is not None and size > limit:
            raise error(
                "memory-limit",
                f"{name} of {backend.name} holds {limit} bytes, the program needs {size}: {size - limit} too many",
                help="use a smaller batch or input; `dlc build --html` shows the live values over time",
                exit_code=ExitCode.LIMIT,
            )
    _check_alignment(plan, backend, regions)


def _check_alignment(plan: Plan, backend: Backend, regions: Mapping[str, Region]) -> None:
    slots = (("one at", s.region, s.offset) for p in plan.plans for s in (*p.slots.values(), *p.workspaces.values()))
    ends = (("a region that ends at", name, size) for name, size in plan.regions.items())
    for what, region, at in (*slots, *ends):
        align = regions[region.partition(":")[0]].align
        if at % align:
            raise error(
                "misaligned",
                f"{backend.name} needs values at multiples of {align} bytes, the plan has {what} byte {at}",
                help=f"--set plan-memory.align={align}",
                exit_code=ExitCode.USAGE,
            )


def _refusal(code: str, what: str, reason: Reason, at: list[_Nodes], notes: tuple[str, ...] = ()) -> Diagnostic:
    nodes = _several(list(dict.fromkeys(node for each in at for node in each)))
    times = f"{len(at)} times" if len(at) > 1 else "once"
    location = Location(node=nodes) if nodes else None
    return Diagnostic(code, f"{what} ({times}): {reason.text}", location=location, notes=notes, help=reason.help)


def _several(names: list[str]) -> str:
    """The first few."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
